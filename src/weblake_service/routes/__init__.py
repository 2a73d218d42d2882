"""HTTP endpoints, one module for each group, and the validation of their options."""

"""A Dagster project that stores web pages with weblake."""

"""An example of a Dagster project with dagster-weblake, which lands web pages in a lake."""

"""The web, in a lake: an example of a Dagster project with dagster-weblake."""

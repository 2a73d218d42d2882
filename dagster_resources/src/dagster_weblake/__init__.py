"""weblake for Dagster: the resource, assets, components, checks and sensors come with the Dagster issue."""

__version__ = "0.1.0"

"""Metadata of definitions and materializations for Dagster."""

from __future__ import annotations

from dagster_weblake.metadata.loads import (
    WeblakeMetadataSet,
    activity_metadata,
    definition_metadata,
    load_metadata,
    load_named_by,
    named_loads,
    started_metadata,
)
from dagster_weblake.metadata.usage import usage_metadata

__all__ = [
    "WeblakeMetadataSet",
    "activity_metadata",
    "definition_metadata",
    "load_metadata",
    "load_named_by",
    "named_loads",
    "started_metadata",
    "usage_metadata",
]

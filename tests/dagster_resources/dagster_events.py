"""Events, check results and metadata values of a Dagster instance as plain Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: A metadata entry with all that `metadata_value` reads.
METADATA = """
    __typename label description
    ... on TextMetadataEntry { text }
    ... on MarkdownMetadataEntry { mdStr }
    ... on UrlMetadataEntry { url }
    ... on PathMetadataEntry { path }
    ... on IntMetadataEntry { intRepr }
    ... on FloatMetadataEntry { floatRepr }
    ... on BoolMetadataEntry { boolValue }
    ... on TimestampMetadataEntry { timestamp }
    ... on JsonMetadataEntry { jsonString }
    ... on TableMetadataEntry { table { records } }
    ... on TableSchemaMetadataEntry { schema { columns { name type } } }
    ... on AssetMetadataEntry { assetKey { path } }
    ... on PipelineRunMetadataEntry { runId }
    ... on JobMetadataEntry { jobName }
    ... on NotebookMetadataEntry { path }
    ... on PoolMetadataEntry { pool }
    ... on PythonArtifactMetadataEntry { module name }
    ... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } }
    ... on CodeReferencesMetadataEntry { codeReferences {
        ... on LocalFileCodeReference { filePath } ... on UrlCodeReference { url } } }
"""

#: A materialization or observation with all that `AssetEvent.of` reads.
ASSET_EVENT = f"runId partition timestamp tags {{ key value }} metadataEntries {{ {METADATA} }}"


@dataclass(frozen=True)
class AssetEvent:
    """One materialization or observation; `timestamp` is in epoch seconds, `metadata` is label -> value."""

    run_id: str
    partition: str | None
    timestamp: float
    metadata: dict[str, Any]
    tags: dict[str, str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> AssetEvent:
        """From the fields of ASSET_EVENT."""
        return cls(
            run_id=found["runId"],
            partition=found["partition"],
            timestamp=int(found["timestamp"]) / 1000,
            metadata=metadata_of(found["metadataEntries"]),
            tags={tag["key"]: tag["value"] for tag in found["tags"]},
        )


@dataclass(frozen=True)
class CheckResult:
    """The latest execution of an asset check; `status` is SUCCEEDED, FAILED, EXECUTION_FAILED, IN_PROGRESS, SKIPPED."""

    status: str
    run_id: str
    severity: str | None
    description: str | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> CheckResult | None:
        """From an execution; None for none."""
        if found is None:
            return None
        told = found["evaluation"] or {"severity": None, "description": None, "metadataEntries": []}
        metadata = metadata_of(told["metadataEntries"])
        return cls(found["status"], found["runId"], told["severity"], told["description"], metadata)


@dataclass(frozen=True)
class Run:
    """One run; `root` and `parent` are None for a run that repeats no other."""

    run_id: str
    status: str
    root: str | None
    parent: str | None
    tags: dict[str, str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Run:
        """From the fields runId, status, rootRunId, parentRunId, tags."""
        tags = {tag["key"]: tag["value"] for tag in found["tags"]}
        return cls(found["runId"], found["status"], found["rootRunId"], found["parentRunId"], tags)


def metadata_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Label -> value; a table is a list of its records, a column schema is name -> type."""
    return {entry["label"]: metadata_value(entry) for entry in entries}


def metadata_value(entry: Mapping[str, Any]) -> Any:
    """The value of one metadata entry; AssertionError for a kind that METADATA does not ask for."""
    kind = entry["__typename"].removesuffix("MetadataEntry")
    readers: dict[str, Callable[[], Any]] = {
        "Text": lambda: entry["text"],
        "Markdown": lambda: entry["mdStr"],
        "Url": lambda: entry["url"],
        "Path": lambda: entry["path"],
        # The plain fields are null beyond 32 bits and for numbers that JSON lacks.
        "Int": lambda: int(entry["intRepr"]),
        "Float": lambda: float(entry["floatRepr"]),
        "Bool": lambda: entry["boolValue"],
        "Timestamp": lambda: entry["timestamp"],
        "Json": lambda: json.loads(entry["jsonString"]),
        "Table": lambda: [json.loads(record) for record in entry["table"]["records"]],
        "TableSchema": lambda: {column["name"]: column["type"] for column in entry["schema"]["columns"]},
        "Asset": lambda: "/".join(entry["assetKey"]["path"]),
        "PipelineRun": lambda: entry["runId"],
        "Job": lambda: entry["jobName"],
        "Notebook": lambda: entry["path"],
        "Pool": lambda: entry["pool"],
        "PythonArtifact": lambda: f"{entry['module']}.{entry['name']}",
        "TableColumnLineage": lambda: entry["lineage"],
        "CodeReferences": lambda: entry["codeReferences"],
        "Null": lambda: None,
    }
    assert kind in readers, f"metadata {entry['label']!r} is a {kind}, which dagster_events.METADATA does not read"
    return readers[kind]()

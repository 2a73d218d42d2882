"""Tables whose columns, rules or features other programs have changed: a sync commits right values or nothing."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from catalogue import proves
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType
from table_lab import FORMATS, add, iceberg_table, land, options_of, rows, sync
from task_lab import TaskLab, task_lab

import weblake
from weblake import tables
from weblake.api.models import UsagePeriod
from weblake.errors import StorageRefused
from weblake.jobs.usage_reports import Report
from weblake.loads.usage import land_report
from weblake.tables import delta

pytestmark = pytest.mark.usefixtures("short_pauses")

SHOWN = ("load_id", "url", "status_code", "title", "position")
MAPPING = "schema.name-mapping.default"


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskLab]:
    """A dataset with a table of each format, which has one load and lacks its replacement and another load."""
    with task_lab(tmp_path_factory.mktemp("behind")) as lab:
        land(lab, "run-1", "a")
        for format in FORMATS:
            add(lab, format)
            sync_one(lab, format)
        land(lab, "run-2", "a")
        land(lab, "run-3", "b")
        yield lab


def sync_one(lab: TaskLab, format: str) -> None:
    tables.sync(lab.root, format=format, table_options=options_of(lab, format))


def folder(lab: TaskLab) -> Path:
    return lab.root / "documents"


def values(lab: TaskLab, format: str) -> list[Any]:
    """The rows of the table, as the library of the format reads them."""
    if format == "iceberg":
        found = iceberg_table(lab).scan(selected_fields=SHOWN).to_arrow()
    else:
        builder = QueryBuilder().register("loads", DeltaTable(folder(lab)))
        found = pa.table(builder.execute(f"SELECT {', '.join(SHOWN)} FROM loads"))
    return sorted(tuple(row[name] for name in SHOWN) for row in found.to_pylist())


def landed(lab: TaskLab) -> list[Any]:
    found = weblake.read(lab.root).to_table().select(SHOWN)
    return sorted(tuple(row[name] for name in SHOWN) for row in found.to_pylist())


def log(lab: TaskLab) -> list[Path]:
    return sorted((folder(lab) / "_delta_log").glob("*.json"))


def change_metadata(
    lab: TaskLab,
    configuration: Mapping[str, str] | None = None,
    columns: Callable[[list[Any]], object] = len,
    protocol: Mapping[str, object] | None = None,
) -> None:
    """Commit a change of the table's metadata by hand, as a program with more features does it."""
    actions = [json.loads(line) for path in log(lab) for line in path.read_text().splitlines()]
    metadata = [action["metaData"] for action in actions if "metaData" in action][-1]
    schema = json.loads(metadata["schemaString"])
    columns(schema["fields"])
    metadata["configuration"] |= configuration or {}
    metadata["schemaString"] = json.dumps(schema)
    new = [*([{"protocol": protocol}] if protocol else []), {"metaData": metadata}]
    name = f"{DeltaTable(folder(lab)).version() + 1:020}.json"
    (folder(lab) / "_delta_log" / name).write_text("\n".join(map(json.dumps, new)))


def features(*names: str, reader: bool = False) -> dict[str, object]:
    both: dict[str, object] = {"minReaderVersion": 3, "readerFeatures": names} if reader else {"minReaderVersion": 1}
    return {**both, "minWriterVersion": 7, "writerFeatures": names}


def column(columns: list[Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in columns if each["name"] == name)
    return found


def new_column(name: str, type: str = "string", nullable: bool = True, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": type, "nullable": nullable, "metadata": metadata}


def described(name: str, key: str, value: object) -> Callable[[list[Any]], object]:
    return lambda columns: column(columns, name)["metadata"].update({key: value})


def mapped(columns: Any, numbers: Iterator[int] | None = None) -> None:
    """Give each field its own name as the name in files, as the upgrade of a table does it."""
    numbers = numbers or count(1)
    if isinstance(columns, list):
        for each in columns:
            each["metadata"] |= {
                "delta.columnMapping.id": next(numbers),
                "delta.columnMapping.physicalName": each["name"],
            }
            mapped(each["type"], numbers)
    elif isinstance(columns, dict):
        for part in ("fields", "elementType", "keyType", "valueType"):
            mapped(columns.get(part), numbers)


def column_mapping(more: Callable[[list[Any]], object] = len, mode: str = "name") -> Callable[[TaskLab], None]:
    def change(lab: TaskLab) -> None:
        configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "90"}
        change_metadata(
            lab, configuration, lambda columns: (mapped(columns), more(columns)), features("columnMapping", reader=True)
        )

    return change


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Callable[[TaskLab], None]:
    """Another program overwrites the table with other columns."""

    def rewrite(lab: TaskLab) -> None:
        whole = DeltaTable(folder(lab)).to_pyarrow_table()
        write_deltalake(folder(lab), change(whole), mode="overwrite", schema_mode="overwrite")

    return rewrite


def with_type(name: str, type: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        return table.set_column(index, name, table.column(index).cast(type))

    return change


def renamed(name: str, to: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.rename_columns([to if each == name else each for each in table.column_names])


def constrained(lab: TaskLab) -> None:
    DeltaTable(folder(lab)).alter.add_constraint({"code": "status_code >= 0"})


def metadata(*arguments: Any) -> Callable[[TaskLab], None]:
    return lambda lab: change_metadata(lab, *arguments)


def unknown(name: str) -> Callable[[TaskLab], None]:
    return metadata({}, len, features(name))


#: Changes of a Delta Lake table, with what the refusal says.
REFUSED_DELTA: dict[str, tuple[Callable[[TaskLab], None], str]] = {
    "constraint": (constrained, r"CHECK constraint code \(status_code >= 0\).*DROP CONSTRAINT code"),
    "not null": (
        metadata({}, lambda columns: column(columns, "load_id").update(nullable=False)),
        "column load_id that must not be null.*ALTER COLUMN load_id DROP NOT NULL",
    ),
    "not null within": (
        metadata({}, lambda columns: column(columns, "actions")["type"]["fields"][0].update(nullable=False)),
        "column actions.screenshots that must not be null",
    ),
    "list of numbers": (
        metadata(
            {}, lambda columns: column(columns, "actions")["type"]["fields"][0]["type"].update(elementType="long")
        ),
        "column actions.screenshots.element of the type int64",
    ),
    "foreign and not null": (
        metadata({}, lambda columns: columns.append(new_column("team", nullable=False))),
        "column team that must not be null.*no such column",
    ),
    "invariant": (
        metadata({}, described("status_code", "delta.invariants", '{"expression": {"expression": "true"}}')),
        "an invariant for the column status_code",
    ),
    "generated": (
        metadata(
            {},
            lambda columns: columns.append(
                new_column("host", **{"delta.generationExpression": "substr(url, 1, 5)"}),
            ),
            features("generatedColumns"),
        ),
        "a generation expression for the column host",
    ),
    "default": (unknown("allowColumnDefaults"), "feature allowColumnDefaults.*DROP FEATURE allowColumnDefaults"),
    "row tracking": (
        metadata({}, len, features("rowTracking", "domainMetadata")),
        "feature domainMetadata and rowTracking",
    ),
    "in-commit timestamps": (unknown("inCommitTimestamp"), "feature inCommitTimestamp"),
    "type widening": (metadata({}, len, features("typeWidening", reader=True)), "feature typeWidening"),
    "unknown writer feature": (unknown("somethingNew"), "feature somethingNew"),
    "unknown reader feature": (
        metadata({}, len, features("somethingNew", reader=True)),
        "deltalake cannot read .*somethingNew.*Update deltalake, or drop the table's feature",
    ),
    "writer version 6": (
        metadata({}, len, {"minReaderVersion": 1, "minWriterVersion": 6}),
        "needs writers of version 6",
    ),
    "mapped and renamed": (
        column_mapping(lambda columns: column(columns, "title").update(name="headline")),
        "column title is not the one of the files any more: it was renamed to headline.*Rename it back to title",
    ),
    "mapped and added again": (
        column_mapping(described("title", "delta.columnMapping.physicalName", "col-1")),
        "column title is not the one of the files any more: it was dropped",
    ),
    "mapped and renamed within": (
        column_mapping(lambda columns: column(columns, "actions")["type"]["fields"][0].update(name="pictures")),
        "column actions.pictures is not the one of the files",
    ),
    "mapped and renamed within a list": (
        column_mapping(
            lambda columns: column(columns, "actions")["type"]["fields"][1]["type"]["elementType"]["fields"][0].update(
                name="address"
            )
        ),
        "column actions.scrapes.address is not the one of the files",
    ),
    "mapped by ids": (column_mapping(mode="id"), "column mapping of the mode id"),
    "text for a number": (
        rewritten(with_type("status_code", pa.string())),
        "column status_code of the type string, and in the files of the dataset it is int32",
    ),
    "longer number": (rewritten(with_type("status_code", pa.int64())), "column status_code of the type int64"),
    "load_id renamed": (rewritten(renamed("load_id", "lid")), "has no column load_id"),
}


@proves(
    "2.13",
    at="src/weblake/tables/delta.py",
    line='        refuse(f"The Delta Lake table {self.location}", changes)',
    becomes="        changes.clear()",
    case="constraint",
)
@pytest.mark.parametrize("case", REFUSED_DELTA)
def test_a_delta_table_that_cannot_take_files_as_they_are_is_left_alone(behind: TaskLab, case: str) -> None:
    change, words = REFUSED_DELTA[case]
    at_first = log(behind)
    change(behind)
    before = log(behind)
    with pytest.raises(StorageRefused, match=f"(?s){words}"):
        sync_one(behind, "delta")
    after = log(behind)
    for path in set(after) - set(at_first):
        path.unlink()
    assert after == before != at_first


def in_metadata_file(change: Callable[[dict[str, Any]], object]) -> Callable[[TaskLab], None]:
    """Change an Iceberg table's metadata as an engine that writes another version of the format."""

    def write(lab: TaskLab) -> None:
        old = iceberg_table(lab).metadata_location.removeprefix("file://")
        found = json.loads(Path(old).read_text())
        change(found)
        new = Path(old).with_name("00099-other.metadata.json")
        new.write_text(json.dumps(found))
        name_metadata(lab, f"file://{new}")

    return write


def name_metadata(lab: TaskLab, location: str) -> None:
    with contextlib.closing(sqlite3.connect(lab.root.parent / "catalog.db")) as catalog, catalog:
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))


def updated(*calls: tuple[str, Sequence[Any], Mapping[str, Any]]) -> Callable[[TaskLab], None]:
    def change(lab: TaskLab) -> None:
        for method, arguments, named in calls:
            with iceberg_table(lab).update_schema(allow_incompatible_changes=True) as update:
                getattr(update, method)(*arguments, **named)

    return change


def with_properties(**properties: str) -> Callable[[TaskLab], None]:
    def change(lab: TaskLab) -> None:
        with iceberg_table(lab).transaction() as transaction:
            transaction.set_properties(properties)

    return change


def with_mapping(change: Callable[[list[Any]], object]) -> Callable[[TaskLab], None]:
    def remap(lab: TaskLab) -> None:
        mapping = json.loads(iceberg_table(lab).properties[MAPPING])
        change(mapping)
        with_properties(**{MAPPING: json.dumps(mapping)})(lab)

    return remap


def names_of(mapping: list[Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in mapping if each["names"] == [name])
    return found


def swapped(mapping: list[Any]) -> None:
    one, other = names_of(mapping, "title"), names_of(mapping, "description")
    one["names"], other["names"] = other["names"], one["names"]


def in_buckets(lab: TaskLab) -> None:
    with iceberg_table(lab).update_spec() as spec:
        spec.add_field("url", BucketTransform(4), "bucket")


#: Changes of an Iceberg table, with what the refusal says.
REFUSED_ICEBERG: dict[str, tuple[Callable[[TaskLab], None], str]] = {
    "renamed": (
        updated(("rename_column", ("title", "headline"), {})),
        "has no column title any more: another program has renamed it to headline.*Rename it back to title",
    ),
    "load_id renamed": (updated(("rename_column", ("load_id", "lid"), {})), "renamed it to lid"),
    "load_id dropped": (updated(("delete_column", ("load_id",), {})), "has no column load_id, by which"),
    "renamed within": (
        updated(("rename_column", ("change_tracking.diff", "delta"), {})),
        "change_tracking.diff.*change them back",
    ),
    "added again with another type": (
        updated(("delete_column", ("title",), {}), ("add_column", ("title", LongType()), {})),
        "column title of the type int64",
    ),
    "required": (updated(("update_column", ("load_id",), {"required": True})), "column load_id that must not be null"),
    "foreign and required": (
        updated(("add_column", ("team", StringType()), {"required": True})),
        "column team that must not be null",
    ),
    "partitioned by buckets": (in_buckets, r"partitioned by bucket\[4\] of url.*Drop the partition field bucket"),
    "name mapping without a name": (
        with_mapping(lambda mapping: mapping.remove(names_of(mapping, "title"))),
        f"{MAPPING} that does not lead the name title",
    ),
    "name mapping without a name within": (
        with_mapping(lambda mapping: names_of(mapping, "change_tracking").update(fields=[])),
        "that does not lead the name change_tracking.previous_scrape_at",
    ),
    "name mapping with swapped names": (with_mapping(swapped), "that does not lead the name title"),
    "name mapping that is none": (with_properties(**{MAPPING: "{"}), f"{MAPPING} that is not a name mapping"),
    "version 3": (
        in_metadata_file(lambda metadata: metadata.update({"format-version": 3, "next-row-id": 0})),
        "has the format version 3, and pyiceberg writes up to version 2",
    ),
}


@proves(
    "2.13",
    at="src/weblake/tables/iceberg.py",
    line="            refuse(self._named, changes_of_table(self._table, self._schema, self._row_keys))",
    becomes="            pass",
    case="renamed",
)
@pytest.mark.parametrize("case", REFUSED_ICEBERG)
def test_an_iceberg_table_that_cannot_take_files_as_they_are_is_left_alone(
    behind: TaskLab, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    change, words = REFUSED_ICEBERG[case]
    at_first = iceberg_table(behind).metadata_location
    change(behind)
    before = iceberg_table(behind).metadata_location
    with pytest.raises(StorageRefused, match=f"(?s){words}"):
        sync_one(behind, "iceberg")
    after = iceberg_table(behind).metadata_location
    name_metadata(behind, at_first)
    assert after == before != at_first
    assert capfd.readouterr() == ("", "")  # pyiceberg prints all columns, and warnings from other threads


def sorted_by_url(lab: TaskLab) -> None:
    with iceberg_table(lab).update_sort_order() as order:
        order.asc("url", IdentityTransform())


def by_kind(lab: TaskLab) -> None:
    with iceberg_table(lab).update_spec() as spec:
        spec.add_identity("job_kind")


def with_branch(lab: TaskLab) -> None:
    table = iceberg_table(lab)
    now = table.metadata.current_snapshot_id
    assert now is not None
    table.manage_snapshots().create_branch(now, "audit").create_tag(now, "month").commit()
    iceberg_table(lab).delete("position = 0", branch="audit")


def without_mapping(lab: TaskLab) -> None:
    with iceberg_table(lab).transaction() as transaction:
        transaction.remove_properties(MAPPING)


def with_configuration(**configuration: str) -> Callable[[TaskLab], None]:
    return lambda lab: DeltaTable(folder(lab)).alter.set_table_properties(configuration)


def with_foreign_column(lab: TaskLab) -> None:
    DeltaTable(folder(lab)).alter.add_columns([Field("team", PrimitiveType("string"))])


#: Changes after which a sync goes on, by format.
ACCEPTED: dict[tuple[str, str], Callable[[TaskLab], None]] = {
    ("delta", "foreign column"): with_foreign_column,
    ("delta", "change data feed"): with_configuration(**{"delta.enableChangeDataFeed": "true"}),
    ("delta", "column mapping"): column_mapping(),
    ("delta", "checkpoints of version 2"): metadata(
        {"delta.checkpointPolicy": "v2"}, len, features("v2Checkpoint", reader=True)
    ),
    ("delta", "features without a rule"): metadata(
        {}, len, features("appendOnly", "checkConstraints", "generatedColumns", "invariants")
    ),
    ("delta", "moved"): metadata({}, lambda columns: columns.insert(0, columns.pop())),
    ("delta", "column dropped"): metadata({}, lambda columns: columns.remove(column(columns, "title"))),
    ("iceberg", "foreign column"): updated(("add_column", ("team", StringType()), {})),
    ("iceberg", "moved"): updated(("move_first", ("title",), {})),
    ("iceberg", "promoted"): updated(("update_column", ("status_code", LongType()), {})),
    ("iceberg", "dropped"): updated(("delete_column", ("title",), {})),
    ("iceberg", "added again"): updated(("delete_column", ("title",), {}), ("add_column", ("title", StringType()), {})),
    ("iceberg", "renamed back"): updated(
        ("rename_column", ("title", "headline"), {}), ("rename_column", ("headline", "title"), {})
    ),
    ("iceberg", "sort order"): sorted_by_url,
    ("iceberg", "partition field"): by_kind,
    ("iceberg", "branch and tag"): with_branch,
    ("iceberg", "no name mapping"): without_mapping,
    ("iceberg", "metadata properties"): with_properties(
        **{
            "write.metadata.metrics.default": "none",
            "write.metadata.previous-versions-max": "1",
            "write.metadata.delete-after-commit.enabled": "true",
        }
    ),
    ("iceberg", "delete files"): with_properties(**{"write.delete.mode": "merge-on-read"}),
}


#: Iceberg's take half a second each: those in which a library could go wrong are in the default tier.
DEFAULT = {"promoted", "added again", "delete files"}


@pytest.mark.parametrize(
    ("format", "case"),
    [
        pytest.param(format, case, marks=() if format == "delta" or case in DEFAULT else pytest.mark.system)
        for format, case in ACCEPTED
    ],
)
@pytest.mark.filterwarnings("error:Merge on read")
def test_a_table_that_can_take_files_as_they_are_has_each_value(lab: TaskLab, format: str, case: str) -> None:
    land(lab, "run-1", "a")
    stays = land(lab, "run-2", "b")
    add(lab, format)
    sync(lab, format)
    ACCEPTED[format, case](lab)
    newest = land(lab, "run-3", "a")
    other = land(lab, "run-4", "c")
    assert set(sync(lab, format).added) == {newest, other}
    assert values(lab, format) == landed(lab)
    assert {row[0] for row in landed(lab)} == {stays, newest, other}


def test_a_change_data_feed_has_a_replacement_as_deleted_and_inserted_rows(lab: TaskLab) -> None:
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    with_configuration(**{"delta.enableChangeDataFeed": "true"})(lab)
    new = land(lab, "run-2", "a")
    version = sync(lab, "delta").version
    feed = pa.table(DeltaTable(folder(lab)).load_cdf(starting_version=version).read_all())
    found = {(row["load_id"], row["_change_type"]) for row in feed.to_pylist()}
    assert (found, feed.num_rows) == ({(old, "delete"), (new, "insert")}, 6)


def test_a_table_is_up_to_date_once_the_change_is_taken_back(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    constrained(lab)
    land(lab, "run-2", "a")
    land(lab, "run-3", "b")
    with pytest.raises(StorageRefused, match="CHECK constraint"):
        sync(lab, "delta")
    DeltaTable(folder(lab)).alter.drop_constraint("code")
    sync(lab, "delta")
    assert values(lab, "delta") == landed(lab)


def test_a_change_between_the_look_and_the_commit_is_seen(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    land(lab, "run-2", "b")
    real = delta.DeltaLakeTable.commit

    def meanwhile(self: Any, *arguments: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "commit", real)
        constrained(lab)
        real(self, *arguments)

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", meanwhile)
    with pytest.raises(StorageRefused, match="CHECK constraint code"):
        sync(lab, "delta")
    assert rows(lab, "delta") == {old: 3}


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_table_of_another_program_gets_the_columns(lab: TaskLab, format: str) -> None:
    one = pa.schema([("team", pa.string()), ("day", pa.string())])
    load_id = land(lab, "run-1", "a")
    if format == "delta":
        DeltaTable.create(folder(lab), one, partition_by=["day"])
    else:
        catalog = load_catalog("lake", **options_of(lab, "iceberg") or {})
        catalog.create_namespace("web")
        catalog.create_table("web.documents", one)
    add(lab, format)
    sync(lab, format)
    assert rows(lab, format) == {load_id: 3}
    assert values(lab, format) == landed(lab)


def test_an_iceberg_table_with_another_name_is_named(lab: TaskLab) -> None:
    land(lab, "run-1", "a")
    add(lab, "iceberg")
    load_catalog("lake", **options_of(lab, "iceberg") or {}).rename_table("web.documents", "web.pages")
    with pytest.raises(StorageRefused, match=r"does not exist: web\.documents.*rename it back"):
        sync(lab, "iceberg")


@proves(
    "2.13",
    at="src/weblake/tables/committing.py",
    line="            add = [file for file in add if file.load_id not in waiting]",
    becomes="            pass",
)
def test_an_append_only_table_gets_new_loads_and_keeps_replaced_ones(lab: TaskLab) -> None:
    """Of a replaced load it has the old rows until the property is gone, and then the new ones, in one commit."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    with_configuration(**{"delta.appendOnly": "true"})(lab)
    other = land(lab, "run-2", "b")
    for run in ("run-3", "run-4"):
        land(lab, run, "a")
    newest = land(lab, "run-5", "a")
    with pytest.raises(StorageRefused, match=rf"append-only .*the rows of {old} were replaced.*SET TBLPROPERTIES"):
        sync(lab, "delta")
    assert rows(lab, "delta") == {old: 3, other: 3}
    with pytest.raises(StorageRefused, match="append-only"):
        sync(lab, "delta")
    with_configuration(**{"delta.appendOnly": "false"})(lab)
    version = DeltaTable(folder(lab)).version()
    done = sync(lab, "delta")
    assert (done.added, done.removed, done.version) == ((newest,), (old,), version + 1)
    assert rows(lab, "delta") == {newest: 3, other: 3}


def test_the_first_sync_of_an_append_only_table_is_not_its_last_look_at_all_loads(lab: TaskLab) -> None:
    """Loads that landed while the table was not registered have no entry: they wait all the same."""
    old = land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    add(lab, "delta", table="page_errors")  # it keeps the files
    tables.remove(lab.root, "delta", "documents")
    new = land(lab, "run-2", "a")
    add(lab, "delta")
    with_configuration(**{"delta.appendOnly": "true"})(lab)
    with pytest.raises(StorageRefused, match=rf"append-only .*the rows of {old} were replaced"):
        sync(lab, "delta", name="documents")
    assert rows(lab, "delta") == {old: 3}
    with_configuration(**{"delta.appendOnly": "false"})(lab)
    sync(lab, "delta", name="documents")
    assert rows(lab, "delta") == {new: 3}


def test_a_table_that_is_append_only_no_more_gets_the_replacement_at_once(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The property is unset between the look and the commit, which fails and is tried again."""
    land(lab, "run-1", "a")
    add(lab, "delta")
    sync(lab, "delta")
    with_configuration(**{"delta.appendOnly": "true"})(lab)
    land(lab, "run-2", "a")
    land(lab, "run-3", "b")
    real = delta.DeltaLakeTable.commit

    def meanwhile(self: Any, *arguments: Any) -> None:
        monkeypatch.setattr(delta.DeltaLakeTable, "commit", real)
        with_configuration(**{"delta.appendOnly": "false"})(lab)
        real(self, *arguments)

    monkeypatch.setattr(delta.DeltaLakeTable, "commit", meanwhile)
    sync(lab, "delta")
    assert values(lab, "delta") == landed(lab)


def test_an_append_only_table_of_usage_gets_new_files_and_keeps_replaced_ones(lab: TaskLab) -> None:
    def usage(month: int, credits: float) -> None:
        start = f"2026-{month:02}-01T00:00:00Z"
        period = UsagePeriod(start_date=start, end_date=None, api_key=None, total_credits=credits)
        land_report(Report("credits", (period,), datetime.now(timezone.utc)), lab.dataset)

    def found() -> dict[str, float]:
        table = DeltaTable(lab.root / "delta" / "usage_periods").to_pyarrow_table(columns=["period", "total_credits"])
        return {row["period"]: row["total_credits"] for row in table.to_pylist()}

    usage(1, 10)
    tables.add(lab.root, "delta", table="usage_periods")
    tables.sync(lab.root)
    DeltaTable(lab.root / "delta" / "usage_periods").alter.set_table_properties({"delta.appendOnly": "true"})
    usage(1, 11)
    usage(2, 20)
    with pytest.raises(StorageRefused, match=r"append-only .*usage_periods/.*were replaced"):
        tables.sync(lab.root)
    assert sorted(found().values()) == [10, 20]
    DeltaTable(lab.root / "delta" / "usage_periods").alter.set_table_properties({"delta.appendOnly": "false"})
    tables.sync(lab.root)
    assert sorted(found().values()) == [11, 20]

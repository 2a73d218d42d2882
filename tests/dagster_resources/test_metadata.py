"""Tests of the metadata of definitions and materializations, from real loads."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import datetime, timezone

import dagster as dg
import pandas as pd
import pytest
from catalogue import proves
from hypothesis import given
from hypothesis import strategies as st
from landed_loads import REFUSED_URL, landed
from markdown_it import MarkdownIt
from odd_site import odd_site

from dagster_weblake import metadata as told
from dagster_weblake.metadata.columns import column_schema, type_name
from dagster_weblake.metadata.text_format import format_table, number
from dagster_weblake.metadata.usage import usage_metadata
from weblake import orchestration
from weblake.api.models import UsagePeriod
from weblake.arrow.schemas import TABLES
from weblake.jobs.usage_reports import Report
from weblake.testing import WeblakeService

#: Everything that could become something else on a page: links, images, HTML, cells, code, headings, bidi overrides.
HOSTILE = (
    "[click](https://evil.invalid) ![i](https://evil.invalid/x.png) <img src=x onerror=alert(1)> <script>x</script> "
    "https://evil.invalid www.evil.invalid a@evil.invalid | cell \\| cell ` `` ``` \\ \u202egnp.exe\u202c \u2028 end\\"
)
TABLE = {"table", "thead", "tbody", "tr", "th", "td", "text", "code_inline"}


def values(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, object]:
    return {name: value.value for name, value in metadata.items()}


def markdown_parts(text: str) -> tuple[set[str], list[list[str]]]:
    """The kinds of what a markdown reader finds in a text, and the cells of its table."""
    kinds: set[str] = set()
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline":
            kinds |= {child.type for child in token.children or ()}
            rows[-1].append(token.content)
        else:
            kinds.add(token.type.removesuffix("_open").removesuffix("_close"))
    return kinds, rows


def survives_dagster(metadata: Mapping[str, dg.MetadataValue], partition: str | None = None) -> None:
    """Dagster stores it and gives it back."""

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition([partition]) if partition else None)
    def docs() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=metadata)

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([docs], instance=instance, partition_key=partition).success
        event = instance.get_latest_materialization_event(dg.AssetKey("docs"))
        assert event is not None
        assert event.asset_materialization is not None
        assert {**event.asset_materialization.metadata} == {**metadata}


def test_the_metadata_of_a_load_has_its_counts(weblake_service: WeblakeService, site, local_root: str) -> None:
    before = datetime.now(timezone.utc).timestamp()
    urls = [*site.pages(7), REFUSED_URL]
    dataset, landing = landed(weblake_service, local_root, urls)
    page = f"https://app.example.com/jobs/{landing.receipt.job_id}"
    metadata = told.load_metadata(dataset, landing, partitioned=False, job_url=page)
    survives_dagster(metadata)
    found, receipt = told.WeblakeMetadataSet.extract(metadata), landing.receipt
    assert isinstance(metadata["weblake/job"], dg.UrlMetadataValue)  # which can be clicked
    assert found.job == page
    assert found.load_id == receipt.load_id
    assert (found.job_id, found.kind, found.status) == (receipt.job_id, "batch_scrape", "completed")
    assert (found.submitted, found.stored, found.failed, found.complete) == (8, 7, 1, True)
    assert (found.robots_blocked, found.rejected, found.missing, found.duplicates) == (0, 0, 0, 0)
    assert found.credits_used == 7
    assert found.root == local_root
    assert before - 1 <= (found.landed_at or 0) <= datetime.now(timezone.utc).timestamp()
    shown = values(metadata)
    assert [name for name, value in metadata.items() if isinstance(value, dg.JsonMetadataValue)] == []
    assert {"weblake/robots_blocked", "weblake/rejected", "weblake/missing", "weblake/duplicates"}.isdisjoint(shown)
    assert len(shown) <= 19
    assert shown["dagster/row_count"] == 7
    assert "dagster/partition_row_count" not in shown
    assert shown["weblake/bytes"] == sum(file.bytes for file in receipt.files)
    uri = str(shown["dagster/uri"])
    assert uri.startswith("file:///")
    assert len(pd.read_parquet(uri)) == 7
    assert len(pd.read_parquet(str(shown["weblake/page_errors_uri"]))) == 1
    assert isinstance(metadata["weblake/stored"], dg.IntMetadataValue)  # which Dagster plots
    assert isinstance(metadata["weblake/credits_used"], dg.FloatMetadataValue)
    kinds, rows = markdown_parts(str(shown["preview"]))
    assert kinds <= TABLE
    assert rows[0] == ["url", "title", "status_code", "content_type"]
    assert len(rows) == 6
    assert all(row[1].startswith("`page ") and row[2] == "200" and row[3].startswith("`text/html") for row in rows[1:])
    _, rows = markdown_parts(str(shown["outcomes"]))
    assert [rows[1][0], rows[1][2]] == ["`failed`", "1"]


@proves(
    "S11",
    at="dagster_resources/src/dagster_weblake/metadata/text_format.py",
    line='return f"`{shown}`" if shown else ""',
    becomes="return str(value)",
)
def test_s11_a_hostile_title_stays_text(weblake_service: WeblakeService, local_root: str) -> None:
    with odd_site(HOSTILE) as odd:
        dataset, landing = landed(weblake_service, local_root, [f"{odd}/titled", f"{odd}/page"])
    preview = str(told.load_metadata(dataset, landing, partitioned=False)["preview"].value)
    kinds, rows = markdown_parts(preview)
    assert kinds <= TABLE
    assert [len(row) for row in rows] == [4, 4, 4]
    title = next(row[1] for row in rows if "evil" in row[1])
    assert title.startswith("`[click]")
    assert title.count("`") == 2
    assert "\u202e" not in preview


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_no_text_breaks_a_markdown_table(cells: list[str]) -> None:
    kinds, rows = markdown_parts(str(format_table(["c"] * len(cells), [cells, cells]).value))
    assert kinds <= TABLE
    assert [len(row) for row in rows] == [len(cells)] * 3
    assert all(len(cell) <= 202 and cell.count("`") in (0, 2) for row in rows[1:] for cell in row)


@proves(
    "S11",
    at="dagster_resources/src/dagster_weblake/metadata/__init__.py",
    line='("url", "title", "status_code", "content_type"), 10',
    becomes='("url", "title", "markdown", "content_type"), 10',
)
def test_s11_the_metadata_contains_neither_key_nor_page_text(weblake_service: WeblakeService, local_root: str) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    with odd_site("T" * 5000, body=canary) as odd:
        dataset, landing = landed(weblake_service, local_root, [f"{odd}/titled", REFUSED_URL])
    metadata = told.load_metadata(dataset, landing, partitioned=False)
    text = json.dumps({name: str(value) for name, value in metadata.items()})
    assert canary in str(pd.read_parquet(str(metadata["dagster/uri"].value))["markdown"][0])
    assert canary not in text
    assert weblake_service.key not in text
    assert "T" * 199 in text
    assert "T" * 201 not in text


def test_a_started_job(weblake_service: WeblakeService, site, local_root: str) -> None:
    dataset = orchestration.open_dataset(local_root)
    load_request = orchestration.batch_request(site.pages(2), orchestration.Naming())
    with weblake_service.client() as client:
        intent, job, _ = orchestration.start_load(client, dataset, load_request)
    page = f"https://app.example.com/jobs/{job.job_id}"
    metadata = told.started_metadata(dataset, intent, job, deadline=1795000000.5, max_credits=9, job_url=page)
    survives_dagster(metadata)
    found = told.WeblakeMetadataSet.extract(metadata)
    assert (found.load_id, found.job_id, found.kind) == (load_request.load_id, job.job_id, "batch_scrape")
    assert (found.deadline, found.max_credits, found.root) == (1795000000.5, 9, local_root)
    assert metadata["weblake/job"] == dg.MetadataValue.url(page)
    assert metadata["weblake/cancel_with"].value == f"weblake cancel batch {job.job_id}"
    assert "weblake/max_credits" not in told.started_metadata(dataset, intent, job, deadline=1.0, max_credits=None)


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_are_those_of_the_arrow_schema(table: str) -> None:
    keys = ["site", "fetched_at"]
    shown = {}
    for column in column_schema(table, keys).columns:
        fields = (column.description or "").partition(" Fields: `")[2].rstrip("`.")
        shown[column.name] = f"struct<{fields}>" if column.type == "struct" else column.type
    assert list(shown.items()) == [
        (field.name, type_name(field.type)) for field in orchestration.table_schema(table, keys)
    ]


def test_definitions_name_their_table() -> None:
    metadata = told.definition_metadata("documents")
    assert (metadata["weblake/table"], metadata["dagster/table_name"]) == ("documents", "documents")
    assert metadata["dagster/storage_kind"] == "parquet"
    usage = told.definition_metadata("usage_periods", report="tokens", budget=5, to="s3://lake/own/")
    assert usage["weblake/report"] == "tokens"
    assert usage["weblake/budget"] == 5.0
    assert usage["weblake/to"] == "s3://lake/own/"
    assert usage["dagster/table_name"] == "s3://lake/own/usage_periods/report=tokens"
    assert told.definition_metadata("documents", starts="web/docs") == {"weblake/starts": "web/docs"}
    with pytest.raises(KeyError):
        told.definition_metadata("nothing")
    dg.AssetSpec("docs", metadata=metadata)


def report(*rows: tuple[str, float, str | None], name: str = "credits") -> Report:
    """A report of months, their amount and their key."""
    periods = []
    for month, used, key in rows:
        year, number_of = int(month[:4]), int(month[5:])
        end = f"{year + number_of // 12}-{number_of % 12 + 1:02d}-01T00:00:00.000Z"
        amounts = {"total_credits": used} if name.startswith("credits") else {"total_tokens": used}
        periods.append(UsagePeriod(start_date=f"{month}-01T00:00:00.000Z", end_date=end, api_key=key, **amounts))
    return Report(name, tuple(periods), datetime(2026, 11, 21, 12, tzinfo=timezone.utc))


YEAR = report(*((f"2026-{month:02d}", month * 1000.0, None) for month in range(1, 12)))


def test_usage_of_one_month(local_root: str) -> None:
    dataset = orchestration.open_dataset(local_root)
    files = orchestration.land_report(YEAR, dataset)
    metadata = usage_metadata(YEAR, files, dataset, period="2026-03", budget=2500)
    survives_dagster(metadata, "2026-03-01")
    shown = values(metadata)
    assert (shown["weblake/credits"], shown["weblake/budget"], shown["weblake/over_budget"]) == (3000.0, 2500.0, True)
    assert isinstance(metadata["weblake/credits"], dg.FloatMetadataValue)  # which Dagster plots
    assert shown["dagster/partition_row_count"] == 1
    assert shown["weblake/period_open"] is False
    assert shown["weblake/period_start"] == datetime(2026, 3, 1, tzinfo=timezone.utc).timestamp()
    assert len(pd.read_parquet(str(shown["dagster/uri"]))) == 1
    november = values(usage_metadata(YEAR, files, dataset, period="2026-11", budget=None))
    assert november["weblake/period_open"] is True
    assert "weblake/budget" not in november
    unused = values(usage_metadata(YEAR, files, dataset, period="2025-01", budget=None))
    assert (unused["weblake/credits"], unused["dagster/partition_row_count"]) == (0.0, 0)
    assert "dagster/uri" not in unused


def test_usage_of_all_months_is_a_table(local_root: str) -> None:
    dataset = orchestration.open_dataset(local_root)
    files = orchestration.land_report(YEAR, dataset)
    metadata = usage_metadata(YEAR, files, dataset, period=None, budget=None)
    survives_dagster(metadata)
    assert metadata["dagster/row_count"].value == 11
    assert metadata["weblake/credits"].value == 11000.0
    assert str(metadata["dagster/uri"].value).endswith("/usage_periods/report=credits/")
    _, rows = markdown_parts(str(metadata["usage_by_month"].value))
    assert [row[0] for row in rows[1:]] == [f"`2026-{month:02d}`" for month in range(1, 12)]
    assert [row[1] for row in rows[1:]] == [f"{month * 1000:,}" for month in range(1, 12)]
    assert [len(row) for row in rows] == [2] * 12


def test_usage_by_key_is_capped_and_plain(local_root: str) -> None:
    dataset = orchestration.open_dataset(local_root)
    rows = [("2026-11", float(n), f"key {n:02d}") for n in range(30)]
    found = report(*rows, ("2026-11", 99.0, HOSTILE), ("2026-11", 50.0, None), name="credits_by_key")
    files = orchestration.land_report(found, dataset)
    metadata = usage_metadata(found, files, dataset, period="2026-11", budget=None)
    assert metadata["weblake/credits"].value == sum(range(30)) + 149.0
    assert metadata["dagster/partition_row_count"].value == 32
    kinds, shown = markdown_parts(str(metadata["usage_by_key"].value))
    assert kinds <= TABLE
    assert len(shown) == 22
    assert shown[1][0].startswith("`[click]")
    assert shown[2] == ["`(no key)`", "50"]
    assert shown[-1] == ["`12 more`", str(sum(range(12)))]
    unsplit = usage_metadata(
        report(("2026-11", 1.0, None), name="credits_by_key"), [], dataset, period=None, budget=None
    )
    assert unsplit["usage_by_key"].value == "The service did not split the report by key."


def test_numbers_are_formatted_for_reading() -> None:
    assert [number(value) for value in (0, 7.0, 1234567, 1234.5, 0.25, 1e300, 1e-9)] == [
        *("0", "7", "1,234,567", "1,234.50", "0.25", "1e+300", "1e-09")
    ]

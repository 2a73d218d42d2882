"""Tests of the checks, each passing and failing for a real reason, on real loads and reports."""

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checking import Lab, Lake, open_lab, passed, truncate
from landed_loads import REFUSED_URL, landed
from odd_site import odd_site

from dagster_weblake.checks import build_document_checks, build_usage_checks
from dagster_weblake.checks.findings import CHECKS
from dagster_weblake.metadata import definition_metadata, load_metadata
from weblake import orchestration
from weblake.api.models import UsagePeriod
from weblake.errors import InvalidOption
from weblake.jobs.usage_reports import Report
from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

Landing = tuple[orchestration.Dataset, orchestration.LandedLoad]
ALL = ["rows_above_zero", "error_ratio", "duplicate_urls", "schema_matches", "receipt_matches_files"]


def asset_of(load: Callable[[], Landing], partitions: list[str] | None = None) -> dg.AssetsDefinition:
    """An asset `docs` whose materialization tells of a load."""

    @dg.asset(
        name="docs",
        partitions_def=dg.StaticPartitionsDefinition(partitions) if partitions else None,
        metadata=definition_metadata("documents"),
    )
    def docs(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=load_metadata(*load(), partitioned=context.has_partition_key))

    return docs


@pytest.fixture
def lab(local_root: str) -> Iterator[Lab]:
    with open_lab(local_root) as opened:
        yield opened


def documents_of(landing: Landing) -> Path:
    """Return the path of the documents of a load."""
    dataset, load = landing
    path = dataset.storage.local_path(next(f.path for f in load.receipt.files if f.path.startswith("documents/")))
    assert path is not None
    return path


def test_a_valid_load_passes_all_checks(weblake_service: WeblakeService, site, lab: Lab) -> None:
    docs = asset_of(lambda: landed(weblake_service, lab.root, site.pages(4)))
    checks = build_document_checks(docs, max_credits=4)
    found = lab.run(docs, checks)
    assert passed(found) == dict.fromkeys([*ALL, "credits_under_budget"], True)
    assert list(CHECKS) == [*ALL, "credits_under_budget"]
    assert found["rows_above_zero"].metadata["rows"].value == 4
    assert found["error_ratio"].metadata["error_ratio"].value == 0.0
    assert found["credits_under_budget"].description == "The job used 4 credits; 4 may be used."
    started = weblake_service.counts()
    again = lab.check(docs, checks, "rows_above_zero", "schema_matches")
    assert passed(again) == {"rows_above_zero": True, "schema_matches": True}
    assert weblake_service.counts() == started
    assert {key.name for key in build_document_checks(docs).check_keys} == set(ALL)


def test_thresholds_fail_with_their_numbers(weblake_service: WeblakeService, site, lab: Lab) -> None:
    urls = [*site.pages(2), REFUSED_URL]
    docs = asset_of(lambda: landed(weblake_service, lab.root, urls))
    strict = build_document_checks(
        docs, min_rows=3, max_error_ratio=0.3, max_credits=1, severity=dg.AssetCheckSeverity.WARN
    )
    found = lab.run(docs, strict)
    assert passed(found) == dict.fromkeys(ALL, True) | dict.fromkeys(
        ["rows_above_zero", "error_ratio", "credits_under_budget"], False
    )
    assert found["rows_above_zero"].description == "2 of 3 submitted pages are documents; at least 3 must be."
    assert found["rows_above_zero"].severity == dg.AssetCheckSeverity.WARN
    ratio = found["error_ratio"]
    assert (ratio.description or "").startswith("1 of 3 submitted pages (33.3%) failed, were rejected or are missing")
    assert (ratio.metadata["failed"].value, ratio.metadata["error_ratio"].value) == (1, 1 / 3)
    assert found["credits_under_budget"].metadata["credits_used"].value == 2.0
    lenient = build_document_checks(docs, max_error_ratio=0.34, checks=["error_ratio"])
    assert passed(lab.check(docs, lenient)) == {"error_ratio": True}


def test_two_addresses_of_one_page_are_duplicates(weblake_service: WeblakeService, lab: Lab) -> None:
    with odd_site("Odd") as odd:
        urls = [f"{odd}/moved/{n}" for n in range(3)] + [f"{odd}/other"]
        docs = asset_of(lambda: landed(weblake_service, lab.root, urls))
        found = lab.run(docs, build_document_checks(docs))["duplicate_urls"]
    assert not found.passed
    assert found.description == "2 of 4 rows repeat the URL of another row; 0 may."
    assert found.metadata["duplicate_urls"].value == 2
    assert f"| `{odd}/page` | 3 |" in str(found.metadata["first_duplicates"].value)
    assert passed(lab.check(docs, build_document_checks(docs, max_duplicate_urls=2)))["duplicate_urls"]


def lengthen(path: Path) -> None:
    """Another file with the same columns and more rows."""
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)


def widen(path: Path) -> None:
    table = pq.read_table(path)
    more = table.append_column("guessed", pa.array(["x"] * len(table)))
    pq.write_table(more.set_column(7, "status_code", more["status_code"].cast(pa.int64())), path)


def strip(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["url"]), path)


#: What is done to a file, the checks that fail then, and what one of them says.
DAMAGE: list[tuple[Callable[[Path], None], set[str], str]] = [
    (Path.unlink, {"duplicate_urls", "schema_matches", "receipt_matches_files"}, "is gone"),
    (truncate, {"duplicate_urls", "schema_matches", "receipt_matches_files"}, "cannot be read"),
    (lengthen, {"duplicate_urls", "receipt_matches_files"}, "the receipt says"),
    (widen, {"schema_matches", "receipt_matches_files"}, "2 differ (status_code, guessed)"),
    (strip, {"schema_matches", "receipt_matches_files", "duplicate_urls"}, "has no column url"),
]


def test_damage_to_the_file_is_detected(weblake_service: WeblakeService, site, lab: Lab) -> None:
    landing = landed(weblake_service, lab.root, site.pages(3))
    docs = asset_of(lambda: landing)
    checks = build_document_checks(docs)
    assert all(passed(lab.run(docs, checks)).values())
    file = documents_of(landing)
    whole = file.read_bytes()
    for harm, failing, says in DAMAGE:
        file.write_bytes(whole)
        harm(file)
        found = lab.check(docs, checks)
        assert {name for name, each in found.items() if not each.passed} == failing, harm
        if harm is widen:
            differences = str(found["schema_matches"].metadata["differences"].value)
            assert "| `status_code` | `int64` | `int32` |" in differences
            assert "| `guessed` | `string` | `absent` |" in differences
        assert any(says in (found[name].description or "") for name in failing), harm
        assert all(found[name].severity == dg.AssetCheckSeverity.ERROR for name in failing), harm
        assert all("Traceback" not in (each.description or "") for each in found.values()), harm


def test_nothing_has_landed(lab: Lab) -> None:
    @dg.asset
    def docs() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"rows": 1})

    checks = build_document_checks("docs")
    found = lab.check(docs, checks)
    assert passed(found) == dict.fromkeys(ALL, False)
    assert all("has no materialization yet" in (each.description or "") for each in found.values())
    assert passed(lab.run(docs, checks)) == dict.fromkeys(ALL, False)  # one that names no load


def test_a_load_of_another_root_is_reported(weblake_service: WeblakeService, site, lab: Lab, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    docs = asset_of(lambda: landed(weblake_service, other, site.pages(1)))
    found = lab.run(docs, build_document_checks(docs))
    assert passed(found) == dict.fromkeys(ALL, False)
    assert f"It landed in {other}: give `to`." in (found["schema_matches"].description or "")
    assert all(passed(lab.check(docs, build_document_checks(docs, to=other))).values())


def test_the_replacement_of_a_load_is_checked(weblake_service: WeblakeService, site, lab: Lab) -> None:
    docs = asset_of(lambda: landed(weblake_service, lab.root, site.pages(2), slot="docs|a"))
    checks = build_document_checks(docs)
    lab.run(docs, checks)
    _, second = landed(weblake_service, lab.root, site.pages(5), key="2", slot="docs|a")
    _, third = landed(weblake_service, lab.root, site.pages(3), key="3", slot="docs|a")
    found = lab.check(docs, checks)
    assert all(passed(found).values())
    assert found["rows_above_zero"].metadata["rows"].value == 3
    assert found["rows_above_zero"].metadata["load_id"].value == third.receipt.load_id
    assert second.receipt.load_id != third.receipt.load_id


def test_a_run_checks_its_own_load_also_if_another_run_has_landed_since(
    weblake_service: WeblakeService, site, lab: Lab
) -> None:
    good = asset_of(lambda: landed(weblake_service, lab.root, site.pages(4)), ["a"])

    @dg.asset(name="docs", partitions_def=good.partitions_def, metadata=definition_metadata("documents"))
    def docs() -> Iterator[dg.MaterializeResult]:
        load = landed(weblake_service, lab.root, site.pages(1))
        yield dg.MaterializeResult(metadata=load_metadata(*load, partitioned=True))
        # The other run's event follows this one's, before this run's checks.
        dg.materialize([good], instance=lab.instance, partition_key="a")

    checks = build_document_checks(docs, min_rows=2, checks=["rows_above_zero"])
    found = lab.run(docs, checks, partition="a")["rows_above_zero"]
    assert (found.passed, found.metadata["rows"].value) == (False, 1)
    assert lab.check(docs, checks)["rows_above_zero"].passed


def test_a_run_over_many_partitions_checks_each(weblake_service: WeblakeService, site, lab: Lab) -> None:
    counts = {"a": 3, "b": 1, "c": 2}

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(list(counts)), backfill_policy=dg.BackfillPolicy.single_run()
    )
    def docs(context: dg.AssetExecutionContext) -> None:
        for key in context.partition_keys:
            load = landed(weblake_service, lab.root, site.pages(counts[key]), key=key)
            context.add_asset_metadata(load_metadata(*load, partitioned=True), partition_key=key)

    checks = build_document_checks(docs, min_rows=2, checks=["rows_above_zero", "error_ratio"])
    done = dg.materialize(
        [docs, checks],
        instance=lab.instance,
        resources={"weblake": Lake(root=lab.root)},
        tags={"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"},
    )
    found = {each.check_name: each for each in done.get_asset_check_evaluations()}
    rows, ratio = found["rows_above_zero"], found["error_ratio"]
    assert (rows.passed, rows.metadata["partition"].value, rows.metadata["loads"].value) == (False, "b", 3)
    assert (ratio.passed, ratio.metadata["loads"].value) == (True, 3)


def test_an_asset_is_named_in_any_way(lab: Lab) -> None:
    key = dg.AssetKey(["web", "docs"])
    job = dg.AssetSpec("docs_job", metadata=definition_metadata("documents", starts="docs"))
    spec = dg.AssetSpec(key, metadata=definition_metadata("documents", to=lab.root))

    @dg.multi_asset(specs=[job, spec])
    def both() -> Iterator[dg.MaterializeResult]:
        yield dg.MaterializeResult("docs_job")

    for each in (spec, key, ["web", "docs"], [both], both):
        (checks,) = {check.asset_key for check in build_document_checks(each).check_keys}
        assert checks == key
    with pytest.raises(InvalidOption, match=r"Several assets could be meant: web/docs, docs_job|docs_job, web/docs"):
        build_usage_checks(both, budget=1)


@pytest.mark.parametrize(
    "given",
    [
        {"max_duplicate_urls": -1},
        {"max_error_ratio": 1.1},
        {"max_credits": float("nan")},
        {"checks": []},
        {"checks": ["credits_under_budget"]},
    ],
)
def test_invalid_thresholds_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        build_document_checks("docs", **given)  # type: ignore[arg-type]


def usage_asset() -> dg.AssetsDefinition:
    @dg.asset(metadata=definition_metadata("usage_periods", report="credits", budget=2))
    def usage() -> None:
        pass

    return usage


def test_usage_is_compared_with_its_budget(weblake_service: WeblakeService, site, lab: Lab) -> None:
    usage = usage_asset()
    name = "usage_under_budget"
    early = lab.check(usage, build_usage_checks(usage))[name]
    assert (early.passed, early.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "has landed yet" in (early.description or "")
    dataset, _ = landed(weblake_service, lab.root, site.pages(3))
    with weblake_service.client() as client:
        files = orchestration.land_report(client.run(orchestration.report("credits", client.retry)), dataset)
    found = lab.run(usage, build_usage_checks(usage))[name]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    month = f"{datetime.now(timezone.utc):%Y-%m}"
    assert (found.description or "").startswith(f"{month} has used 3 of 2 credits so far, reported {month}")
    assert (found.metadata["credits"].value, found.metadata["left"].value) == (3.0, -1.0)
    assert lab.run(usage, build_usage_checks(usage, budget=3))[name].passed
    path = dataset.storage.local_path(files[0].path)
    assert path is not None
    truncate(path)
    broken = lab.run(usage, build_usage_checks(usage, budget=3))[name]
    assert not broken.passed
    assert "cannot be read" in (broken.description or "")


def test_the_budget_is_compared_with_the_month_of_the_partition(lab: Lab) -> None:
    """A run of October on November 1 looks at October; a run over several months fails if one is over the budget."""
    dataset, now = orchestration.open_dataset(lab.root), datetime.now(timezone.utc)
    used = {"2026-01": 10.0, "2026-02": 300.0, "2026-03": 20.0, f"{now:%Y-%m}": 40.0}
    rows = tuple(UsagePeriod(start_date=f"{month}-01T00:00:00Z", total_credits=n) for month, n in used.items())
    orchestration.land_report(Report("credits", rows, now), dataset)

    @dg.asset(
        partitions_def=dg.MonthlyPartitionsDefinition("2025-12-01", end_offset=1),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata=definition_metadata("usage_periods", report="credits", budget=100),
    )
    def usage() -> None:
        pass

    checks = build_usage_checks(usage)

    def looked_at(partition: str | None = None, **tags: str) -> tuple[object, bool, object]:
        resources = {"weblake": Lake(root=lab.root)}
        done = dg.materialize(
            [usage, checks], instance=lab.instance, resources=resources, partition_key=partition, tags=tags
        )
        (found,) = done.get_asset_check_evaluations()
        return found.metadata["period"].value, found.passed, found.severity.value

    assert looked_at("2026-01-01") == ("2026-01", True, "ERROR")
    assert looked_at("2026-02-01") == ("2026-02", False, "ERROR")
    assert looked_at("2025-12-01") == ("2025-12", False, "WARN")
    span = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
    for first, last, month, is_under in (
        ("2025-12-01", "2026-03-01", "2026-02", False),
        ("2025-12-01", "2026-01-01", "2026-01", True),
    ):
        assert looked_at(**dict(zip(span, (first, last), strict=True))) == (month, is_under, "ERROR")
    alone = lab.check(usage, checks)["usage_under_budget"]
    assert (alone.metadata["period"].value, alone.passed) == (f"{now:%Y-%m}", True)

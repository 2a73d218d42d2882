"""Tests of the check of a month's budget, on reports that really landed."""

from collections.abc import Iterator
from datetime import datetime, timezone

import dagster as dg
import pytest
from checking import Lab, Lake, open_lab, truncate
from landed_loads import landed

from dagster_weblake.checks import build_usage_checks
from dagster_weblake.metadata import definition_metadata
from weblake import orchestration
from weblake.api.models import UsagePeriod
from weblake.errors import InvalidOption
from weblake.jobs.usage_reports import Report
from weblake.testing import WeblakeService


@pytest.fixture
def lab(local_root: str) -> Iterator[Lab]:
    with open_lab(local_root) as opened:
        yield opened


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


def test_usage_by_key_is_summed(lab: Lab) -> None:
    dataset, now = orchestration.open_dataset(lab.root), datetime.now(timezone.utc)
    start = f"{now:%Y-%m}-01T00:00:00Z"
    rows = tuple(UsagePeriod(start_date=start, api_key=key, total_tokens=40.0) for key in ("a", "b"))
    orchestration.land_report(Report("tokens_by_key", rows, now), dataset)
    usage = usage_asset()
    checks = build_usage_checks(usage, budget=100, report="tokens_by_key")
    assert lab.run(usage, checks)["usage_under_budget"].metadata["tokens"].value == 80.0
    with pytest.raises(InvalidOption, match="no usage report"):
        build_usage_checks(usage, budget=1, report="euros")
    with pytest.raises(InvalidOption, match="budget"):
        build_usage_checks("usage")


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
    for first, last, month, passed in (
        ("2025-12-01", "2026-03-01", "2026-02", False),
        ("2025-12-01", "2026-01-01", "2026-01", True),
    ):
        assert looked_at(**dict(zip(span, (first, last), strict=True))) == (month, passed, "ERROR")
    alone = lab.check(usage, checks)["usage_under_budget"]
    assert (alone.metadata["period"].value, alone.passed) == (f"{now:%Y-%m}", True)

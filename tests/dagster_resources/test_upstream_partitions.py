"""Tests of lists of URLs that an asset gets from other partitions than its own."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from gated_site import GatedSite
from in_process import Bench

import weblake
from dagster_weblake import BatchScrapeRequest, build_weblake_assets, weblake_assets


class Lists(dg.IOManager):
    """Keeps values by partition; an input of several partitions gets a mapping, as from Dagster's own IO managers."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        self._values[context.partition_key] = obj

    def load_input(self, context: dg.InputContext) -> object:
        found = {key: self._values[key] for key in context.asset_partition_keys}
        return found if len(found) > 1 else next(iter(found.values()))


DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-29")
WEEKS = dg.WeeklyPartitionsDefinition("2026-11-01", end_date="2026-11-29")
YESTERDAY = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
ONE_RUN = dg.BackfillPolicy.single_run()
FORMS = {
    # A week has the key of its first day.
    "one week": (WEEKS, None, ("2026-11-08", "2026-11-08"), {"2026-11-08": [8, 9, 10, 11, 12, 13, 14]}),
    "two weeks": (
        WEEKS,
        None,
        ("2026-11-01", "2026-11-08"),
        {"2026-11-01": [1, 2, 3, 4, 5, 6, 7], "2026-11-08": [8, 9, 10, 11, 12, 13, 14]},
    ),
    "yesterday": (DAYS, YESTERDAY, ("2026-11-09", "2026-11-10"), {"2026-11-09": [8], "2026-11-10": [9]}),
    "the same days": (DAYS, None, ("2026-11-09", "2026-11-10"), {"2026-11-09": [9], "2026-11-10": [10]}),
    "all days": (None, None, None, {None: list(range(1, 15))}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["factory", "decorator"])
def test_each_partition_scrapes_the_urls_of_its_own_upstream_partitions(
    bench: Bench, site: GatedSite, form: str, how: str
) -> None:
    partitions_def, mapping, between, wanted = FORMS[form]

    @dg.asset(partitions_def=DAYS if partitions_def else dg.DailyPartitionsDefinition("2026-11-01", "2026-11-15"))
    def lists() -> None: ...

    more: dict[str, Any] = {"partitions_def": partitions_def, "backfill_policy": ONE_RUN if partitions_def else None}
    if how == "factory":
        deps = [dg.AssetDep("lists", partition_mapping=mapping)]
        pages = build_weblake_assets("pages", BatchScrapeRequest(urls=dg.AssetKey("lists")), deps=deps, **more)
    else:

        @weblake_assets("pages", ins={"given": dg.AssetIn("lists", partition_mapping=mapping)}, **more)
        def pages(given: object) -> BatchScrapeRequest:
            return BatchScrapeRequest(urls=given)

    kept = Lists()
    kept._values = {f"2026-11-{day:02}": [f"{site.url}/page/{day}"] for day in range(1, 15)}
    run = bench.run([lists, *pages], "pages", partitions=between, resources={"io_manager": kept})
    assert run.success, run.failure()
    for partition, days in wanted.items():
        load_id = run.metadata("pages", partition)["weblake/load_id"]
        landed = weblake.read(str(bench.root), loads=[load_id], columns=["source_url"]).to_table()
        assert sorted(int(url.rpartition("/")[2]) for url in landed["source_url"].to_pylist()) == days
    assert bench.started == len(wanted)


@pytest.mark.parametrize("how", ["factory", "decorator"])
def test_a_partition_without_upstream_partitions_does_not_scrape_the_urls_of_another_one(
    bench: Bench, site: GatedSite, how: str
) -> None:
    """The first day has no yesterday, so that the input of the first two days is the value of one partition."""

    @dg.asset(partitions_def=DAYS)
    def lists() -> None: ...

    yesterday = dg.TimeWindowPartitionMapping(-1, -1, allow_nonexistent_upstream_partitions=True)
    more: dict[str, Any] = {"partitions_def": DAYS, "backfill_policy": ONE_RUN, "retry_policy": None}
    if how == "factory":
        deps = [dg.AssetDep("lists", partition_mapping=yesterday)]
        pages = build_weblake_assets("pages", BatchScrapeRequest(urls=dg.AssetKey("lists")), deps=deps, **more)
    else:

        @weblake_assets("pages", ins={"given": dg.AssetIn("lists", partition_mapping=yesterday)}, **more)
        def pages(given: object) -> BatchScrapeRequest:
            return BatchScrapeRequest(urls=given)

    kept = Lists()
    kept._values = {"2026-11-01": site.pages(1)}
    run = bench.run([lists, *pages], "pages", partitions=("2026-11-01", "2026-11-02"), resources={"io_manager": kept})
    assert "has no value for the partition '2026-11-01'" in str(run.failure().description)
    assert (bench.started, bench.partitions("pages")) == (1, ["2026-11-02"])

"""Tests of lists of URLs: their forms, and those that an asset gets from other partitions than its own."""

from __future__ import annotations

from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from gated_site import GatedSite
from in_process import Bench

import weblake
from dagster_weblake import (
    BatchScrapeRequest,
    build_weblake_assets,
    weblake_assets,
)
from dagster_weblake.url_inputs import urls_of
from weblake.errors import InvalidOption

pytestmark = pytest.mark.system

A, B = "https://a.example/", "https://b.example/"
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-29")
WEEKS = dg.WeeklyPartitionsDefinition("2026-11-01", end_date="2026-11-29")
YESTERDAY = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
ONE_RUN = dg.BackfillPolicy.single_run()
FORMS = {
    # A week has the key of its first day.
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


@pytest.mark.parametrize(
    "form",
    [
        [A, None, float("nan"), " ", B],
        (url for url in (A, B)),
        {A: 1, B: 2}.keys(),
        np.array([A, B]),
        pa.array([A, B]).dictionary_encode(),
        pa.table({"url": [A, B]}).to_reader(),
        pa.record_batch({"link": [A, B]}),
        pd.Series([A, pd.NA, B]),
        pd.Index([A, B]),
        pd.DataFrame({0: [A, B]}),
        pd.DataFrame({"url": pd.array([A, None, B], dtype="string"), 1: [1, 2, 3]}),
        pl.Series([A, None, B]),
        pl.LazyFrame({"url": [A, B], "n": [1, 2]}),
    ],
    ids=lambda form: type(form).__name__,
)
def test_every_form_of_urls_gives_the_same_urls(form: object) -> None:
    found = urls_of(form)
    assert found == [A, B]
    assert {type(url) for url in found} == {str}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ([], "no URL"),
        ([None, "  "], "no URL"),
        ([A, 7], "Entry 1 of the URLs is of type int"),
        (None, "came as NoneType"),
        (7, "came as int"),
        ({"url": [A]}, "came as dict"),
        (np.array(A), "came as ndarray"),
        (pd.DataFrame({"a": [A], "b": [B]}), "no column 'url'"),
        (pd.DataFrame([[A, B]], columns=["url", "url"]), "several columns 'url'"),
        (pa.Table.from_arrays([pa.array([A])] * 2, ["url", "url"]), "several columns 'url'"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_values_without_urls_are_refused(form: object, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        urls_of(form)


def test_a_column_whose_name_is_a_number_can_be_named() -> None:
    assert urls_of(pd.DataFrame({0: [A], 1: [B]}), "1") == [B]


class Lists(dg.IOManager):
    """Keeps values by partition; an input of several partitions gets a mapping, as from Dagster's own IO managers."""

    def __init__(self) -> None:
        self._values: dict[str, object] = {}

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        self._values[context.partition_key] = obj

    def load_input(self, context: dg.InputContext) -> object:
        found = {key: self._values[key] for key in context.asset_partition_keys}
        return found if len(found) > 1 else next(iter(found.values()))


@pytest.mark.parametrize("form", FORMS)
def test_each_partition_scrapes_the_urls_of_its_own_upstream_partitions(
    bench: Bench, site: GatedSite, form: str
) -> None:
    partitions_def, mapping, between, wanted = FORMS[form]

    @dg.asset(partitions_def=DAYS if partitions_def else dg.DailyPartitionsDefinition("2026-11-01", "2026-11-15"))
    def lists() -> None: ...

    more: dict[str, Any] = {"partitions_def": partitions_def, "backfill_policy": ONE_RUN if partitions_def else None}

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


def test_a_partition_without_upstream_partitions_does_not_scrape_the_urls_of_another_one(
    bench: Bench, site: GatedSite
) -> None:
    """The first day has no yesterday, so that the input of the first two days is the value of one partition."""

    @dg.asset(partitions_def=DAYS)
    def lists() -> None: ...

    yesterday = dg.TimeWindowPartitionMapping(-1, -1, allow_nonexistent_upstream_partitions=True)
    deps = [dg.AssetDep("lists", partition_mapping=yesterday)]
    more: dict[str, Any] = {"partitions_def": DAYS, "backfill_policy": ONE_RUN, "retry_policy": None, "deps": deps}
    pages = build_weblake_assets("pages", BatchScrapeRequest(urls=dg.AssetKey("lists")), **more)

    kept = Lists()
    kept._values = {"2026-11-01": site.pages(1)}
    run = bench.run([lists, *pages], "pages", partitions=("2026-11-01", "2026-11-02"), resources={"io_manager": kept})
    assert "has no value for the partition '2026-11-01'" in str(run.failure().description)
    assert (bench.started, bench.partitions("pages")) == (1, ["2026-11-02"])

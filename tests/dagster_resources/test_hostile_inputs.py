"""Tests of inputs from people and upstream assets: unusual types, unusual texts, and secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from dagster_weblake import BatchScrapeRequest, CrawlRequest, build_weblake_assets, build_weblake_specs, secret_config
from dagster_weblake.identity import Lineage
from dagster_weblake.templates import Part, filled
from dagster_weblake.url_inputs import urls_of
from weblake.errors import AskPerson, InvalidOption

A, B = "https://a.example/", "https://b.example/"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(
    "form",
    [
        [A, None, float("nan"), " ", B],
        (url for url in (A, B)),
        {A: 1, B: 2}.keys(),
        np.array([A, B]),
        list(np.array([A, B])),
        pa.array([A, None, B]),
        pa.chunked_array([[A], [B]]),
        pa.array([A, B]).dictionary_encode(),
        pa.table({"url": [A, B]}).to_reader(),
        pa.record_batch({"link": [A, B]}),
        pd.Series([A, None, B]),
        pd.Series([A, None, B], dtype="string"),
        pd.Series([A, None, B], dtype="category"),
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
        ([A, b"https://b.example/"], "Entry 1 of the URLs is of type bytes"),
        ([A, 7], "Entry 1 of the URLs is of type int"),
        (b"https://a.example/", "of type int"),
        (None, "came as NoneType"),
        (7, "came as int"),
        ({"url": [A]}, "came as dict"),
        (np.array(A), "came as ndarray"),
        (np.array([[A], [B]]), "of type list"),
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


@pytest.mark.system
def test_a_million_urls_are_read_in_seconds() -> None:
    assert len(urls_of(pa.table({"url": [A] * 1_000_000}))) == 1_000_000


def test_an_upstream_asset_that_was_not_loaded_is_named() -> None:
    with pytest.raises(InvalidOption, match="The URLs of lists/today were not loaded"):
        BatchScrapeRequest(urls=dg.AssetKey(["lists", "today"])).load_request(Part())


@pytest.mark.parametrize("name", ["url", "urls", "file", "naming", "terms", "idempotency_key", 1])
def test_a_field_of_the_request_is_not_an_option(name: object) -> None:
    with pytest.raises(InvalidOption, match="is not an option"):
        BatchScrapeRequest(urls=[A], options={name: "x"}).load_request(Part())  # type: ignore[misc]


def test_an_iterator_of_urls_is_read_once_for_all_partitions() -> None:
    def once() -> Iterator[str]:
        yield f"{A}{{partition_key}}"

    for urls in (once(), pa.table({"url": [f"{A}{{partition_key}}"]}).to_reader()):
        request = BatchScrapeRequest(urls=urls)
        assert [request.load_request(Part(key)).submitted for key in "ab"] == [(f"{A}a",), (f"{A}b",)]


def test_each_partition_gets_the_urls_of_its_upstream_partition() -> None:
    request = BatchScrapeRequest(urls={"a": [A], "b": pd.DataFrame({"url": [B]})})
    assert [request.load_request(Part(key)).submitted for key in "ab"] == [(A,), (B,)]
    with pytest.raises(InvalidOption, match="came as dict"):
        request.load_request(Part("c"))


def test_environment_variables_are_resolved_wherever_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE", A)
    monkeypatch.setenv("MOST", "7")
    assert BatchScrapeRequest(urls=[dg.EnvVar("SITE"), B]).load_request(Part()).submitted == (A, B)
    assert filled({"limit": dg.EnvVar.int("MOST"), "deep": [(dg.EnvVar("SITE"),)]}, Part()) == {
        "limit": 7,
        "deep": [(A,)],
    }
    assert secret_config.resolve(secret_config.hide(dg.EnvVar.int("MOST"))) == 7
    crawl = CrawlRequest(url=dg.EnvVar("SITE"), options={"limit": dg.EnvVar.int("MOST")})
    assert crawl.load_request(Part()).first_target == A
    (asset,) = build_weblake_assets("docs", crawl)
    assert "SITE" in str(asset.descriptions_by_key[asset.key])
    monkeypatch.setenv("MOST", "test-secret")
    with pytest.raises(AskPerson, match="MOST is not a number") as caught:
        filled([dg.EnvVar.int("MOST")], Part())
    assert "test-secret" not in str(caught.value)


@for_all(TEXTS, TEXTS, TEXTS)
def test_a_partition_key_is_inserted_once_and_unchanged(key: str, before: str, after: str) -> None:
    before, after = (text.replace("{", "") for text in (before, after))
    assert filled(f"{before}{{partition_key}}{after}", Part(key)) == before + key + after
    assert filled([{key: before}], Part(key)) == [{key: before}]  # names are nobody's template
    for url in (f"{A}{{partition_key}}", f"{A}%7Bpartition_key%7D", f"{A}{{x}}/%%/{{}}"):
        load_request = BatchScrapeRequest(urls=[url]).load_request(Part("{partition_key}"))
        assert load_request.submitted == (url,)


@for_all(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS, st.lists))
def test_hidden_values_are_restored_unchanged(value: object) -> None:
    stands_for = secret_config.hide(value)
    assert repr(secret_config.reveal(stands_for)) == repr(value)
    assert secret_config.hide(stands_for) == stands_for
    text = str(value)
    assert len(text) < 8 or text not in str(stands_for)


@pytest.mark.parametrize("pair", [(True, 1), (0, False), (1, 1.0), ({"x": True}, {"x": 1})])
def test_equal_settings_of_different_types_are_distinguished(pair: tuple[object, object]) -> None:
    found = [secret_config.resolve(each) for each in [secret_config.hide(each) for each in pair]]
    assert repr(found) == repr(list(pair))


@settings(max_examples=30)
@for_all(st.lists(st.sampled_from(["retry", "failure", "assets", "all"]), max_size=6))
def test_only_a_re_execution_of_all_steps_is_a_new_generation(chain: list[str]) -> None:
    tags = {
        "retry": {"dagster/retry_number": "1"},
        "failure": {"dagster/is_resume_retry": "true"},
        "assets": {"dagster/is_asset_resume_retry": "true"},
        "all": {},
    }
    runs: dict[str, Any] = {"0": SimpleNamespace(run_id="0", root_run_id=None, parent_run_id=None, tags={})}
    asked = "0"
    for n, how in enumerate(chain, 1):
        runs[str(n)] = SimpleNamespace(run_id=str(n), root_run_id="0", parent_run_id=str(n - 1), tags=tags[how])
        asked = str(n) if how == "all" else asked
    instance: Any = SimpleNamespace(get_run_by_id=runs.get)
    task = Lineage(instance, runs[str(len(chain))]).task_of(dg.AssetKey("docs"), None, dg.AssetKey("docs"))
    assert (task.run, task.occasion) == ("0", asked)


def test_equal_names_and_unusual_partitions_give_distinct_loads() -> None:
    run: Any = SimpleNamespace(run_id="r", root_run_id=None, parent_run_id=None, tags={})
    instance: Any = None
    keys = [["docs"], ["eu", "docs"], ["us", "docs"], ["eu", "us", "docs"], ["eu", "docs_job"]]
    parts = [None, "", "partition", "docs", "a|b", "a", "None", '["a"]']
    lineage = Lineage(instance, run)
    tasks = [lineage.task_of(dg.AssetKey(key), part, dg.AssetKey(key)) for key in keys for part in parts]
    assert len({task.load_id(0) for task in tasks}) == len(tasks)
    assert len({task.slot(0, None).name for task in tasks}) == len(tasks)


_VERSION = """
import dagster as dg
from dagster_weblake import BatchScrapeRequest, CrawlRequest, build_weblake_specs
crawl = CrawlRequest(url="https://a.example/", options={"limit": 3, "scrape_options": {"headers": {"b": "1", "a": "2"}},
    "include_paths": ["x", "y"]}, partition={"day": "{partition_key}"}, max_credits=4)
batch = BatchScrapeRequest(urls=(f"https://a.example/{n}" for n in range(9)), options={"formats": ["markdown"]})
print([build_weblake_specs("docs", each)[0].code_version for each in (crawl, batch)])
"""


@pytest.mark.system
def test_the_code_version_is_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _VERSION],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_url_in_the_catalog_has_no_user_info_and_no_query() -> None:
    described = [
        build_weblake_specs("docs", CrawlRequest(url=url))[0].description
        for url in (
            "https://me:test-secret@a.example/x@y?token=test-secret#test-secret",
            "https://a.example/#test-secret",
            "https://me:test-secret@a.example//x@y",
        )
    ]
    assert described == [f"Pages of a crawl of {address}." for address in (f"{A}x@y", A, f"{A}/x@y")]
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="url has the scheme 'me'") as caught:
        build_weblake_specs("docs", CrawlRequest(url="me:test-secret@a.example"))
    assert "test-secret" not in str(caught.value)


def test_every_attribute_of_a_spec_is_kept() -> None:
    spec = dg.AssetSpec(
        ["web", "eu", "docs"],
        deps=["list"],
        description="Mine.",
        metadata={"mine": 1, "dagster/table_name": "mine.docs"},
        skippable=True,
        group_name="web",
        code_version="7",
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=1)),
        automation_condition=dg.AutomationCondition.eager(),
        owners=["me@example.com", "team:web"],
        tags={"tier": "1"},
        kinds={"python"},
    )
    (data,) = build_weblake_specs(spec, CrawlRequest(url=A))
    for name in ("key", "deps", "description", "skippable", "group_name", "code_version", "owners"):
        assert getattr(data, name) == getattr(spec, name), name
    assert (data.freshness_policy, data.automation_condition) == (spec.freshness_policy, spec.automation_condition)
    assert (data.metadata["mine"], data.metadata["dagster/table_name"]) == (1, "mine.docs")
    assert data.tags["tier"] == "1"
    assert data.kinds == {"python", "weblake", "parquet"}
    job, data = build_weblake_specs(spec, CrawlRequest(url=A), wait="sensor")
    assert job.key == dg.AssetKey(["web", "eu", "docs_job"])
    assert (job.deps, [dep.asset_key for dep in data.deps]) == (list(spec.deps), [job.key])
    assert (job.owners, job.group_name, job.tags["tier"]) == (spec.owners, "web", "1")

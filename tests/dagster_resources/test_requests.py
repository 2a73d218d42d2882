"""Tests of requests: their check when definitions load, and the values that only a step knows."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from dagster_weblake import (
    BatchScrapeRequest,
    CrawlRequest,
    JobRequest,
    ParseRequest,
    ScrapeRequest,
    build_weblake_assets,
    build_weblake_specs,
    weblake_assets,
)
from dagster_weblake.requests import LandingRequest, Request
from dagster_weblake.templates import Part, filled
from weblake.errors import AskPerson, InvalidOption

URL = "https://docs.example.com/"
A, B = "https://a.example/", "https://b.example/"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a definition opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (CrawlRequest(url=URL, options={"limitt": 3}), "'limitt' is not an option here. Did you mean `limit`"),  # type: ignore[typeddict-unknown-key]
        (CrawlRequest(url="ftp://a.example/"), "url has the scheme 'ftp'"),
        (CrawlRequest(url=URL, options={"url": URL}), "'url' is not an option"),  # type: ignore[typeddict-unknown-key]
        (CrawlRequest(url=URL, options=None), "options is of type NoneType"),  # type: ignore[arg-type]
        (CrawlRequest(url=7), "url is of type int"),  # type: ignore[arg-type]
        (BatchScrapeRequest(urls=[]), "no URL"),
        (BatchScrapeRequest(urls=[URL, 7]), "Entry 1 of the URLs is of type int"),
        (ParseRequest(file="a.pdf", options={"format": ["markdown"]}), "'format' is not an option"),  # type: ignore[typeddict-unknown-key]
        (JobRequest(kind="cwarl", job_id="x"), "cwarl"),
        (CrawlRequest(url=URL, fail_ratio=2), "fail_ratio is 2"),
        (CrawlRequest(url=URL, max_credits="5"), "max_credits is of type str"),  # type: ignore[arg-type]
        (CrawlRequest(url=URL, deadline="6h"), "deadline is of type str. Give a datetime.timedelta"),  # type: ignore[arg-type]
        (CrawlRequest(url=URL, poll_interval=0), "poll_interval is 0"),
        (ScrapeRequest(url=URL, partition="day"), "partition is of type str. Give a dict"),  # type: ignore[arg-type]
        (ParseRequest(file=None), "file is None. Give the path of a file"),  # type: ignore[arg-type]
        ({"url": URL}, "request is of type dict. Give one of CrawlRequest"),
    ],
)
def test_a_wrong_request_is_an_error_of_its_definition(request_: Any, message: str) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError) as caught:
        build_weblake_assets(["web", "docs"], request_)
    assert str(caught.value).startswith("Asset 'web/docs': ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (BatchScrapeRequest(urls=dg.AssetKey(["lists", "today"])), "The URLs of lists/today were not loaded"),
        (BatchScrapeRequest(urls=[URL], options={"urls": "x"}), "is not an option"),  # type: ignore[typeddict-unknown-key]
        (CrawlRequest(url=URL, partition="day"), "partition is of type str"),  # type: ignore[arg-type]
        (ParseRequest(file=None), "file is None"),  # type: ignore[arg-type]
        (JobRequest(kind="batch", job_id=5), "job_id is of type int"),  # type: ignore[arg-type]
        (BatchScrapeRequest(urls=" "), "`urls` is an empty text"),
    ],
)
def test_a_request_that_a_function_returns_is_checked_in_the_step(request_: LandingRequest, message: str) -> None:
    """Without an error of its own, the step would be retried."""
    with pytest.raises(InvalidOption, match=message):
        request_.load_request(Part())


@pytest.mark.parametrize(
    "request_",
    [
        CrawlRequest(url="https://{partition_key}/", options={"include_paths": ["{partition_key}/.*"]}),
        CrawlRequest(url=dg.EnvVar("NOT_SET_SITE"), options={"limit": dg.EnvVar.int("NOT_SET_LIMIT")}),  # type: ignore[typeddict-item]
        ScrapeRequest(url=URL, options={"location": {"country": "{partition_key}"}}),
        ScrapeRequest(url=URL, options={"headers": {"cookie": dg.EnvVar("NOT_SET_COOKIE")}}),
        BatchScrapeRequest(urls="s3://no-such-bucket/urls.csv"),
        BatchScrapeRequest(urls=dg.AssetKey("upstream")),
        BatchScrapeRequest(urls=[f"{URL}{{partition_key}}", dg.EnvVar("NOT_SET_SITE")]),
        ParseRequest(file="{partition_key}.pdf"),
        JobRequest(),
    ],
)
def test_values_known_only_in_the_step_are_checked_there(request_: Request) -> None:
    assert build_weblake_assets("docs", request_, partitions_def=dg.StaticPartitionsDefinition(["de"]))


def test_the_terms_of_a_decorated_asset_and_its_wait_are_checked() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"Asset 'docs': .*fail_ratio"):
        weblake_assets("docs", wait="sensor", terms=LandingRequest(fail_ratio=-1))(lambda: CrawlRequest(url=URL))
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Asset 'docs': wait is 'sensro'"):
        weblake_assets("docs", wait="sensro")(lambda: CrawlRequest(url=URL))  # type: ignore[arg-type]
    terms = LandingRequest(deadline=timedelta(hours=1))
    assert weblake_assets("docs", wait="sensor", terms=terms)(lambda: CrawlRequest(url=URL))


def test_an_iterator_of_urls_is_read_once_for_all_partitions() -> None:
    def once() -> Iterator[str]:
        yield f"{A}{{partition_key}}"

    for urls in (once(), pa.table({"url": [f"{A}{{partition_key}}"]}).to_reader()):
        request = BatchScrapeRequest(urls=urls)
        assert [request.load_request(Part(key)).submitted for key in "ab"] == [(f"{A}a",), (f"{A}b",)]


def test_environment_variables_are_resolved_wherever_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE", A)
    monkeypatch.setenv("MOST", "7")
    assert BatchScrapeRequest(urls=[dg.EnvVar("SITE"), B]).load_request(Part()).submitted == (A, B)
    assert filled({"limit": dg.EnvVar.int("MOST"), "deep": [(dg.EnvVar("SITE"),)]}, Part()) == {
        "limit": 7,
        "deep": [(A,)],
    }
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
    assert filled([{key: before}], Part(key)) == [{key: before}]  # a key is no template
    for url in (f"{A}{{partition_key}}", f"{A}%7Bpartition_key%7D", f"{A}{{x}}/%%/{{}}"):
        load_request = BatchScrapeRequest(urls=[url]).load_request(Part("{partition_key}"))
        assert load_request.submitted == (url,)


def test_the_code_version_follows_the_request() -> None:
    def version(**given: object) -> str | None:
        request = CrawlRequest(**{"url": "https://a.example/", "options": {"limit": 3}} | given)  # type: ignore[arg-type]
        return build_weblake_specs("docs", request)[0].code_version

    assert version() == version(max_credits=5, allow_partial=True)
    assert len({version(), version(url="https://b.example/"), version(options={"limit": 4})}) == 3
    own = dg.AssetSpec("docs", code_version="mine")
    assert build_weblake_specs(own, CrawlRequest(url="https://a.example/"))[0].code_version == "mine"
    lists = [BatchScrapeRequest(urls=dg.AssetKey(name)) for name in ("one", "two")]
    assert len({build_weblake_specs("docs", request)[0].code_version for request in lists}) == 1

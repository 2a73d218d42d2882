"""Tests that requests are checked when definitions load, with errors that name the asset and the option."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_weblake import (
    BatchScrapeRequest,
    CrawlRequest,
    JobRequest,
    ParseRequest,
    ScrapeRequest,
    UsageRequest,
    WeblakeResource,
    build_table_asset,
    build_weblake_assets,
    weblake_assets,
)
from dagster_weblake.requests import LandingRequest, Request
from dagster_weblake.templates import Part
from weblake.errors import InvalidOption

URL = "https://docs.example.com/"


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
        (CrawlRequest(url=URL, options={"maxDiscoveryDepth": 1}), "maxDiscoveryDepth"),  # type: ignore[typeddict-unknown-key]
        (CrawlRequest(url=URL, options={"limit": "3"}), "limit"),  # type: ignore[typeddict-item]
        (CrawlRequest(url="ftp://a.example/"), "url has the scheme 'ftp'"),
        (CrawlRequest(url=URL, options={"url": URL}), "'url' is not an option"),  # type: ignore[typeddict-unknown-key]
        (CrawlRequest(url=URL, options=None), "options is of type NoneType"),  # type: ignore[arg-type]
        (CrawlRequest(url=7), "url is of type int"),  # type: ignore[arg-type]
        (ScrapeRequest(url="", options={}), "url is empty"),
        (ScrapeRequest(url=URL, options={"formats": ["markdwn"]}), "markdwn"),  # type: ignore[list-item]
        (BatchScrapeRequest(urls=[URL], options={"max_age": -1}), "max_age"),
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
        (JobRequest(kind="batch", job_id=5), "job_id is of type int"),  # type: ignore[arg-type]
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
        (ScrapeRequest(url=URL, options="x"), "options is of type str"),  # type: ignore[arg-type]
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


def test_a_root_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="`to` has a user name or password") as caught:
        build_weblake_assets("docs", CrawlRequest(url=URL), to="s3://test-user:test-secret@lake/web")
    assert "test-secret" not in str(caught.value)
    assert build_weblake_assets("docs", CrawlRequest(url=URL), to="abfs://container@account.dfs.example.com/web")


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


def test_values_known_only_in_the_step_hide_no_other_error() -> None:
    options: Any = {"headers": {"cookie": dg.EnvVar("NOT_SET_COOKIE")}, "formatss": ["markdown"]}
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'formatss' is not an option here"):
        build_weblake_assets("docs", ScrapeRequest(url=URL, options=options))


def test_the_terms_of_a_decorated_asset_and_its_wait_are_checked() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"Asset 'docs': .*fail_ratio"):
        weblake_assets("docs", wait="sensor", terms=LandingRequest(fail_ratio=-1))(lambda: CrawlRequest(url=URL))
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Asset 'docs': wait is 'sensro'"):
        weblake_assets("docs", wait="sensro")(lambda: CrawlRequest(url=URL))  # type: ignore[arg-type]
    terms = LandingRequest(deadline=timedelta(hours=1))
    assert weblake_assets("docs", wait="sensor", terms=terms)(lambda: CrawlRequest(url=URL))


DAY = {"day": "{partition_key}"}


@pytest.mark.parametrize(
    ("partitions", "more", "refused"),
    [
        ((DAY, None), {}, "day; load_date"),
        ((None, {"source": "web"}), {}, "load_date; source"),
        (({"day": "x", "site": "y"}, {"site": "y", "day": "x"}), {}, "day, site; site, day"),
        ((DAY, None), {"to": "s3://lake/web", "wait": "sensor"}, "in s3://lake/web with different"),
        ((DAY, {"day": "monday"}), {}, None),
        ((None, None), {}, None),
    ],
)
def test_path_keys_of_one_root_are_compared_when_definitions_load(
    partitions: tuple[dict[str, str] | None, ...], more: dict[str, Any], refused: str | None
) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    assets = [
        asset
        for name, partition in zip("ab", partitions, strict=True)
        for asset in build_weblake_assets(name, CrawlRequest(url=URL, partition=partition), partitions_def=days, **more)
    ]

    @weblake_assets()
    def unknown() -> CrawlRequest:
        raise NotImplementedError

    own = [*build_weblake_assets("usage", UsageRequest()), *unknown, build_table_asset("table")]
    defs = dg.Definitions(assets=[*assets, *own], resources={"weblake": WeblakeResource(root="s3://lake/web")})
    if refused is None:
        dg.Definitions.validate_loadable(defs)
        return
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"assets 'a' and 'b' land in") as raised:
        dg.Definitions.validate_loadable(defs)
    assert refused in str(raised.value)
    apart = [
        *build_weblake_assets("a", CrawlRequest(url=URL, partition=DAY), partitions_def=days),
        *build_weblake_assets("b", CrawlRequest(url=URL), to="s3://lake/other"),
        *build_weblake_assets("c", CrawlRequest(url=URL, partition={"c": "c"}), resource_key="other"),
    ]
    resources = {"weblake": WeblakeResource(root="s3://lake/web"), "other": WeblakeResource(root="s3://lake/c")}
    dg.Definitions.validate_loadable(dg.Definitions(assets=apart, resources=resources))

"""Tests of the hook: a connection in any of Airflow's forms gives one client, and never one of another service."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk._shared.secrets_masker import redact
from airflow.sdk.exceptions import AirflowNotFoundException
from catalogue import proves
from error_texts import all_texts_of
from secret_search import contains_secret

import weblake
from airflow_provider_weblake.hooks import weblake as hook_module
from airflow_provider_weblake.hooks.endpoint import Endpoint
from airflow_provider_weblake.hooks.weblake import WeblakeHook
from weblake.errors import AskPerson, InvalidOption
from weblake.orchestration import JOB_KINDS
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    pass

JOB = "0a1b2c3d-0000-4000-8000-000000000000"


def connect(monkeypatch: pytest.MonkeyPatch, given: str | dict[str, object], conn_id: str = "wl") -> WeblakeHook:
    text = given if isinstance(given, str) else json.dumps({"conn_type": "weblake", **given})
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", text)
    return WeblakeHook(conn_id)


@pytest.mark.parametrize(
    ("given", "base_url"),
    [
        ({"host": "https://api.example.com"}, "https://api.example.com"),
        ({"host": "api.example.com"}, "https://api.example.com"),
        ({"host": "api.example.com", "port": 8443}, "https://api.example.com:8443"),
        ({"host": "api.example.com", "schema": "http"}, "http://api.example.com"),
        ({"host": "api.example.com", "schema": "team/a"}, "https://api.example.com/team/a"),
        ({"host": "127.0.0.1", "port": 8080}, "http://127.0.0.1:8080"),
        ({"host": "::1", "port": 8080}, "http://[::1]:8080"),
        ("weblake://:test-key@api.example.com", "https://api.example.com"),
        ("weblake://:test-key@api.example.com:8443/", "https://api.example.com:8443"),
        ("weblake://:test-key@api.example.com:8443/team/a?insecure=true", "https://api.example.com:8443/team/a"),
    ],
)
def test_every_form_of_a_connection_gives_the_same_base_url(
    given: str | dict[str, object], base_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = given if isinstance(given, str) else {"password": "test-key", **given}
    hook = connect(monkeypatch, given)
    found = hook.endpoint()
    assert (found.base_url, found.api_key) == (base_url, "test-key")
    assert asyncio.run(hook.aendpoint()) == found


def test_a_connection_survives_airflows_own_uri_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow writes a connection as a URI and reads it back on its way through caches."""
    extra = {
        "insecure": True,
        "call_timeout_s": 12.5,
        "job_url": "https://app.example.com/{kind}/{job_id}?a=b",
        "proxy": "http://user:p%40ss@proxy.example.com:3128",
        "ca_bundle": "/etc/ssl/company ca.pem",
    }
    there = Connection(
        conn_id="wl",
        conn_type="weblake",
        host="http://10.0.0.1:80/team/a",
        password="te/st:k@y",
        extra=json.dumps(extra),
    )
    back = Connection(conn_id="wl", uri=there.get_uri())
    assert Endpoint.of(back, back.extra_dejson) == Endpoint.of(there, there.extra_dejson)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"password": "test-key"}, AskPerson, ["'wl'", "host", "Base URL"]),
        ({"host": "https://api.example.com"}, AskPerson, ["'wl'", "password", "API key"]),
        (
            {"host": "http://api.example.com", "password": "test-key"},
            InvalidOption,
            ["'wl'", "in the clear", "insecure"],
        ),
        ({"host": "https://u:p@a.example.com", "password": "test-key"}, InvalidOption, ["'wl'", "password field"]),
        ({"host": "https://a.example.com", "password": "te st"}, InvalidOption, ["'wl'", "HTTP header"]),
        ({"host": "h", "password": "test-key", "extra": "[1]"}, InvalidOption, ["'wl'", "JSON object"]),
        ({"host": "h", "password": "test-key", "extra": {"insecure": "maybe"}}, InvalidOption, ["'insecure'"]),
        ({"host": "h", "password": "test-key", "extra": {"call_timeout_s": "soon"}}, InvalidOption, ["seconds"]),
        ({"host": "h", "password": "test-key", "extra": {"job_url": "javascript:x"}}, InvalidOption, ["'job_url'"]),
        (
            {"host": "h", "password": "test-key", "extra": {"ca_bundle": "/no/such.pem"}},
            InvalidOption,
            ["'wl'", "extra field `ca_bundle` cannot be used: /no/such.pem", "PEM file"],
        ),
        (
            {"host": "h", "password": "test-key", "extra": {"proxy": 3128}},
            InvalidOption,
            ["extra field `proxy`", "text"],
        ),
    ],
)
def test_invalid_settings_are_refused_in_terms_of_the_connection(
    given: dict[str, object], error: type[Exception], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = connect(monkeypatch, given)
    for attempt in (hook.get_conn, lambda: asyncio.run(hook.aget_client())):
        with pytest.raises(error) as caught:
            attempt()
        text = str(caught.value)
        assert [word for word in words if word not in text] == []
        assert "WEBLAKE_" not in text
        assert "--" not in text


def test_the_environment_of_the_command_line_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose environment has another service's settings must not send them to this one, or this one's there."""
    monkeypatch.setenv("WEBLAKE_BASE_URL", "https://other.example.com")
    monkeypatch.setenv("WEBLAKE_API_KEY", "test-key")
    monkeypatch.setenv("WEBLAKE_INSECURE", "1")
    with pytest.raises(AskPerson, match="no host"):
        connect(monkeypatch, {"password": "test-key"}).get_conn()
    with pytest.raises(AskPerson, match="no password"):
        connect(monkeypatch, {"host": "https://api.example.com"}).get_conn()
    with pytest.raises(InvalidOption, match="in the clear"):
        connect(monkeypatch, {"host": "http://api.example.com", "password": "test-key"}).get_conn()


@proves(
    "S3",
    at="airflow_provider/src/airflow_provider_weblake/hooks/endpoint.py",
    line='insecure=_flag(name, "insecure", extra.get("insecure")),',
    becomes="insecure=True,",
)
def test_s3_a_connection_needs_insecure_for_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {"host": "http://api.example.com", "password": "test-key"}
    for value in (None, False, "false", "0", ""):
        for attempt in (lambda hook: hook.get_conn(), lambda hook: asyncio.run(hook.aget_client())):
            with pytest.raises(InvalidOption, match="in the clear"):
                attempt(connect(monkeypatch, given | {"extra": {"insecure": value}}))
    for value in (True, "true", "1"):
        with connect(monkeypatch, given | {"extra": {"insecure": value}}).get_conn() as client:
            assert not client.is_embedded


@proves(
    "S1",
    at="airflow_provider/src/airflow_provider_weblake/hooks/weblake.py",
    line="raise error.with_traceback(None) from None  # below, locals hold a Connection: its repr shows the password",
    becomes="raise",
    case="its extra",
)
@pytest.mark.parametrize(
    "given",
    [
        {"extra": {"call_timeout_s": "soon"}},
        {"extra": {"job_url": "javascript:x"}},
        {"host": "https://u:p@a.example.com"},
        {"host": "https://a.example.com:port"},
        {"host": "http://api.example.com"},
        {"host": ""},
    ],
    ids=["its extra", "its template", "user info", "its port", "plain http", "no host"],
)
def test_s1_no_error_of_a_connection_shows_its_password(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the locals of each frame: the repr of Airflow's own Connection shows it."""
    hook = connect(monkeypatch, {"host": "https://api.example.com", "password": "test-canary-0123"} | given)
    for attempt in (hook.get_conn, lambda: asyncio.run(hook.aget_client())):
        with pytest.raises((InvalidOption, AskPerson)) as caught:
            attempt()
        assert [each for each in all_texts_of(caught.value) if contains_secret(each.encode(), "test-canary-0123")] == []


def test_proxy_and_tls_settings_belong_to_the_content_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that differ in one of them share no client, and a proxy's password is masked in both its forms."""
    base: dict[str, object] = {"host": "https://api.example.com", "password": "test-key"}
    proxy = "http://test-user:test%2Fcanary-0123@proxy.example:3128"
    plain = connect(monkeypatch, base | {"extra": {"proxy": "", "ca_bundle": None}}).endpoint()
    assert plain.http_options is None
    assert plain == connect(monkeypatch, base).endpoint()
    through = connect(monkeypatch, base | {"extra": {"proxy": proxy}}).endpoint()
    assert through != plain
    assert through == connect(monkeypatch, base | {"extra": {"proxy": proxy}}).endpoint()
    assert len({plain, through, connect(monkeypatch, base | {"extra": {"ca_bundle": "/x.pem"}}).endpoint()}) == 3
    assert through.http_options == weblake.HttpOptions(proxy=proxy)
    assert "canary" not in repr(through)
    assert "canary" not in str(redact(f"{proxy} test/canary-0123"))


def test_a_missing_connection_is_airflows_own_error() -> None:
    with pytest.raises(AirflowNotFoundException):
        WeblakeHook("no_such_connection").get_conn()


def test_the_event_loop_never_reads_a_connection_synchronously(
    weblake_service: WeblakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = connect(
        monkeypatch, {"host": weblake_service.url, "password": weblake_service.key, "extra": {"insecure": 1}}
    )

    def forbidden(*_: object) -> None:
        raise AssertionError("a synchronous read on the event loop")

    monkeypatch.setattr(BaseHook, "get_connection", forbidden)
    monkeypatch.setattr(Connection, "extra_dejson", property(forbidden))
    monkeypatch.setattr(hook_module, "mask_secret", forbidden)

    async def ask() -> bool | None:
        async with await hook.aget_client() as client:
            return (await client.credit_usage()).success

    assert asyncio.run(ask())


@proves(
    "S1",
    at="airflow_provider/src/airflow_provider_weblake/hooks/endpoint.py",
    line="api_key: str = field(repr=False)",
    becomes="api_key: str",
)
def test_s1_the_key_is_masked_and_in_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = f"canary-{uuid.uuid4().hex}"
    hook = connect(monkeypatch, {"host": "https://api.example.com", "password": canary})
    assert canary not in repr(hook.endpoint())
    assert canary not in repr(vars(hook.get_conn()))
    assert redact(f"the key is {canary}.") == "the key is ***."
    other = f"canary-{uuid.uuid4().hex}"
    hook = connect(monkeypatch, {"host": "https://api.example.com", "password": other})
    asyncio.run(hook.aget_client())
    assert redact(f"the key is {other}.") == "the key is ***."


def test_testing_a_connection_shows_the_balance_and_costs_nothing(
    weblake_service: WeblakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = connect(monkeypatch, {"host": weblake_service.url, "password": weblake_service.key})
    before = weblake_service.counts()
    works, message = hook.test_connection()
    assert works
    assert message == f"Connected to {weblake_service.url}: 1,000,000,000 credits left."
    assert weblake_service.counts() == before
    assert [request["path"] for request in weblake_service.requests()] == ["/v2/team/credit-usage"]


def test_the_job_link_is_the_connections_page_or_the_status_address(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = connect(monkeypatch, {"host": "https://api.example.com/team/", "password": "test-key"})
    for kind in ("batch_scrape", "crawl"):
        assert hook.job_url(kind, JOB) == f"https://api.example.com/team{JOB_KINDS[kind].read(JOB).request.path}"
    assert hook.job_url("batch", JOB) == hook.job_url("batch_scrape", JOB)
    assert hook.job_url("scrape", JOB) == f"https://api.example.com/team/v2/scrape/{JOB}"
    assert hook.job_url("parse", JOB) == ""
    assert hook.job_url("crawl", "../../evil?x=1#y").endswith("/v2/crawl/..%2F..%2Fevil%3Fx%3D1%23y")
    with pytest.raises(InvalidOption):
        hook.job_url("crawl", "")
    page = "https://app.example.com/{kind}/{job_id}?of={job_id.__class__}"
    hook = connect(monkeypatch, {"host": "h", "password": "test-key", "extra": {"job_url": page}})
    assert hook.job_url("batch", JOB) == f"https://app.example.com/batch_scrape/{JOB}?of={{job_id.__class__}}"
    assert hook.job_url("parse", "a/b").startswith("https://app.example.com/parse/a%2Fb?")

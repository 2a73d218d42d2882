"""The API key does not leak, whatever the service does with it and whichever error occurs."""

from __future__ import annotations

import asyncio
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from both_clients import READ, REMOTE_HOST
from catalogue import proves
from error_texts import all_texts_of
from landing_commands import KEY, Lake
from msgspec.structs import replace
from observed_lab import ExportedTelemetry
from scripted_job import JOB, Job, pages
from scripted_service import Connection, Play, ScriptedService, reply, reset, stall
from secret_search import contains_secret

import weblake
from weblake import AsyncClient, Client
from weblake.api import operations
from weblake.api.steps import Upload
from weblake.credentials import ApiKey, Settings
from weblake.errors import DeadlineExceeded, ServiceUnavailable, WeblakeError
from weblake.events import Event, combine
from weblake.jobs.retry import RetryPolicy

START = "POST /v2/batch/scrape"
#: A service that repeats everything that it received.
ECHO = {"success": False, "error": f"Invalid token: Bearer {KEY}", "code": KEY, "details": [{"message": KEY}]}


#: At most one retry.
FAST = RetryPolicy(tries=2, cap_s=0.0, wait_s=1.0)


class TaskTimeout(Exception):
    """What an orchestrator raises from a signal handler, at any point of the program."""


def leaks_in(told: list[str]) -> list[str]:
    return [each for each in told if contains_secret(each.encode("utf-8", "replace"), KEY)]


def blocking(url: str, key: str | None, then: Callable[[Any], Any], **how: Any) -> None:
    with Client(url, key, **how) as client:
        then(client)


def awaited(url: str, key: str | None, then: Callable[[Any], Any], **how: Any) -> None:
    async def run() -> None:
        async with AsyncClient(url, key, **how) as client:
            await then(client)

    asyncio.run(run())


Runs = Callable[..., None]
with_both_clients = pytest.mark.parametrize("runs", [blocking, awaited])


def credit_usage(client: Any) -> Any:
    return client.credit_usage()


def credit_usage_at_once(client: Any) -> Any:
    return asyncio.wait_for(client.credit_usage(), 0.2)


def start(client: Any) -> Any:
    return client.start_batch_scrape(["https://site.test/"])


def upload_of_a_missing_file(client: Any) -> Any:
    built = operations.parse_file(b"<p>x</p>", filename="a.html")
    gone = Upload("a.html", Path("/nonexistent/a.html"))
    return client.call(replace(built, request=replace(built.request, upload=gone)))


@pytest.fixture
def log_records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Collect every record of every logger, including httpcore's at DEBUG."""
    caplog.set_level(1)
    for name in ("httpcore", "httpx", "asyncio", "weblake", "h11", "urllib3"):
        caplog.set_level(1, logger=name)
    return caplog


def own_records(logs: pytest.LogCaptureFixture) -> list[str]:
    """Return every record except those in which httpcore, at DEBUG, repeats the headers of a response."""
    return [
        f"{record.getMessage()} {record.args!r} {record.exc_text}"
        for record in logs.records
        if "receive_response_headers" not in record.msg
    ]


TROUBLE: dict[str, Play] = {
    "a plain 401": reply({"success": False, "error": "Unauthorized"}, 401),
    "a plain 503": reply("", 503),
    "401": reply(ECHO, 401),
    "402": reply(ECHO, 402),
    "403": reply(ECHO, 403),
    "404": reply(ECHO, 404),
    "422": reply(ECHO, 422),
    "429": reply(ECHO, 429, retry_after="900"),
    "500": reply(ECHO, 500),
    "no success": reply(ECHO, 200),
    "the headers as a page": reply(f"<p>authorization: Bearer {KEY}</p>", 200, content_type="text/html"),
    "half of the key": reply({"success": False, "error": f"unknown: {KEY[:12]}…"}, 401),
    "percent": reply({"success": False, "error": KEY.replace("/", "%2F").replace("+", "%2B").replace("=", "%3D")}, 401),
    "a redirect": reply(ECHO, 302, location=f"/login?key={KEY}"),
    "a broken connection": reset(),
    "no HTTP": lambda connection: bool(connection.send(f"Bearer {KEY}\r\n\r\n".encode())),
    "an odd encoding": reply(b"\x1f\x8b" + KEY.encode(), content_encoding="gzip"),
    "not JSON": reply(f'{{"error": "{KEY}"', 200),
}


@proves(
    "S1",
    at="src/weblake/events.py",
    line="return text if text in STATUSES else OTHER",
    becomes="return text",
)
@proves(
    "S1",
    at="src/weblake/loads/load.py",
    line="redact_error(failure, client.redact)",
    becomes="pass",
)
def test_s1_no_event_span_log_record_or_error_of_a_load_shows_a_key_that_a_service_repeats(
    service: ScriptedService, tmp_path: Path, log_records: pytest.LogCaptureFixture
) -> None:
    """The key is the job's status, its error, and the reason of each failed page."""
    job_id = "11111111-2222-4333-8444-555555555555"
    head = {"success": True, "completed": 0, "total": 1, "creditsUsed": 1, "data": [], "error": KEY}
    running, ended = {**head, "status": KEY}, {**head, "status": "failed"}
    service.on(f"GET /v2/batch/scrape/{job_id}", reply(running), reply(ended))
    errors = [{"id": KEY, "url": f"http://site.test/{KEY}", "error": KEY, "code": KEY, "timestamp": KEY}]
    service.on(f"GET /v2/batch/scrape/{job_id}/errors", reply({"errors": errors, "robotsBlocked": []}))
    exported, seen = ExportedTelemetry(), list[Event]()
    with (
        Client(service.url, KEY, observer=combine(seen.append, exported.observer)) as client,
        pytest.raises(WeblakeError) as caught,
    ):
        weblake.land("batch", job_id, to=tmp_path, client=client, terms=weblake.Terms(poll_s=0.05))
    told = [*map(repr, seen), *(span.to_json() for span in exported.spans), repr(exported.metrics())]
    told += [
        f"{record.getMessage()} {record.__dict__.get('weblake')}"
        for record in log_records.records
        if record.name.startswith("weblake")
    ]
    exported.close()
    assert {type(event).__name__ for event in seen} >= {"StatusPolled", "WaitFinished", "LoadRefused"}
    assert leaks_in(told) == []
    assert "The service says: ***" in str(caught.value)
    assert leaks_in(all_texts_of(caught.value, frames=False)) == []


@pytest.mark.parametrize(
    "head",
    [
        {"status": "failed", "error": f"Invalid token: Bearer {KEY}"},
        {"status": "completed", "next": f"https://other.test/{KEY}"},
    ],
    ids=["error", "next"],
)
def test_no_error_of_a_load_shows_a_key_that_a_service_repeats(
    service: ScriptedService, lake: Lake, head: dict[str, object]
) -> None:
    Job(service, pages(2)).chunks[0] |= head
    failed = lake.land(job=JOB)  # the fixture searches its output and its files
    assert (failed.code, "***" in failed.err) == (1, True)


#: Failures whose response does not repeat the key.
SILENT = ("a plain 401", "a plain 503", "a broken connection")


# A response that repeats the key is quoted in the error.
@proves(
    "S1",
    at="src/weblake/credentials.py",
    line="each.message, each.remedy = redact(each.message), each.remedy.with_values(redact)",
    becomes="pass",
    case="credit_usage-401-blocking",
)
@with_both_clients
@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("call", [credit_usage, start])
def test_s1_no_error_event_span_or_metric_of_a_call_shows_the_key(
    service: ScriptedService, runs: Runs, trouble: str, call: Any, log_records: pytest.LogCaptureFixture
) -> None:
    for name in (READ, START):
        service.on(name, TROUBLE[trouble])
    exported, seen = ExportedTelemetry(), list[Event]()
    observer = combine(seen.append, exported.observer)
    with pytest.raises(WeblakeError) as caught:
        runs(service.url, KEY, call, retry_policy=RetryPolicy(tries=1), observer=observer)
    told = [*map(repr, seen), *(span.to_json() for span in exported.spans), repr(exported.metrics())]
    exported.close()
    assert len(told) > 1
    assert leaks_in([*told, *all_texts_of(caught.value, frames=trouble in SILENT)]) == []
    assert any("request" in each for each in own_records(log_records)), "records of the network layer are among them"
    assert leaks_in(own_records(log_records)) == []


@with_both_clients
def test_the_cause_of_an_error_does_not_show_the_key(service: ScriptedService, runs: Runs) -> None:
    service.on(READ, reply(ECHO, 500))

    def call_until_the_time_limit(client: Any) -> Any:
        client.retry.jitter = lambda: 100.0  # the first pause would end after the time limit
        return client.run(client.retry.call(operations.credit_usage(), RetryPolicy(until=time.monotonic() + 10.0)))

    with pytest.raises(DeadlineExceeded) as caught:
        runs(service.url, KEY, call_until_the_time_limit)
    assert isinstance(caught.value.__cause__, ServiceUnavailable)
    assert leaks_in(all_texts_of(caught.value, frames=False)) == []


#: Invalid settings, and the call that is made with them.
REFUSED: dict[str, tuple[str, str | None, Any]] = {
    "plain http": (f"http://{REMOTE_HOST}", KEY, None),
    "no URL": ("service", KEY, None),
    "user info": (f"https://test-user@{REMOTE_HOST}", KEY, None),
    "a key with a space": ("http://127.0.0.1:9", f"{KEY} x", None),
    "a key with a line break": ("http://127.0.0.1:9", f"{KEY}\nx", None),
    "a key in other letters": ("http://127.0.0.1:9", f"{KEY}ü", None),
    "a key of the environment with a space": ("http://127.0.0.1:9", None, None),
    "nobody there": ("http://127.0.0.1:9", KEY, credit_usage),
    "a file that is gone": ("http://127.0.0.1:9", KEY, upload_of_a_missing_file),
}


@proves(
    "4.5",
    at="src/weblake/credentials.py",
    line="key.check()",
    becomes="ApiKey(text := key.header().decode()[7:]).check()",
    case="a key with a space-blocking",
)
@proves(
    "4.5",
    at="src/weblake/client/__init__.py",
    line="self._lock = threading.Lock()",
    becomes="self._lock, shown = threading.Lock(), api_key",
    case="plain http-blocking",
)
@with_both_clients
@pytest.mark.parametrize("wrong", REFUSED)
def test_an_error_about_invalid_settings_does_not_show_the_key(
    runs: Runs, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, key, then = REFUSED[wrong]
    monkeypatch.setenv("WEBLAKE_API_KEY", f"{KEY} {KEY}")
    with pytest.raises((WeblakeError, OSError)) as caught:
        runs(url, key, then, retry_policy=RetryPolicy(tries=1))
    assert leaks_in(all_texts_of(caught.value)) == []


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Raise in the main thread, during whatever it waits for."""

    def rings(*_: object) -> None:
        raise TaskTimeout("this task took too long")

    before, main = signal.signal(signal.SIGUSR1, rings), threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@with_both_clients
@pytest.mark.parametrize("where", ["", "in the body"])
def test_an_interrupted_call_does_not_show_the_key(
    service: ScriptedService, runs: Runs, where: str, alarm: Callable[[], None]
) -> None:
    begun = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{" if where else b""
    waits = stall(begun)

    def interrupts(line: Connection) -> bool:
        if runs is blocking:
            threading.Timer(0.1, alarm).start()
        return waits(line)

    service.on(READ, interrupts)
    # An event loop interrupts by cancelling.
    with pytest.raises((TaskTimeout, asyncio.TimeoutError)) as caught:
        runs(
            service.url,
            KEY,
            credit_usage if runs is blocking else credit_usage_at_once,
        )
    told = all_texts_of(caught.value)
    assert where or any("Request(" in each or "Request [" in each for each in told), (
        "the frames of the call are among them"
    )
    assert leaks_in(told) == []


@proves(
    "4.5",
    at="src/weblake/credentials.py",
    line='return RedactedBytes(b"Bearer " + self._value.encode("ascii"))',
    becomes='return b"Bearer " + self._value.encode("ascii")',
)
def test_the_repr_of_a_client_and_its_parts_shows_no_key(service: ScriptedService) -> None:
    service.on(READ, reply({"success": True, "data": {}}))
    with Client(service.url, KEY) as client:
        client.credit_usage()
    aclient = AsyncClient(service.url, KEY)

    async def used() -> None:
        async with aclient:
            await aclient.credit_usage()

    asyncio.run(used())
    key = ApiKey(KEY)
    parts: list[object] = [client, aclient, client.transport, aclient.transport, key, key.header(), client._settings]
    for part in parts:
        shown = [repr(part), str(part), f"{part}", f"{part!a}", repr(getattr(part, "__dict__", ""))]
        assert not contains_secret("\n".join(shown).encode(), KEY), part
        with pytest.raises((TypeError, AttributeError)):
            pickle.dumps(part)
    assert isinstance(client._settings, Settings)

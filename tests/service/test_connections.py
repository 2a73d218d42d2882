"""Connections without a request, and the service's limits: others are answered, and no page is lost."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import httpcore
import httpx
import pytest
from polling import until

from weblake.testing import WeblakeSite
from weblake_service import server
from weblake_service.jobs import job_manager
from weblake_service.page_failure import PageFailure, ServiceLimitReached, own_limit
from weblake_service.serve import RepeatFilter
from weblake_service.web import fetch
from weblake_service.web.connection_pools import PinnedBackend

HEAD = b"POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n"
REFUSED = b"POST /v2/scrape HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999\r\n\r\n"
KEYLESS = b"GET /v2/crawl/active HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
KEY = {"Authorization": "Bearer test-key"}


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def is_closed(connection: socket.socket) -> bool:
    """Read what the service has sent, and return whether it has closed the connection."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, REFUSED], ids=["nothing", "word", "head", "refused"])
def test_a_connection_without_a_request_ends_after_a_deadline(
    make_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Also if bytes of a head, or of a body that is not read, arrive all the time."""
    monkeypatch.setattr(server, "_HEAD_TIMEOUT_S", 0.2)
    monkeypatch.setattr(server, "_KEEP_ALIVE_S", 0.2)
    bench = make_bench()
    with connect(bench.service.url) as connection:
        connection.sendall(sent)

        def look() -> bool:
            with suppress(OSError):
                connection.sendall(b"x" if sent else b"")
            return is_closed(connection)

        until(look, 30)
    assert bench.http.get("/health").status_code == 200


def test_a_request_in_progress_has_no_such_deadline(
    make_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_TIMEOUT_S", 0.1)
    monkeypatch.setattr(server, "_KEEP_ALIVE_S", 0.1)
    bench = make_bench()
    bench.service.faults({"match": {"path": "/v2/crawl/active"}, "times": 2, "effect": {"latency_ms": 500}})
    assert [bench.http.get("/v2/crawl/active").status_code for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("sent", [b"", HEAD, KEYLESS], ids=["nothing", "head", "keyless"])
def test_idle_connections_make_room_for_others(
    make_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 16)
    bench = make_bench()
    with ExitStack() as opened:
        idle = [opened.enter_context(connect(bench.service.url)) for _ in range(48)]
        for connection in idle:
            with suppress(OSError):
                connection.sendall(sent)

        def is_answered() -> bool:
            with suppress(httpx.TransportError):  # it may be the one that is closed, while it has sent nothing yet
                return bool(bench.http.get("/v2/crawl/active").status_code == 200)
            return False

        until(is_answered, 30)
        until(lambda: sum(map(is_closed, idle)) >= 32, 30)


def limited(number: int, times: list[int]) -> Callable[..., Any]:
    """Return a connect function that fails as the system does at a limit of the service."""
    real = PinnedBackend.connect_tcp

    async def connect_tcp(self: PinnedBackend, *given: Any, **more: Any) -> Any:
        times[0] -= 1
        if times[0] >= 0:
            try:
                raise OSError(number, os.strerror(number))
            except OSError as error:
                raise httpcore.ConnectError("All connection attempts failed") from error
        return await real(self, *given, **more)

    return connect_tcp


@pytest.mark.system
def test_a_limit_of_the_service_is_no_failure_of_the_site(
    weblake_service: Any, weblake_site: WeblakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page waits, also longer than its timeout; without it a refused connection is a failure of the site."""
    number, other = errno.EMFILE, weblake_site.urls()[0].replace("127.0.0.1", "localhost")  # no connection is open
    monkeypatch.setattr(fetch, "_LIMIT_AGAIN_S", 0.01)
    monkeypatch.setattr(job_manager, "_LIMIT_AGAIN_S", 0.01)
    monkeypatch.setattr(PinnedBackend, "connect_tcp", limited(number, [3]))
    with weblake_service.client() as client:
        assert client.scrape(weblake_site.urls()[0]).data.markdown
    with httpx.Client(base_url=weblake_service.url, headers=KEY, trust_env=False, verify=False, timeout=60) as http:
        monkeypatch.setattr(PinnedBackend, "connect_tcp", limited(number, [200]))
        asked = {"urls": [f"{other}?{n}" for n in range(3)], "timeout": 1000, "maxAge": 0}
        job = http.post("/v2/batch/scrape", json=asked).json()["id"]
        done = until(lambda: (found := http.get(f"/v2/batch/scrape/{job}").json())["status"] != "scraping" and found)
        assert (done["status"], done["completed"], done["creditsUsed"]) == ("completed", 3, 3)
        monkeypatch.setattr(PinnedBackend, "connect_tcp", limited(number, [10**6]))
        other = other.replace("localhost", "127.1")
        refused = http.post("/v2/scrape", json={"url": other, "timeout": 1000, "maxAge": 0})
        assert (refused.status_code, os.strerror(number) in refused.json()["error"]) == (503, True)
        monkeypatch.setattr(PinnedBackend, "connect_tcp", limited(errno.ECONNREFUSED, [10**6]))
        refused = http.post("/v2/scrape", json={"url": other, "maxAge": 0})
        assert (refused.status_code, refused.json()["code"]) == (500, "SCRAPE_SITE_ERROR")


def test_the_cause_of_an_error_shows_a_limit_of_the_service() -> None:
    full, site = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.ECONNREFUSED, "refused")
    for error, limit in (
        (full, "No space left on device"),
        (ServiceLimitReached("Too many open files"), "Too many open files"),
        (ExceptionGroup("several", [site, full]), "No space left on device"),
        (OSError(errno.ENFILE, ""), os.strerror(errno.ENFILE)),
        (sqlite3.OperationalError("database or disk is full"), "database or disk is full"),
        (sqlite3.OperationalError("no such table: jobs"), ""),
        (site, ""),
        (PageFailure("SCRAPE_SITE_ERROR", "No space left on device"), ""),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), ""),
    ):
        outer = PageFailure("SCRAPE_SITE_ERROR", "It failed.")
        outer.__cause__ = error
        assert own_limit(error) == own_limit(outer) == limit


def test_repeated_log_lines_are_counted() -> None:
    passed, lines = [], RepeatFilter()
    for number in range(250):
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "no files\nfuture: %s", (number,), None)
        if lines.filter(record):
            passed.append(record.getMessage().partition("\n")[2])
    assert passed == ["future: 0", "future: 9 (logged 10 times)", "future: 99 (logged 100 times)"]
    assert lines.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, "another", (), None))


@pytest.mark.system
def test_more_idle_connections_than_files_lose_no_page(tmp_path: Any, weblake_site: WeblakeSite) -> None:
    command = [sys.executable, "-m", "weblake", "serve", "--port", "0", "--data", ":memory:", "--allow-private"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, "WEBLAKE_API_KEY": "test-key"},
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 256)),
        )  # fmt: skip
    try:
        assert process.stdout is not None
        url = httpx.Response(200, content=process.stdout.readline()).json()["url"]
        with ExitStack() as opened, httpx.Client(base_url=url, headers=KEY, trust_env=False, verify=False) as http:
            job = http.post("/v2/batch/scrape", json={"urls": weblake_site.urls()}).json()["id"]
            for _ in range(400):
                opened.enter_context(connect(url))
            begun = time.monotonic()
            done = until(
                lambda: (found := http.get(f"/v2/batch/scrape/{job}").json())["status"] != "scraping" and found
            )
            assert (done["status"], done["completed"]) == ("completed", len(weblake_site.urls()))
            assert time.monotonic() - begun < 30
    finally:
        process.terminate()
        process.communicate()
    assert (tmp_path / "log").stat().st_size < 20_000


@pytest.mark.parametrize("path", ["/v2/scrape", "/v2/batch/scrape", "/v2/parse", "/console/sign-in"])
def test_a_client_that_leaves_in_its_body_is_no_error(
    make_bench: Callable[..., Any], caplog: pytest.LogCaptureFixture, path: str
) -> None:
    bench = make_bench()
    form = "application/json" if path != "/v2/parse" else "multipart/form-data; boundary=x"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer test-key\r\nContent-Type: {form}\r\n"
    with connect(bench.service.url) as connection:
        connection.sendall(f"{head}Content-Length: 999\r\n\r\n--".encode())
        time.sleep(0)
    bench.service.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

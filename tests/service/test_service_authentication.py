"""S8: a service that is reached from beyond loopback, without a key, or by a web page in a browser."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from catalogue import proves
from starlette.routing import Route

from weblake_service import app
from weblake_service.config import ServiceConfig
from weblake_service.serve import serve
from weblake_service.server import LocalService

OPEN = {"/health", "/_weblake/health", "/openapi.yaml"}
GROUPS = [one for name, one in vars(app).items() if name.endswith("Routes") and inspect.isclass(one)]
#: Requests that a web page can make a browser send to another origin without a preflight.
SIMPLE = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None]


def every_route(service: LocalService) -> list[tuple[str, str]]:
    """Return every method and path of the application."""
    parts = service._parts
    assert parts is not None
    routes: list[tuple[str, str]] = []
    for group in GROUPS:
        found = [route for route in group(parts).routes() if isinstance(route, Route)]
        routes += [(method, route.path) for route in found for method in route.methods or ()]
    return sorted({(method, path) for method, path in routes if method != "HEAD"})


def test_s8_the_tested_routes_cover_every_group(bench: Any) -> None:
    paths = {path for _, path in every_route(bench.service)}
    assert len(GROUPS) == 11
    assert len(paths) > 30
    assert {"/v2/scrape", "/v2/parse", "/v2/crawl/{id}", "/_weblake/faults/{id}", "/_weblake/reset", *OPEN} <= paths


@proves(
    "S8",
    at="src/weblake_service/middleware.py",
    line="if access is None:",
    becomes='if access is None and not path.startswith("/_weblake/"):',
)
@proves(
    "S8",
    at="src/weblake_service/middleware.py",
    line="if access is None:",
    becomes="if access is None and not _is_loopback(scope):",
)
def test_s8_every_route_requires_the_key(bench: Any) -> None:
    """Also on loopback: other users of this machine must not use the service."""
    job = bench.batch("http://site.test/a")
    with httpx.Client(base_url=bench.service.url, trust_env=False, verify=False, timeout=30) as nobody:
        for method, path in every_route(bench.service):
            if path in OPEN:
                continue
            real = path.replace("{id}", job).replace("{session_id}", job).replace("{jobId}", job)
            for header in (None, "Bearer wrong", "Bearer", "Basic test-key", "test-key", "Bearer test-key2"):
                headers = {"Authorization": header} if header else {}
                asked = {"key": "test-key", "access_token": "test-key"}
                reply = nobody.request(method, real, headers=headers | {"Cookie": "key=test-key"}, params=asked)
                assert reply.status_code == 401, (method, path, header)
                assert reply.json()["code"] == "UNAUTHORIZED"
    assert bench.http.get(f"/v2/batch/scrape/{job}").status_code == 200
    assert bench.http.get("/_weblake/faults").json()["rules"] == []


@proves(
    "S8", at="src/weblake_service/middleware.py", line="return hosts is None or _host", becomes="return True or _host"
)
def test_s8_an_unknown_host_header_is_refused(bench: Any) -> None:
    """The host name of a page may resolve to this machine: then the browser sends that name, and no Origin header."""
    port = bench.service.url.rpartition(":")[2]
    others = [
        "evil.test",
        f"evil.test:{port}",
        "",
        "127.0.0.1.evil.test",
        "localhost.evil.test",
        "127.0.0.2",
        "0.0.0.0",
    ]
    others += [
        "[::1].evil",
        "[::1]evil:80",
        "[::1",
        "::1",
        "LOCALHOST:1@evil",
        "localhost:x",
        "localhost/x",
    ]
    for host in [*others, f"[::ffff:127.0.0.1]:{port}", "@127.0.0.1", "127.0.0.1@evil.test"]:
        for path in ("/v2/crawl/active", "/_weblake/health", "/openapi.yaml", "/_weblake/reset"):
            reply = bench.http.get(path, headers={"Host": host})
            assert reply.status_code in (400, 403), (host, path)
            assert reply.status_code == 400 or reply.json()["code"] == "HOST_NOT_ALLOWED"
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", "localhost", f"[::1]:{port}"):
        assert bench.http.get("/v2/crawl/active", headers={"Host": host}).status_code == 200


@proves(
    "S8",
    at="src/weblake_service/middleware.py",
    line="if access is None:",
    becomes='if access is None and "origin" not in headers:',
)
@pytest.mark.parametrize("kind", SIMPLE)
def test_s8_a_web_page_can_neither_start_nor_read_anything(bench: Any, kind: str | None) -> None:
    """A request without a preflight has no key, and a preflight is not granted."""
    page = {"Origin": "https://evil.test", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    sent = page | ({"Content-Type": kind} if kind else {})
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    bodies = {"/v2/scrape": b'{"url": "http://site.test/a"}', "/v2/batch/scrape": b'{"urls": ["http://site.test/a"]}'}
    bodies |= {"/_weblake/reset": b"", "/_weblake/clock/advance": b'{"seconds": 9}', "/v2/parse": b"--x--"}
    with httpx.Client(base_url=bench.service.url, trust_env=False, verify=False, timeout=30) as browser:
        for path, body in bodies.items():
            reply = browser.post(path, content=body, headers=sent)
            asked = browser.options(path, headers=page | wanted)
            assert (reply.status_code, asked.status_code) == (401, 401)
            for one in (reply, asked):
                assert not [name for name in one.headers if name.startswith("access-control-")]
                assert "set-cookie" not in one.headers
    assert bench.web.asked == []
    assert bench.service.counts().get("batch_scrape_started", 0) == 0


@proves("S8", at="src/weblake_service/serve.py", line='host: str = "127.0.0.1",', becomes='host: str = "0.0.0.0",')
def test_s8_remote_clients_are_refused_unless_configured() -> None:
    from weblake.cli import local

    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"
    assert inspect.signature(local.serve).parameters["host"].default == "127.0.0.1"
    assert inspect.signature(LocalService).parameters["host"].default == "127.0.0.1"


@proves(
    "S8",
    at="src/weblake_service/middleware.py",
    line='if path.startswith("/_weblake/") and not _is_loopback(scope):',
    becomes="if False:",
)
def test_s8_the_control_api_is_limited_to_loopback() -> None:
    """A remote caller, as uvicorn reports it, is refused also with the key."""
    import asyncio

    from weblake_service.middleware import AccessMiddleware

    with LocalService(keys="test-key", host="0.0.0.0", config=ServiceConfig(testing=True)) as service:
        front = AccessMiddleware(None, service._parts)  # type: ignore[arg-type]
        for path in ("/_weblake/reset", "/_weblake/health", "/_weblake/faults"):
            sent: list[Any] = []
            scope = {"type": "http", "method": "POST", "path": path, "client": ("192.0.2.7", 4000), "headers": []}
            scope["headers"] = [(b"host", b"lake.example"), (b"authorization", b"Bearer test-key")]

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            async def receive() -> Any:
                return {"type": "http.request", "body": b""}

            asyncio.run(front(scope, receive, send))
            assert sent[0]["status"] == 403


def test_s8_the_control_api_exists_only_in_a_service_for_tests(bench: Any, make_bench: Callable[..., Any]) -> None:
    usual = make_bench(testing=False)
    admin = [(method, path) for method, path in every_route(bench.service) if path.startswith("/_weblake/")]
    assert len(admin) > 10
    assert not [path for _, path in every_route(usual.service) if path.startswith("/_weblake/")]
    for method, path in admin:
        reply = usual.http.request(method, path.replace("{id}", "1"), content=b"{}")
        assert reply.status_code == 404, (method, path)
    assert usual.http.get("/health").json() == {"status": "ok"}
    assert not ServiceConfig().testing


def test_a_health_check_needs_no_key_and_reveals_nothing_else(bench: Any) -> None:
    with httpx.Client(base_url=bench.service.url, trust_env=False, verify=False) as nobody:
        for headers in ({}, {"Host": "10.0.0.7:8080"}):
            answer = nobody.get("/health", headers=headers)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert nobody.head("/health").status_code == 200
        assert nobody.get("/_weblake/health").json()["status"] == "ok"
        assert nobody.post("/health").status_code == 405
        assert nobody.get("/health/").status_code == 401

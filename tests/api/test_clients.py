"""Tests of both clients over a real socket: the request and the returned value of each operation."""

import asyncio
import json
import threading
from collections.abc import Iterator
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import contract_samples as it
import contract_validation
import httpx
import pytest
from catalogue import proves

import weblake
from weblake.api import operations
from weblake.errors import AskPerson, InvalidOption

KEY = "test-key-of-the-clients"


class Recorder(BaseHTTPRequestHandler):
    """Answers with the contract's own sample and keeps what came."""

    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        server: Any = self.server
        length = int(self.headers.get("content-length", 0))
        parts = urlsplit(self.path)
        server.seen.append(
            {
                "method": self.command,
                "path": parts.path,
                "query": parse_qsl(parts.query, keep_blank_values=True),
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "body": self.rfile.read(length),
                "port": self.client_address[1],
            }
        )
        body = json.dumps(server.answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _handle

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.daemon_threads = True
    server.seen, server.answer = [], {}
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def entries() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for path, methods in contract_validation.load()["paths"].items():
        for method, entry in methods.items():
            yield it.snake(entry["operationId"]), method.upper(), path, entry


def arguments(name: str, entry: dict[str, Any], tmp_path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the required arguments of each operation, and one option if it has options."""
    file = tmp_path / "page.html"
    file.write_text("<p>hello</p>")
    special: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "scrape": (["https://example.org/a"], {"formats": ["markdown"], "only_main_content": False}),
        "interact": ([it.JOB], {"code": "1"}),
        "parse_file": ([file], {"formats": ["markdown"]}),
        "execute_in_browser": (["session_1", "1"], {"timeout": 5}),
        "delete_browser": (["session_1"], {}),
        "list_browsers": ([], {"status": "active"}),
        "create_browser": ([], {"ttl": 60}),
        "start_batch_scrape": ([["https://example.org/a"]], {"idempotency_key": it.JOB}),
        "start_crawl": (["https://example.org/"], {"limit": 3, "idempotency_key": it.JOB}),
        "preview_crawl_params": (["https://example.org/", "the news"], {}),
        "map_site": (["https://example.org/"], {"limit": 3}),
        "search": (["rivers"], {"limit": 3}),
        "start_extract": ([], {"urls": ["https://example.org/"], "prompt": "the price"}),
        "start_agent": (["find it"], {}),
        "list_activity": ([], {"limit": 3, "endpoint": "crawl"}),
        "historical_credit_usage": ([], {"by_api_key": True}),
        "historical_token_usage": ([], {"by_api_key": False}),
    }
    if name in special:
        return special[name]
    return ([it.JOB] if any(p["in"] == "path" for p in entry.get("parameters", [])) else []), {}


@pytest.mark.parametrize(
    ("name", "method", "path", "entry"), list(entries()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_each_operation_over_a_socket(
    name: str, method: str, path: str, entry: dict[str, Any], recorder: Any, tmp_path: Path
) -> None:
    args, kwargs = arguments(name, entry, tmp_path)
    schema = it.inline(entry["responses"]["200"]["content"]["application/json"]["schema"])
    recorder.answer = it.samples(schema)[0] | {"addedLater": {"kept": True}}

    with weblake.Client(recorder.url, KEY) as client:
        blocking = getattr(client, name)(*args, **kwargs)

    async def awaited() -> Any:
        async with weblake.AsyncClient(recorder.url, KEY) as client:
            return await getattr(client, name)(*args, **kwargs)

    assert asyncio.run(awaited()) == blocking
    assert blocking.raw == recorder.answer
    assert blocking.extra["addedLater"] == {"kept": True}

    built = getattr(operations, name)(*args, **kwargs).request
    assert len(recorder.seen) == 2
    for seen in recorder.seen:
        assert (seen["method"], seen["path"], tuple(seen["query"])) == (method, built.path, built.query)
        assert len(built.path.split("/")) == len(path.split("/"))
        assert seen["headers"]["authorization"] == f"Bearer {KEY}"
        for header, value in built.headers:
            assert seen["headers"][header] == value
        if built.body is not None:
            assert seen["headers"]["content-type"] == "application/json"
            content = entry["requestBody"]["content"]["application/json"]["schema"]
            assert it.valid(it.inline(content), json.loads(seen["body"]))
            assert json.loads(seen["body"]) == json.loads(built.body)
        elif built.upload is not None:
            sent = multipart(seen)
            assert sent["file"] == ("page.html", b"<p>hello</p>")
            assert json.loads(sent["options"][1]) == {"formats": ["markdown"]}


def multipart(seen: dict[str, Any]) -> dict[str, tuple[str | None, bytes]]:
    head = f"content-type: {seen['headers']['content-type']}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + seen["body"])
    parts: dict[str, tuple[str | None, bytes]] = {}
    for part in message.get_payload():
        assert not isinstance(part, str)
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        parts[str(part.get_param("name", header="content-disposition"))] = (part.get_filename(), payload)
    return parts


def test_a_base_url_may_carry_a_path(recorder: Any) -> None:
    with weblake.Client(f"{recorder.url}/team/a/", KEY) as client:
        client.credit_usage()
    assert recorder.seen[0]["path"] == "/team/a/v2/team/credit-usage"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "http://",
        "https://user:pw@h",
        "https://h/?q=1",
        "https://h/#f",
        "h.example",
        "http://h:99999",
        "https://h\nx",
        "https://h/a\tb",
        "https://h/\x1b[2J",
    ],
)
def test_a_base_url_that_cannot_be_used_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBLAKE_BASE_URL", url or "://")
    with pytest.raises(InvalidOption):
        weblake.Client(None, KEY)


@proves(
    "H14",
    at="src/weblake/credentials.py",
    line='(parts.hostname or "").encode("idna")',
    becomes='(parts.hostname or "")',
)
@pytest.mark.parametrize("host", ["a..b.test", ".test", "x" * 64 + ".test", "bücher.test", "٣.test"])
def test_h14_a_host_that_no_lookup_takes_is_refused_at_once(host: str) -> None:
    for door in (weblake.Client, weblake.AsyncClient):
        with pytest.raises(InvalidOption, match="base URL is not usable"):
            door(f"https://{host}", KEY)


def test_plain_http_beyond_loopback_has_to_be_allowed() -> None:
    with pytest.raises(InvalidOption, match="in the clear"):
        weblake.Client("http://service.example", KEY)
    weblake.Client("http://service.example", KEY, insecure=True)


def test_a_base_url_without_a_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBLAKE_API_KEY", raising=False)
    with pytest.raises(AskPerson, match="WEBLAKE_API_KEY"):
        weblake.Client("https://service.example")


def test_environment_proxies_are_never_used_for_loopback(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with weblake.Client(recorder.url, KEY) as client:
        client.credit_usage()
    assert len(recorder.seen) == 1


def test_environment_proxies_are_used_beyond(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", recorder.url)
    monkeypatch.setenv("http_proxy", recorder.url)
    with weblake.Client("http://service.example", KEY, insecure=True) as client:
        client.credit_usage()
    assert recorder.seen[0]["headers"]["host"] == "service.example"


@proves("H10", at="src/weblake/http/transport.py", line='else "gzip",', becomes='else "gzip, deflate, br, zstd",')
def test_h10_nothing_but_gzip_is_asked_for(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback not even that: the bytes are free there."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", recorder.url)
    monkeypatch.setenv("http_proxy", recorder.url)
    for base in ("http://service.example", recorder.url):
        with weblake.Client(base, KEY, insecure=True) as client:
            client.credit_usage()
    assert [seen["headers"]["accept-encoding"] for seen in recorder.seen] == ["gzip", "identity"]


def test_a_ledger_names_a_service_by_its_address_and_not_by_a_loopback_port() -> None:
    for url, name in (
        ("http://127.0.0.1:8080/", "loopback"),
        ("http://localhost:1", "loopback"),
        ("https://api.example.com/team/", "https://api.example.com/team"),
    ):
        client = weblake.Client(url, KEY)
        assert (client.service, client.is_embedded) == (name, False)
    given = weblake.Client(transport=it)  # type: ignore[arg-type]
    assert (given.service, given.is_embedded) == ("given", False)


def test_a_client_of_another_kind_is_refused_before_the_first_request() -> None:
    url = "http://127.0.0.1:1"
    with httpx.Client() as blocking:
        weblake.Client(url, KEY, http_client=blocking)
        with pytest.raises(InvalidOption, match=r"is a httpx.Client, not an httpx.AsyncClient"):
            weblake.AsyncClient(url, KEY, http_client=blocking)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="`http_client` and `transport` exclude each other"):
            weblake.Client(url, KEY, http_client=blocking, transport=it)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"is a builtins\.object"):
        weblake.Client(url, KEY, http_client=object())  # type: ignore[arg-type]


def test_a_file_that_cannot_be_read_when_it_is_sent_is_not_a_failure_of_the_service(
    recorder: Any, tmp_path: Path
) -> None:
    file = tmp_path / "a.html"
    file.write_bytes(b"<p>x</p>")
    operation = operations.parse_file(file)
    file.unlink()

    async def awaited() -> None:
        async with weblake.AsyncClient(recorder.url, KEY) as client:
            await client.call(operation)

    with pytest.raises(InvalidOption, match=r"`file` cannot be read: .*a\.html: No such file"):
        asyncio.run(awaited())
    with weblake.Client(recorder.url, KEY) as client, pytest.raises(InvalidOption, match="No such file"):
        client.call(operation)
    assert recorder.seen == []

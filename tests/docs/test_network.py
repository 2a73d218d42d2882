"""Runs the examples of docs/site/tasks/network.md against real HTTPS services and proxies on loopback."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import codes, section
from secret_search import contains_secret
from tls_lab import CREDITS, Authority, Proxy, Service, closed_at_end

import weblake

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/site/tasks/network.md").read_text()
KEY = "test-key-of-the-how-to"
LOGIN = "user:p@ss"


def examples(title: str, language: str = "python") -> list[str]:
    """Return the code blocks of a section."""
    return codes(section(TEXT, title), language)


def run(code: str) -> dict[str, object]:
    """Run an example and return its variables."""
    names: dict[str, object] = {}
    exec(compile(code, "docs/site/tasks/network.md", "exec"), names)
    return names


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def service(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """An HTTPS service that the environment names, whose authority the environment trusts."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    made = Service(authority.server_context())
    monkeypatch.setenv("WEBLAKE_BASE_URL", made.url)
    monkeypatch.setenv("WEBLAKE_API_KEY", KEY)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with closed_at_end(made):
        yield made


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The company's proxy."""
    made = Proxy(login=LOGIN)
    monkeypatch.setenv("COMPANY_PROXY", made.url.replace("://", "://user:p%40ss@"))
    with closed_at_end(made):
        yield made


@pytest.mark.parametrize("number", [0, 1], ids=["HttpOptions", "httpx client"])
def test_requests_go_through_the_companys_proxy(number: int, service: Service, proxy: Proxy) -> None:
    assert run(examples("A corporate proxy with a password")[number])["credits"] == CREDITS
    assert proxy.heads[0].startswith(b"CONNECT localhost:")


@pytest.mark.system
def test_the_command_line_takes_proxy_and_authorities_from_the_environment(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy leads to a host that no resolver knows: the service's name is the proxy's to look up."""
    (lines,) = examples("A corporate proxy with a password", "sh")
    *settings, command = lines.splitlines()
    for line in settings:
        name, value = line.removeprefix("export ").split("=", 1)
        monkeypatch.setenv(name, value)
    service = Service(authority.server_context("service.example"))
    proxy = Proxy(login=LOGIN, target=("127.0.0.1", service.port))
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    monkeypatch.setenv("WEBLAKE_BASE_URL", "https://service.example")
    monkeypatch.setenv("WEBLAKE_API_KEY", KEY)
    program, *arguments = command.split()
    assert program == "weblake"
    with closed_at_end(service, proxy):
        done = subprocess.run(
            [sys.executable, "-m", "weblake", *arguments], capture_output=True, text=True, timeout=120, check=False
        )
    assert proxy.heads, done.stderr
    assert proxy.heads[0].startswith(b"CONNECT service.example:443 ")
    assert service.heads[0].startswith(b"GET /v2/team/credit-usage")
    assert KEY not in done.stdout + done.stderr


def test_mutual_tls(authority: Authority, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = authority.certificate("client")
    (code,) = examples("Mutual TLS and your own CA")
    for shown, real in (("company-ca.pem", authority.bundle), ("client.pem", certificate), ("client.key", key)):
        assert f'"/etc/ssl/{shown}"' in code
        code = code.replace(f"/etc/ssl/{shown}", str(real))
    demanding = Service(authority.server_context(client_certificates=True))
    monkeypatch.setenv("WEBLAKE_BASE_URL", demanding.url)
    monkeypatch.delenv("SSL_CERT_FILE")
    with closed_at_end(demanding):
        assert run(code)["credits"] == CREDITS


def test_opentelemetry_shows_spans_without_the_key(service: Service) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    assert run(examples("OpenTelemetry")[0])["credits"] == CREDITS
    (span,) = exporter.get_finished_spans()
    assert span.name == "GET"
    shown = span.to_json()
    assert service.url in shown
    assert not contains_secret(shown.encode(), KEY)
    assert contains_secret(service.heads[0], KEY)


@pytest.mark.parametrize("title", ["Tests with `httpx.MockTransport`", "Tests with respx"])
def test_mocks(title: str) -> None:
    assert run(examples(title)[0])["credits"] == 500


def test_a_client_without_kept_connections(service: Service) -> None:
    (code,) = examples("Guarantees with a client of your own")
    twice = code + "    client.credit_usage()\n"
    assert run(twice)["credits"] == CREDITS
    assert (len(service.heads), service.connections) == (2, 2)


def test_debug_logging_has_neither_headers_nor_key(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("weblake.client")
    level = logger.level
    try:
        assert run(examples("Debug logging")[0])["credits"] == CREDITS
    finally:
        logger.setLevel(level)
    (record,) = [record.getMessage() for record in caplog.records if record.name == "weblake.client"]
    assert record.startswith("request method=GET path=/v2/team/credit-usage status=200 ms=")
    assert not contains_secret(record.encode(), KEY)


def test_each_example_is_run() -> None:
    ran = 2 + 1 + 1 + 1 + 1 + 1 + 1
    assert len(codes(TEXT, "python")) == ran


def test_the_extras_of_the_page_exist() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    for extra in re.findall(r"weblake\[(\w+)\]", TEXT):
        assert re.search(rf"^{extra} = \[", declared, re.MULTILINE), extra
    assert "HttpOptions" in weblake.__all__

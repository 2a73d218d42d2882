"""`weblake serve` as a process: its options, its output, its shutdown."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from polling import until

from weblake_service import server

pytestmark = pytest.mark.system
KEYS = """
[[keys]]
name = "one"
key = "test-key-red"
team = "red"
[[keys]]
name = "two"
key_env = "BLUE_KEY"
team = "blue"
[teams.blue]
credits = 0
"""
#: In milliseconds, like the timeout of the service.
FIVE_MINUTES = 300_000
Start = Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]


def run(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEBLAKE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "weblake", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean | environment,
    )


def refused(*arguments: object, **environment: str) -> tuple[int, str]:
    out, err = (child := run(*arguments, **environment)).communicate(timeout=120)
    assert out == ""
    assert "Traceback" not in err
    return child.returncode, " ".join(err.split())


def ended(child: subprocess.Popen[str]) -> tuple[float, str]:
    """Stop a process; return the seconds that this took, and its standard error."""
    asked = time.monotonic()
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    return time.monotonic() - asked, err


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[subprocess.Popen[str]] = []

    def started(*arguments: object, **environment: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        child = run("--port", 0, *arguments, **environment)
        children.append(child)
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, child.communicate()[1]
        return child, json.loads(line)

    yield started
    for child in children:
        child.kill()
        child.communicate()


def status(base: str, key: str, path: str = "/v2/crawl/active", **body: object) -> int:
    method = "POST" if body else "GET"
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.request(
        method, base + path, headers=headers, json=body or None, trust_env=False, verify=False, timeout=60
    ).status_code


@pytest.fixture
def site() -> Iterator[str]:
    """Yield a site that accepts every connection and never responds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_keys_and_teams_are_read_from_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(KEYS)
    file.chmod(0o644)
    child, ready = start("--keys", file, "--data", tmp_path / "d", BLUE_KEY="test-key-blue", WEBLAKE_API_KEY="test-key")
    base = ready["url"]
    assert set(ready) == {"url", "data"}
    assert [status(base, key) for key in ("test-key-red", "test-key-blue", "test-key")] == [200, 200, 401]
    scrape = {"url": "http://site.invalid/", "lockdown": True}
    assert [status(base, f"test-key-{team}", "/v2/scrape", **scrape) for team in ("red", "blue")] == [404, 402]
    _, said = ended(child)
    assert "chmod 600" in said
    assert "WEBLAKE_API_KEY is not a key of this service" in said
    assert "test-key" not in said
    held = b"".join(path.read_bytes() for path in (tmp_path / "d").iterdir())
    assert b"test-key" not in held


def test_a_stored_key_is_ignored_with_a_keys_file(start: Start, tmp_path: Path) -> None:
    child, first = start("--data", tmp_path / "d")
    assert status(first["url"], first["key"]) == 200
    assert first["key"] not in ended(child)[1], "a generated key is shown once"
    assert all(first["key"].encode() not in path.read_bytes() for path in (tmp_path / "d").iterdir())
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [{"name": "one", "key": "test-key-red"}]}))
    child, second = start("--data", tmp_path / "d", "--keys", file)
    assert [status(second["url"], key) for key in (first["key"], "test-key-red")] == [401, 200]
    ended(child)
    child, third = start("--data", tmp_path / "d")
    assert set(third) == {"url", "data"}
    assert [status(third["url"], key) for key in (first["key"], "test-key-red")] == [200, 401]


def test_a_warning_is_one_line(start: Start) -> None:
    child, ready = start("--data", ":memory:", "--allow-private", WEBLAKE_API_KEY="test-key")
    job = {"urls": [ready["url"]], "webhook": "http://127.0.0.1:9/"}
    assert status(ready["url"], "test-key", "/v2/batch/scrape", **job) == 200
    assert child.stderr is not None
    while "Webhook delivery" not in child.stderr.readline():
        assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert "Webhook delivery" not in child.stderr.read()


def test_limits_and_faults_apply_from_the_start(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "faults.json"
    rules.write_text(json.dumps([{"match": {"path": "/v2/crawl/active"}, "times": 1, "effect": {"status": 503}}]))
    limits = ("--credits", 10, "--requests-per-minute", 2, "--concurrency", 3, "--zero-data-retention")
    _, ready = start("--data", ":memory:", "--faults", rules, *limits, WEBLAKE_API_KEY="test-key")
    base, headers = ready["url"], {"Authorization": "Bearer test-key"}
    assert [status(base, "test-key") for _ in range(2)] == [503, 200]
    told = httpx.get(f"{base}/v2/team/credit-usage", headers=headers, trust_env=False, verify=False).json()["data"]
    assert told["planCredits"] == 10
    told = httpx.get(f"{base}/v2/concurrency-check", headers=headers, trust_env=False, verify=False).json()
    assert told["maxConcurrency"] == 3
    scrape = {"url": "http://site.invalid/", "minAge": 1, "zeroDataRetention": True}
    assert [status(base, "test-key", "/v2/scrape", **scrape) for _ in range(3)] == [404, 404, 429]


def test_testing_adds_the_admin_routes_and_says_so(start: Start) -> None:
    for options, expected in (([], 404), (["--testing"], 200)):
        child, ready = start("--data", ":memory:", *options, WEBLAKE_API_KEY="test-key")
        assert status(ready["url"], "test-key", "/_weblake/faults") == expected
        assert ("started for tests" in ended(child)[1]) == bool(options)


def test_the_service_stops_in_time_with_jobs_and_requests_running(start: Start, tmp_path: Path, site: str) -> None:
    """Without a stop, the requests would take five minutes."""
    child, ready = start("--data", tmp_path / "d", "--allow-private", WEBLAKE_API_KEY="test-key")
    base, headers = ready["url"], {"Authorization": "Bearer test-key"}
    asked = {"urls": [site] * 30, "timeout": FIVE_MINUTES}
    job = httpx.post(f"{base}/v2/batch/scrape", json=asked, headers=headers, trust_env=False, verify=False).json()["id"]

    def wait() -> None:
        with httpx.Client(headers=headers, trust_env=False, verify=False, timeout=300) as client:
            try:
                client.post(f"{base}/v2/scrape", json={"url": site, "timeout": FIVE_MINUTES})
            except httpx.HTTPError:
                return

    waiting = threading.Thread(target=wait)
    waiting.start()
    read = partial(httpx.get, headers=headers, trust_env=False, verify=False)
    until(lambda: read(f"{base}/v2/concurrency-check").json()["concurrency"] >= 9)
    seconds, said = ended(child)
    waiting.join()
    assert seconds < 10 * server._GRACE_S
    assert "go on with the next start" in said
    _, later = start("--data", tmp_path / "d", "--allow-private", WEBLAKE_API_KEY="test-key")
    again = read(f"{later['url']}/v2/batch/scrape/{job}").json()
    assert (again["status"], again["total"]) == ("scraping", 30)


def test_a_port_in_use_is_reported_and_no_key_is_stored(start: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = refused("--port", taken.getsockname()[1], "--data", tmp_path / "d")
        assert (code, "cannot listen" in said, "Name another port" in said) == (2, True, True)
    with sqlite3.connect(tmp_path / "d" / "service.db") as db:
        assert db.execute("SELECT count(*) FROM api_keys").fetchone() == (0,)
    db.close()
    child, ready = start("--data", tmp_path / "d")
    assert status(ready["url"], ready["key"]) == 200
    code, said = refused("--port", 0, "--data", tmp_path / "d")
    assert (code, "Another process already serves" in said) == (1, True)
    ended(child)


def test_invalid_options_are_refused_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("[[keys")
    for option, value, told in (
        ("--keys", tmp_path / "none", "cannot be read"),
        ("--keys", broken, "cannot be decoded"),
        ("--faults", tmp_path / "none.toml", "cannot be read"),
        ("--concurrency", 0, "--concurrency"),
        ("--credits", -1, "--credits"),
        ("--requests-per-minute", 0, "--requests-per-minute"),
        ("--port", 70000, "--port"),
    ):
        code, said = refused(option, value, "--data", ":memory:")
        assert (code, told in said) == (2, True), said


def test_listening_beyond_loopback_gives_a_warning(start: Start) -> None:
    child, _ = start("--host", "0.0.0.0", "--data", ":memory:")
    assert "travel in the clear" in ended(child)[1]
    child, _ = start("--data", ":memory:")
    assert "clear" not in ended(child)[1]

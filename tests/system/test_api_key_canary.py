"""Every byte that a run of the command line prints or writes is searched for the API key."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from catalogue import proves
from live_files import find_files
from secret_search import contains_secret, in_files
from supervised_processes import descendants

from weblake_service.server import LocalService

#: As in conftest.py; the first test asserts that it is the key in use.
CANARY = "canary-of-the-system-tests"
#: The command line with every logger at its lowest level, including those of the network layer.
LOUD = "import logging; logging.basicConfig(level=1); from weblake.cli import main; main()"
#: A file that needs conversion.
DOCUMENT = Path(__file__).parents[1] / "service/documents/tides.docx"
GONE = "11111111-2222-4333-8444-555555555555"


def commands(site: str, lake: str, file: Path) -> list[tuple[str, ...]]:
    """Return one command of each kind; some of them fail."""
    urls = [f"{site}/1", f"{site}/2", "http://127.0.0.1:9/"]
    file.write_text("<title>Local</title><main><p>a page in a file</p></main>")
    return [
        ("batch", *urls, "--to", lake, "--json"),
        ("batch", *urls, "--to", lake),
        ("crawl", f"{site}/", "--limit", "4", "--to", lake),
        ("crawl", f"{site}/", "--limit", "4", "--to", lake, "--detach", "--key", "another"),
        ("scrape", f"{site}/3", "--to", lake, "--json"),
        ("scrape", f"{site}/3"),
        ("parse", str(file), "--to", lake, "--json"),
        ("usage", "credits", "--by-api-key", "--to", lake),
        ("usage", "tokens", "--json"),
        ("activity", "--to", lake),
        ("loads", lake, "--json"),
        ("orphans", lake),
        ("map", f"{site}/"),
        ("search", "page"),
        ("crawls",),
        ("preview", f"{site}/", "the news"),
        ("browser", "create"),
        ("land", "batch", GONE, "--to", lake, "--timeout", "1"),
        ("status", "crawl", GONE, "--json"),
        ("cancel", "batch", GONE),
        ("errors", "batch", GONE),
        ("batch", f"{site}/1", "--to", lake, "--new", "--max-credits", "0"),
        ("scrape", f"{site}/1", "--option", "nonsense=1", "--json"),
    ]


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """Yield what all loggers of this process write, at their lowest level.

    Another test in this process may have run a program that configures loggers, such as Airflow.
    """
    written = io.StringIO()
    handler, root = logging.StreamHandler(written), logging.getLogger()
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    others = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.level, each.disabled, each.propagate) for each in (root, *others)]
    root.addHandler(handler)
    for logger in others:
        logger.setLevel(logging.NOTSET)
        logger.disabled, logger.propagate = False, True
    root.setLevel(1)
    yield written
    for logger, level, disabled, propagate in before:
        logger.setLevel(level)
        logger.disabled, logger.propagate = disabled, propagate
    root.removeHandler(handler)


def printed(runs: list[Any]) -> list[str]:
    """Return the runs that printed the key."""
    return [str(run) for run in runs if contains_secret((run.out + run.err).encode(), CANARY)]


# Sabotage of the ledger: it records the key with the service.
@proves(
    "S1",
    at="src/weblake/client/__init__.py",
    line='return "embedded" if self._settings is None else self._settings.base_url.label',
    becomes='return "embedded" if self._settings is None else f"service of {self._settings.api_key._value}"',
)
# Sabotage of the log: a debugging line shows the key.
@proves(
    "4.1",
    at="src/weblake/http/transport.py",
    line="url = self.base.join(request.path)",
    becomes='url = self.base.join(request.path); __import__("logging").debug(f"{self._key.header().decode()}")',
)
@pytest.mark.system
def test_s1_no_output_or_file_of_a_run_contains_the_key(
    weblake_command: Any, service: Any, site: str, tmp_path: Path, logs: io.StringIO
) -> None:
    assert service.key == CANARY
    lake = tmp_path / "lake"
    separate = replace(weblake_command, program=("-c", LOUD))
    for n, command in enumerate(commands(site, str(lake), tmp_path / "page.html")):
        run = (weblake_command if n else separate)(*command)
        assert run.code in (0, 1, 2), run.err
    assert printed(weblake_command.ran) == []
    assert not contains_secret(logs.getvalue().encode(), CANARY)
    for text in (weblake_command.ran[0].err, logs.getvalue()):
        assert "receive_response_body.complete" in text, "the logs are at their lowest level"
    files = sorted(lake.rglob("*.parquet"))
    assert any(b"weblake" in repr(pq.read_metadata(file).metadata).encode() for file in files), "with footers"
    assert (tmp_path / "service" / "service.db").exists()
    assert in_files([tmp_path], CANARY) == []  # the dataset, its ledger, and the service's database


def test_s1_the_files_of_a_killed_run_do_not_contain_the_key(
    weblake_command: Any, service: Any, site: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    process = weblake_command.start("batch", f"{site}/1", "--to", str(lake), "--json")
    until = time.monotonic() + 240
    while not find_files(lake, "**/*.json"):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    assert not contains_secret(Path(f"/proc/{process.pid}/cmdline").read_bytes(), CANARY)
    process.send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert not contains_secret((out + err).encode(), CANARY)
    assert in_files([tmp_path], CANARY) == []
    assert weblake_command("batch", f"{site}/1", "--to", str(lake), "--json").code == 0
    assert in_files([tmp_path], CANARY) == []


# A process that reads untrusted files must not have the key.
@proves(
    "S1",
    at="src/weblake_service/files/converter_pool.py",
    line="if name.upper() in _ENVIRONMENT}",
    becomes="if True}",
)
def test_s1_no_process_that_reads_a_file_has_the_key_in_its_environment(
    weblake_command: Any, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBLAKE_API_KEY", CANARY)
    run = weblake_command("parse", str(DOCUMENT), "--json")
    assert run.code == 0, run.err
    children = descendants(os.getpid())
    assert children, "a process that converts files is kept for the next one"
    for pid in children:
        for name in ("cmdline", "environ", "comm"):
            assert not contains_secret(Path(f"/proc/{pid}/{name}").read_bytes(), CANARY), f"{name} of process {pid}"


def test_s1_a_rejected_key_is_not_shown(weblake_command: Any, site: str, tmp_path: Path) -> None:
    weblake_command.env["WEBLAKE_API_KEY"] = CANARY + "-wrong"
    run = weblake_command("batch", f"{site}/1", "--to", str(tmp_path / "lake"), "--json")
    assert run.code == 1
    assert run.json["error"]["type"] == "AuthenticationFailed"
    assert "WEBLAKE_API_KEY" in run.json["error"]["hint"]
    assert printed(weblake_command.ran) == []


def test_s1_the_key_of_the_embedded_service_is_in_one_private_file(tmp_path: Path, site: str) -> None:
    """Other processes of the user find the key there while the service runs; other users cannot read it."""
    from weblake.client import embedded

    with LocalService(tmp_path / "service.db", allow_private=True) as service:
        embedded._write_address(tmp_path, service)
        (found,) = in_files([tmp_path], service.key)
        assert found == f"file {tmp_path / 'service.json'}"
        assert (tmp_path / "service.json").stat().st_mode & 0o777 == 0o600

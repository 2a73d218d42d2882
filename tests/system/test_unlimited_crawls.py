"""A crawl without a limit: its possible cost is shown and confirmed before the start."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weblake_service.server import LocalService

ASK = "Crawl without a limit? [y/N]"
COST = "reach 10,000 pages and cost up to 10,000 credits"


def starts(service: LocalService) -> int:
    return sum(request["method"] == "POST" for request in service.requests())


class Terminal:
    """A command with a terminal on standard input and standard error, and a pipe on standard output."""

    def __init__(self, command: Any, *args: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weblake", *args],
            env=os.environ | command.env,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            start_new_session=True,
        )
        os.close(theirs)
        self.said = ""

    def until(self, text: str) -> None:
        while text not in self.said:
            self.said += os.read(self._ours, 4096).decode()  # raises when the command has ended

    def answer(self, text: str) -> tuple[int, str]:
        os.write(self._ours, text.encode())
        return self.end()

    def end(self) -> tuple[int, str]:
        """Return the exit code and standard output."""
        try:
            while data := os.read(self._ours, 4096):
                self.said += data.decode()
        except OSError:  # the end of a terminal
            pass
        out = self.process.communicate(timeout=240)[0]
        os.close(self._ours)
        return self.process.returncode, out


def test_an_unlimited_crawl_without_a_terminal_requires_a_limit(
    weblake_command: Any, service: LocalService, site: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    refused = weblake_command("crawl", f"{site}/", "--to", str(lake), "--json")
    assert refused.code == 2, refused.err
    assert refused.json["error"]["type"] == "InvalidOption"
    for said in (COST, "--limit", "--max-credits", "--yes"):
        assert said in refused.err
    assert (service.requests(), lake.exists()) == ([], False), "nothing was requested, started or written"


def test_yes_skips_the_question_and_a_started_load_does_not_ask(
    weblake_command: Any, service: LocalService, site: str, tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    command = ("crawl", f"{site}/", "--to", lake, "--json")
    detached = weblake_command(*command, "--detach")
    assert detached.code == 2, "a job that is left running costs as much"
    started = weblake_command(*command, "--detach", "--yes")
    assert started.code == 0, started.err
    assert COST in started.err
    assert "credits are left" in started.err
    landed = weblake_command(*command)
    assert (landed.code, landed.json["stored"]) == (0, 30), landed.err
    assert COST not in landed.err
    again = weblake_command(*command)
    assert (again.code, again.json["job_id"]) == (0, started.json["job_id"])
    assert starts(service) == 1


@pytest.mark.system
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param("y\n", 0, id="yes"),
        pytest.param("\n", 1, id="default", marks=pytest.mark.system),
        pytest.param("\x04", 1, id="end of input"),
    ],
)
def test_an_unlimited_crawl_asks_on_a_terminal(
    weblake_command: Any, service: LocalService, site: str, tmp_path: Path, answer: str, code: int
) -> None:
    lake = tmp_path / "lake"
    terminal = Terminal(weblake_command, "crawl", f"{site}/", "--to", str(lake), "--json")
    terminal.until(ASK)
    assert COST in terminal.said
    assert "credits are left" in terminal.said
    assert starts(service) == 0
    ended, out = terminal.answer(answer)
    assert ended == code, terminal.said
    assert out.startswith("{"), "standard output contains only the JSON object"
    assert starts(service) == (code == 0)
    if code:
        assert not lake.exists()
        assert "--limit" in terminal.said.rpartition(ASK)[2]


@pytest.mark.system
def test_ctrl_c_at_the_question_starts_nothing(
    weblake_command: Any, service: LocalService, site: str, tmp_path: Path
) -> None:
    terminal = Terminal(weblake_command, "crawl", f"{site}/", "--to", str(tmp_path / "lake"))
    terminal.until(ASK)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end()[0] == 130
    assert starts(service) == 0

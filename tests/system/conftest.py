"""A small site and a real service on loopback, and the command line in this process or as a separate one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command_in_process import run_command

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake_service.server import LocalService

sys.path.insert(0, str(Path(__file__).parent))

CANARY = "canary-of-the-system-tests"
PROGRAM = ("-m", "weblake")


def answer(asked: LoopbackRequest) -> LoopbackResponse:
    """Pages /0 to /29, each linking to the next two; /secret is behind robots.txt; anything else is a 404."""
    if asked.path == "/robots.txt":
        return LoopbackResponse(200, b"User-agent: *\nDisallow: /secret\n", {"Content-Type": "text/plain"})
    name = asked.path.strip("/") or "0"
    if not name.isdigit() or int(name) >= 30:
        html = "<title>Nothing</title><p>There is nothing here.</p>"
        return LoopbackResponse(404, html.encode(), {"Content-Type": "text/html"})
    n = int(name)
    links = "".join(f'<a href="/{m}">page {m}</a> ' for m in (n + 1, n + 2) if m < 30)
    main = f"<h1>Page {n}</h1><p>Ünïcode № {n} 日本語</p>{links}<a href='/secret'>s</a>"
    html = f"<title>Page {n}</title><main>{main}</main>"
    return LoopbackResponse(200, html.encode(), {"Content-Type": "text/html; charset=utf-8"})


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    with LoopbackServer(answer) as server:
        yield server.url


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    with LocalService(tmp_path / "service" / "service.db", keys=CANARY) as running:
        yield running


@dataclass
class Run:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@dataclass
class CommandLine:
    """Runs the command line against one service: in this process, or in one of its own if `program` is set."""

    env: dict[str, str] = field(default_factory=dict)
    ran: list[Run] = field(default_factory=list)
    #: Arguments of Python, for a process of its own.
    program: tuple[str, ...] = ()

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *(self.program or PROGRAM), *args],
            env=os.environ | self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, *args: str) -> Run:
        if self.program:
            process = self.start(*args)
            out, err = process.communicate(timeout=240)
            code = process.returncode
        else:
            code, out, err = run_command(args, self.env)
        run = Run(code, out, err)
        self.ran.append(run)
        return run


@pytest.fixture
def weblake_command(service: LocalService) -> CommandLine:
    return CommandLine({"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": service.key, "NO_COLOR": "1"})


@pytest.fixture
def weblake_process(weblake_command: CommandLine) -> CommandLine:
    """Return the command line as a separate process, for what depends on one."""
    return replace(weblake_command, program=PROGRAM)


@pytest.fixture
def lab(service: LocalService, site: str, weblake_command: CommandLine, tmp_path: Path) -> Iterator[Any]:
    """Yield a completed job and roots for crash tests of its landing (crash_lab.Lab)."""
    from crash_lab import crash_lab  # imports four readers, which most tests here do not need

    with crash_lab(service, site, weblake_command.env, tmp_path) as made:
        yield made

"""`weblake serve` as a separate process, for clients written by others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from weblake.testing import WeblakeLlm

KEY = "test-key"


@dataclass(frozen=True)
class Served:
    """A running service."""

    url: str
    key: str
    log: Path


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a service with its own database; it may scrape this machine, and signs its webhooks."""
    with _serving(tmp_path_factory.mktemp("served"), _own(request)) as service:
        yield service


@pytest.fixture
def served_with_llm(request: pytest.FixtureRequest, tmp_path: Path, weblake_llm: WeblakeLlm) -> Iterator[Served]:
    """Yield the same with a language model, which is a scripted endpoint."""
    with _serving(tmp_path, {**_own(request), **weblake_llm.environment()}) as service:
        yield service


def _own(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the environment variables for the services of a module."""
    return {"WEBLAKE_CHROMIUM": "/nowhere/chromium"} if getattr(request.module, "WITHOUT_A_BROWSER", False) else {}


@contextmanager
def _serving(home: Path, more: dict[str, str]) -> Iterator[Served]:
    log = home / "log.txt"
    command = [sys.executable, "-m", "weblake", "serve", "--port", "0", "--data", str(home / "data"), "--allow-private"]
    environment = {**os.environ, "WEBLAKE_API_KEY": KEY, "WEBLAKE_WEBHOOK_SECRET": "test-secret", **more}
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the service did not start: {log.read_text()}"
        yield Served(json.loads(line)["url"], KEY, log)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()  # type: ignore[union-attr]

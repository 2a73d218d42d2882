"""Fixtures that run the demo as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def hidden() -> list[str]:
    """Modules that the demo's process does not find."""
    return []


@pytest.fixture
def demo(hidden: list[str], tmp_path: Path, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the demo as a process, with TMPDIR `scratch`."""
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); from weblake.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "demo", "--to", str(tmp_path / "lake")],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()

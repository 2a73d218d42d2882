"""Environments of their own for tests whose packages the workspace does not have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(folder: Path, packages: Sequence[str]) -> str:
    """Make a virtual environment with packages, and return its Python; in seconds if they are in uv's cache."""
    python = f"{folder}/bin/python"
    for command in (
        ["venv", "-q", "--python", sys.executable, str(folder)],
        ["pip", "install", "-q", "-p", python, *packages],
    ):
        # In the repository: its settings bound the versions.
        done = subprocess.run(["uv", *command], cwd=ROOT, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
    return python

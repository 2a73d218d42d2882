"""The tutorial about a folder of Parquet, run literally in an empty folder; its outputs are those of the page."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from tutorials import follow

PAGE = Path(__file__).parents[2] / "docs" / "site" / "tutorials" / "folder.md"
INSTALL = "\n".join(
    (
        "uv build --all-packages -o dist",
        "uv venv && . .venv/bin/activate",
        "uv pip install --find-links dist 'weblake[local]' duckdb",
    )
)


@pytest.mark.system
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    work = tmp_path / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEBLAKE")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": "200",
    }
    follow(PAGE, work, environment, {INSTALL: ":", "8765": port})  # the installation is that of this environment

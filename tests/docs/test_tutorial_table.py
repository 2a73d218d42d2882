"""The tutorial about tables, run literally in an empty folder; its outputs are those of the page."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/site/tutorials/table.md"
BLOCK = re.compile(r'^```(sh|text|python)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: What differs from run to run: ids, times, sizes and the blanks of a table.
VARIES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16}\b|\d{4}-\d\d-\d\d \d\d:\d\d UTC|[\d,]+ bytes|[ \n]+")


def script(page: str) -> str:
    """Return the shell's program of a page, with a line of form feeds after each block."""
    program = "set -e\n"
    for language, title, code in BLOCK.findall(page):
        if language == "python":
            code = f"cat > {title} <<'END'\n{code}END\n"
        if language != "text" and "uv build" not in code:
            program += code + "printf '\\f'\n"
    return program


@pytest.mark.system
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        page = PAGE.read_text().replace("8765", str(probe.getsockname()[1]))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "300"}
    process = subprocess.Popen(
        ["bash", "-c", script(page)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=200)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    printed = [VARIES.sub(" ", each).strip() for each in output.split("\f")]
    expected = [VARIES.sub(" ", code).strip() for language, _, code in BLOCK.findall(page) if language == "text"]
    assert len(expected) > 3
    assert [each for each in printed if each] == expected

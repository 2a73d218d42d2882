"""The tutorial about the first asset, run literally in an empty folder; its outputs are those of the page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab_resources import free_port

PAGE = Path(__file__).parents[2] / "docs/site/tutorials/dagster.md"
BLOCK = re.compile(r'^```(sh|text|python)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: What differs from run to run: ids, times and the blanks of a table.
VARIES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16}\b|\d{4}-\d\d-\d\d( \d\d:\d\d)?|[ \n]+")


def script(page: str) -> str:
    """Return the shell's program of a page, with a form feed after each block."""
    program = "set -e\n"
    for language, title, code in BLOCK.findall(page):
        if language == "python":
            code = f"cat > {title} <<'END'\n{code}END\n"
        if code == "dg dev\n":  # until it answers, in place of a person who ends it
            port = free_port()
            code = f"dg dev --port {port} > dev.log 2>&1 &\nDEV=$!\n"
            code += f"until curl -sf -o dev.json http://127.0.0.1:{port}/server_info; do sleep 0.2; done\nkill $DEV\n"
        if language != "text" and "uv build" not in code:
            program += code + "printf '\\f'\n"
    return program


@pytest.mark.system
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    page = PAGE.read_text().replace("8765", str(free_port())).replace("8900", str(free_port()))
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "WEBLAKE_"))}
    path = f"{Path(sys.executable).parent}:{ours['PATH']}"
    process = subprocess.Popen(
        ["bash", "-c", script(page)],
        cwd=tmp_path,
        env=ours | {"PATH": path, "COLUMNS": "100", "HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=280)[0]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    output = output.replace(str(tmp_path), "/home/me/first-asset")
    printed = [VARIES.sub(" ", each).strip() for each in output.split("\f")]
    expected = [VARIES.sub(" ", code).strip() for language, _, code in BLOCK.findall(page) if language == "text"]
    assert len(expected) == 5
    assert [each for each in printed if each] == expected

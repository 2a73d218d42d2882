"""The tutorials, run literally in an empty folder: the blocks of a page in their order; their outputs are the page's.

- A `sh` block runs in the page's one session of bash; the installation is that of this environment.
- A block of another language with `title="name"` is written to the file of that name.
- A `text` block is the output of the `sh` blocks before it. `…` stands for any text; ids, times, sizes of files and the
  widths of columns may differ from the page.

tests/airflow_provider/test_airflow_docs.py has the one about Airflow.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab_resources import free_port

pytestmark = pytest.mark.system

TUTORIALS = Path(__file__).parents[2] / "docs" / "site" / "tutorials"
BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: What differs from run to run.
VARIES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16}\b|\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?|[\d,]+ bytes|─+")


def program(page: str) -> str:
    """Return the shell's program of a page; each block of outputs begins with a form feed."""
    lines = []
    for language, title, code in BLOCK.findall(page):
        if language == "sh" and "uv build" not in code:
            lines.append(code)
        elif language == "text":
            lines.append("printf '\\f'")
        elif title:
            lines.append(f"cat > {title} <<'END OF THE FILE'\n{code}END OF THE FILE")
    return "\n".join(lines)


def masked(text: str) -> str:
    return re.sub(r"\s+", " ", VARIES.sub("#", text)).strip()


@pytest.mark.parametrize(("name", "columns"), [("folder", 200), ("table", 200), ("testing", 80), ("dagster", 100)])
def test_a_tutorial_prints_what_it_says(tmp_path: Path, name: str, columns: int) -> None:
    page = (TUTORIALS / f"{name}.md").read_text().replace("/home/me/first-asset", str(tmp_path))
    for port in ("8765", "8766", "8900"):
        page = page.replace(port, str(free_port()))
    port = free_port()  # of a server that ends when it has answered, in place of a person who ends it
    serve = f"dg dev --port {port} > dev.log 2>&1 &\nDEV=$!"
    until = f"until curl -sf -o dev.json http://127.0.0.1:{port}/server_info; do sleep 0.2; done"
    page = page.replace("\ndg dev\n", f"\n{serve}\n{until}\nkill $DEV\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "WEBLAKE"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": str(columns),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PYTEST_ADDOPTS": "-p weblake.testing",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    session = subprocess.Popen(
        ["bash", "-c", program(page)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed = session.communicate(timeout=280)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):  # a page may have ended all that it started
            os.killpg(session.pid, signal.SIGKILL)
    expected = [code for language, _, code in BLOCK.findall(page) if language == "text"]
    assert len(expected) > 3
    for found, text in zip(printed.split("\f")[:-1], expected, strict=True):
        wanted = ".*".join(re.escape(masked(part)) for part in text.split("…"))
        assert re.fullmatch(wanted, masked(found), re.DOTALL), f"{found}\nis not\n{text}"

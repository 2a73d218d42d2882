"""Tutorials that are run literally: the blocks of a page in their order, and the printed output compared with the page.

- A `sh` block runs in the page's one session of bash, and has to succeed.
- A block of another language with `title="name"` is written to the file of that name.
- A `text` block is the output of the `sh` block before it. `…` stands for any text; ids, times, sizes of files and the
  widths of columns may differ from the page.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
#: What differs from run to run.
_VARIES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16}\b|\d{4}-\d\d-\d\d[ T]\d\d:\d\d|load_date=[\d-]+|[\d,]+ bytes|─+"
)


def program(page: str) -> tuple[str, list[str | None]]:
    """Return the shell's program of a page, with a form feed after the output of each block, and the page's outputs."""
    lines, outputs = ["set -e"], list[str | None]()
    for language, title, code in BLOCK.findall(page):
        if language == "sh":
            lines.append(f"{code}printf '\\f'")
            outputs.append(None)
        elif language == "text":
            outputs[-1] = code
        elif title:
            lines.append(f"cat > {title} <<'END OF THE FILE'\n{code}END OF THE FILE")
    return "\n".join(lines), outputs


def follow(
    page: Path, folder: Path, environment: Mapping[str, str], instead: Mapping[str, str], timeout_s: float = 250
) -> None:
    """Run a page in an empty folder.

    Args:
        page: The file of the page.
        folder: The folder in which the session starts.
        environment: The variables of the session.
        instead: What replaces a text of the page: a fixed port, the place of the wheels.
        timeout_s: Seconds for the whole page.

    Raises:
        AssertionError: A block failed, or its output is not that of the page.
    """
    text = page.read_text("utf-8")
    for old, new in instead.items():
        assert old in text, f"{page.name} does not have {old}"
        text = text.replace(old, new)
    script, outputs = program(text)
    session = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed = session.communicate(timeout=timeout_s)[0]
    finally:
        if session.returncode is None:
            os.killpg(session.pid, signal.SIGKILL)
    assert session.returncode == 0, printed
    for expected, found in zip(outputs, printed.split("\f")[:-1], strict=True):
        if expected is not None:
            wanted = ".*".join(re.escape(_masked(part)) for part in expected.split("…"))
            assert re.fullmatch(wanted, _masked(found), re.DOTALL), f"{found}\nis not\n{expected}"


def _masked(text: str) -> str:
    return re.sub(r"\s+", " ", _VARIES.sub("#", text)).strip()

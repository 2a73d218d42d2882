"""The blocks of code of a page of the documentation, also those in tabs, and the run of a tutorial."""

from __future__ import annotations

import re
import signal
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from supervised_processes import end

BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"\n]*)")?[^\n]*\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
#: What differs from one run of a tutorial to the next.
_VARIES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16}\b|\d{4}-\d\d(?:-\d\d(?:[ T]\d\d:\d\d)?)?|[\d,]+ bytes|─+|█+"
)


class Block(NamedTuple):
    """A block of code; the title is empty if it has none."""

    language: str
    title: str
    code: str


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page or a section in their order."""
    return [Block(language, title, textwrap.dedent(code)) for _, language, title, code in BLOCK.findall(text)]


def codes(text: str, language: str) -> list[str]:
    """Return the code of the blocks of one language in their order."""
    return [block.code for block in blocks(text) if block.language == language]


def files(text: str) -> dict[str, str]:
    """Return the code of the blocks whose title is the name of a file, by that name."""
    return {block.title: block.code for block in blocks(text) if re.fullmatch(r"[\w./]+\.\w+", block.title)}


def section(text: str, title: str) -> str:
    """Return the part of a page below a heading of the second level."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def follow(
    page: str, folder: Path, environment: Mapping[str, str], *, strict: bool = True, timeout_s: float = 280
) -> None:
    """Run a tutorial literally in an empty folder, and compare its outputs with those of the page.

    - The `sh` blocks run in one session of bash with job control, as in a terminal; the installation is left out.
    - A block of another language with a title is written to the file of that name.
    - A `text` block is the output of the `sh` blocks before it. `…` stands for any text; ids, times, sizes of files and
      the widths of columns and bars may differ from the page.

    Args:
        page: The text of the page.
        folder: The folder in which the session starts.
        environment: The variables of the session.
        strict: Whether each command has to succeed.
        timeout_s: Seconds for the whole page.

    Raises:
        AssertionError: A command failed, or an output is not that of the page; the message has both.
    """
    lines = ["set -em" if strict else "set -m"]
    for language, title, code in blocks(page):
        if language == "sh" and "uv build" not in code:
            lines.append(code)
        elif language == "text":
            lines.append("printf '\\f'")
        elif title:
            lines.append(f"cat > {title} <<'END OF THE FILE'\n{code}END OF THE FILE")
    session = subprocess.Popen(
        ["bash", "-c", "\n".join(lines)],
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
        end({session.pid: signal.SIGKILL}, grace=0)
    assert session.returncode == 0 or not strict, printed
    expected = codes(page, "text")
    found = printed.split("\f")[:-1]
    assert len(found) == len(expected) > 3, printed
    for output, text in zip(found, expected, strict=True):
        wanted = ".*".join(re.escape(_masked(part)) for part in text.split("…"))
        assert re.fullmatch(wanted, _masked(output), re.DOTALL), f"{output}\nis not\n{text}"


def _masked(text: str) -> str:
    text = re.sub(r"^\[\d+\].*Terminated.*$", "", text, flags=re.MULTILINE)  # by the shell, sooner or later
    return re.sub(r"\s+", " ", _VARIES.sub("#", text)).strip()

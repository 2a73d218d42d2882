"""The command line and the files of an execution, for node, python and bash.

`node` is the binary that Playwright includes, and `python` is the service's own: Playwright is available in both
without installation. `agent-browser` is on PATH for all languages.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

#: The names of the `agent-browser` command.
COMMANDS = ("agent-browser", "browser")
#: Maximum heap size of node in megabytes.
_NODE_HEAP_MB = 2048
_HERE = Path(__file__).parent


class LanguageMissing(Exception):
    """The interpreter of a language is missing; the message says what to install."""


def write_files(room: Path, code: str, language: str) -> list[str]:
    """Write the code and the `agent-browser` command into an empty folder; return the command line that runs the code.

    Raises:
        LanguageMissing: The language cannot be run here.
    """
    file = room / {"node": "code.js", "python": "code.py", "bash": "code.sh"}[language]
    # Lone surrogates are valid in JSON but not in a file; they are written as question marks.
    file.write_bytes(code.encode("utf-8", "replace"))
    _put_commands(room / "bin")
    if language == "bash":
        return [_bash(), str(file)]
    playwright = _playwright(language)
    if language == "python":
        # -I: no module of the user's folder or environment can shadow the intended ones.
        return [sys.executable, "-I", "-X", "utf8", str(_HERE / "harness.py"), str(room), *_paths()]
    node = playwright / "driver" / "node"
    flags = ["--expose-internals", f"--max-old-space-size={_NODE_HEAP_MB}", "--disable-warning=ExperimentalWarning"]
    return [str(node), *flags, str(_HERE / "harness.mjs"), str(room), str(playwright / "driver" / "package")]


def search_path(room: Path) -> str:
    """Return PATH for code in this folder: the `agent-browser` command first, then the service's PATH."""
    return os.pathsep.join([str(room / "bin"), os.environ.get("PATH") or os.defpath])


def _put_commands(folder: Path) -> None:
    folder.mkdir()
    program = shlex.join([sys.executable, "-I", "-S", str(_HERE / "agent_browser.py")])
    for name in COMMANDS:
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {program} "$@"\n', "utf-8")
        file.chmod(0o755)


def _paths() -> list[str]:
    """Return the service's module paths: an isolated Python ignores PYTHONPATH."""
    return [path for path in sys.path if Path(path).is_absolute()]


def _playwright(language: str) -> Path:
    spec = find_spec("playwright")
    if spec is None or spec.origin is None:
        message = f"{language} needs weblake[browser], which is not installed: pip install 'weblake[browser]'"
        raise LanguageMissing(message)
    return Path(spec.origin).parent


def _bash() -> str:
    found = shutil.which("bash")
    if found is None:
        raise LanguageMissing("bash is not installed where the service runs: apt-get install bash")
    return found

"""Files below a directory in which other processes work; `Path.glob` fails at a directory that vanishes meanwhile."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path


def find_files(root: Path, pattern: str) -> list[str]:
    """Return the paths that match a pattern; `**` matches any directories, and `*` no name that begins with a dot."""
    return glob.glob(str(root / pattern), recursive=True)


def walk(root: Path) -> Iterator[Path]:
    """Yield all files and directories below a directory."""
    for folder, folders, files in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *files))

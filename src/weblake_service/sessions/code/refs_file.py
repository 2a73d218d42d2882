"""State of `agent-browser` between calls: refs of the last snapshot, and the order of pages.

The state is a small file in the execution's folder; if it is deleted or damaged, a new snapshot is needed.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weblake_service.sessions.accessibility_snapshot import Ref, Snapshot
from weblake_service.sessions.open_pages import OpenPage

_FILE_NAME = ".agent-browser.json"


def load(folder: Path, target: str) -> Snapshot | None:
    """Return the last snapshot, without its text; None if it belongs to another page."""
    with suppress(KeyError, TypeError, AttributeError):
        kept = _read(folder)["snapshot"]
        if kept["target"] == target:
            refs = {name: Ref(int(ref["node"]), ref["role"], ref["name"]) for name, ref in kept["refs"].items()}
            return Snapshot("", refs, kept["loader"])
    return None


def save(folder: Path, target: str, shot: Snapshot) -> None:
    """Store a snapshot's refs."""
    refs = {name: asdict(ref) for name, ref in shot.refs.items()}
    _write(folder, {**_read(folder), "snapshot": {"target": target, "loader": shot.loader, "refs": refs}})


def in_listed_order(folder: Path, pages: list[OpenPage]) -> list[OpenPage]:
    """Return the pages in the order of the last listing, new ones at the end: the browser's own order is not stable."""
    before = _read(folder).get("pages")
    numbers = {page: number for number, page in enumerate(before)} if isinstance(before, list) else {}
    ordered = sorted(pages, key=lambda page: numbers.get(page.id, len(numbers)))
    _write(folder, {**_read(folder), "pages": [page.id for page in ordered]})
    return ordered


def _read(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        kept = json.loads((folder / _FILE_NAME).read_text("utf-8"))
        if isinstance(kept, dict):
            return kept
    return {}


def _write(folder: Path, kept: dict[str, Any]) -> None:
    # If the folder is not writable, the refs are lost; the next command reports that.
    with suppress(OSError):
        (folder / _FILE_NAME).write_text(json.dumps(kept), "utf-8")

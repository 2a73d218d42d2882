"""Addresses and sizes of what was landed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

import dagster as dg

if TYPE_CHECKING:
    import weblake
    from weblake import orchestration

#: What stands as it is in a file's URI: readers differ in whether they decode it, so as little as can be is encoded.
_SAFE = "/=@:+,!~"


def file_uri(dataset: orchestration.Dataset, name: str) -> str:
    """The full address of a file of a dataset, without credentials: `file:///…` where it is local."""
    local = dataset.storage.local_path(name)
    if local is not None:
        return f"file://{quote(str(local), safe=_SAFE)}"
    return f"{dataset.storage.url.rstrip('/')}/{name}"


def table_uri(dataset: orchestration.Dataset, name: str) -> str:
    """The same of a folder, with a slash at its end."""
    return f"{file_uri(dataset, name)}/"


def sizes(dataset: orchestration.Dataset, files: Iterable[weblake.LandedFile]) -> dict[str, dg.MetadataValue]:
    """Where the files lie, and their bytes."""
    return {
        "weblake/root": dg.MetadataValue.text(dataset.storage.url),
        "weblake/bytes": dg.MetadataValue.int(sum(file.bytes for file in files)),
    }

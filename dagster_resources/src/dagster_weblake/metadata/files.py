"""Addresses and sizes of landed files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

import dagster as dg

if TYPE_CHECKING:
    import weblake
    from weblake import orchestration

#: Characters that are not percent-encoded in a file's URI. Readers differ in whether they decode it, so as few as
#: possible are encoded.
_SAFE = "/=@:+,!~"


def file_uri(dataset: orchestration.Dataset, name: str) -> str:
    """Return the full address of a file of a dataset, without credentials: `file:///…` if it is local."""
    local = dataset.local_path(name)
    if local is not None:
        return f"file://{quote(str(local), safe=_SAFE)}"
    return f"{dataset.url.rstrip('/')}/{name}"


def table_uri(dataset: orchestration.Dataset, name: str) -> str:
    """Return the full address of a folder, with a slash at its end."""
    return f"{file_uri(dataset, name)}/"


def sizes(dataset: orchestration.Dataset, files: Iterable[weblake.LandedFile]) -> dict[str, dg.MetadataValue]:
    """Return the addresses of the files, and their bytes, as metadata."""
    return {
        "weblake/root": dg.MetadataValue.text(dataset.url),
        "weblake/bytes": dg.MetadataValue.int(sum(file.bytes for file in files)),
    }

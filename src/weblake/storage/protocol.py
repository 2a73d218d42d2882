"""The `Storage` protocol of a dataset root.

All operations of a storage are atomic: a record or a file is created in one step or not at all, and of many concurrent
writers exactly one is told that it succeeded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


class FsspecPath(Protocol):
    """A path object with its own file system, such as universal_pathlib's UPath or Airflow's ObjectStoragePath."""

    @property
    def fs(self) -> AbstractFileSystem:
        """The fsspec file system, including its credentials."""

    @property
    def path(self) -> str:
        """The path in that file system."""


RootPath = str | os.PathLike[str] | FsspecPath


class Storage(Protocol):
    """One dataset root. Names are relative to the root, with forward slashes; all failures raise StorageRefused."""

    @property
    def url(self) -> str:
        """The URL or path of the root without credentials, for messages and records."""

    def read(self, name: str) -> bytes | None:
        """Return the whole content, or None if the file certainly does not exist."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a record atomically and durably, only if absent. Of all concurrent callers exactly one gets True.

        If the response of the storage was lost, an existing record with bytes equal to `data` counts as created by this
        call: records must contain a nonce.
        """

    def publish(self, local_file: Path, name: str) -> bool:
        """Make a finished file from `scratch` visible under its final name, atomically and only if absent.

        Return True if this call published it; the scratch file may be gone then. Return False if the name was taken,
        possibly by an earlier attempt of this call whose response was lost: the caller must compare the content.
        """

    def replace(self, name: str, local_file: Path) -> None:
        """Replace the file of this name with a finished file from `scratch`, atomically."""

    def move(self, name: str, new_name: str) -> bool:
        """Rename a file, atomically and only if the new name is free.

        Return True if the file has the new name now, by this call or an earlier interrupted one. Return False, without
        any change, if another file has the new name, or if `name` does not exist and the new name is taken.
        """

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""

    def exists(self, name: str) -> bool:
        """Return whether the file exists."""

    def ensure_durable(self, name: str) -> bool:
        """Return whether the file exists; once this returns True, the file is durable, also in case of a power failure.

        A run that ended between publishing a file and making it durable leaves a file that only `exists`.
        """

    def list(self, prefix: str) -> list[str]:
        """Return the names of all finished files below a directory, sorted; `""` is the root."""

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """Yield the same names as `list` in pages and in no particular order, for folders with very many files.

        For a local root and S3 one page is in memory. Google Cloud Storage and Azure are listed as a whole.
        """

    def find_size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""

    def open_input(self, name: str) -> IO[bytes]:
        """Return a file opened as a seekable binary stream, which pyarrow accepts. The caller closes it."""

    def local_path(self, name: str) -> Path | None:
        """Return the path of a file on this machine, whether or not it exists; None on an object store."""

    def scratch(self) -> AbstractContextManager[Path]:
        """Create an empty private directory, from which `publish` and `replace` take files; removed at the end."""

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        """Prove that records can be created and files can be published below `keys_dir`, and leave no file behind.

        Args:
            keys_dir: A folder of files to be published.
            names: Names of files to be published; each is checked as far as possible without publishing.

        Raises:
            StorageRefused: The proof failed; the hint says what to do. Nothing has been paid yet.
        """

"""The door to every dataset root: a local path, memory, or an object store.

A storage can do little, and all of it whole: a record is created once or not at all, a file is published in one step
or not at all, and exactly one of many writers learns that it was the one. Local roots need neither fsspec nor an
extra.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from weblake.errors import FeatureMissing, StorageRefused
from weblake.home import home
from weblake.storage.local import LocalStorage

if TYPE_CHECKING:
    from weblake.storage.objects import FileSystem, ObjectStorage

#: Which backend speaks a URL scheme, and the extra that brings it.
BACKENDS = {
    "memory": ("memory", ""),
    "s3": ("s3", "s3"),
    "s3a": ("s3", "s3"),
    "gs": ("gcs", "gcs"),
    "gcs": ("gcs", "gcs"),
    "abfs": ("azure", "azure"),
    "abfss": ("azure", "azure"),
    "az": ("azure", "azure"),
}
_LOCAL = {"file", "local"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
#: What a message recommends. memory:// is not among it: it loses what was paid for, except in tests.
_KINDS = "a local path, s3://, gs:// or abfs://"


class FsspecPath(Protocol):
    """A path that brings its file system: universal_pathlib's UPath, Airflow's ObjectStoragePath."""

    @property
    def fs(self) -> FileSystem:
        """The fsspec file system, with whatever credentials it has."""

    @property
    def path(self) -> str:
        """The path in that file system."""


RootPath = str | os.PathLike[str] | FsspecPath


class Storage(Protocol):
    """One dataset root. Names are relative to it, with forward slashes; every failure is a StorageRefused."""

    @property
    def url(self) -> str:
        """The root as it may be shown to people: without credentials."""

    def read(self, name: str) -> bytes | None:
        """The whole content, or None if there surely is no such file."""

    def create(self, name: str, data: bytes) -> bool:
        """Writes a record whole and durably, only if absent. Of any number of callers exactly one gets True.

        Where an answer may get lost, a record that equals `data` byte for byte counts as ours: put a nonce into it.
        """

    def publish(self, local_file: Path, name: str) -> bool:
        """Makes a finished file from `scratch` visible under its final name, in one step and only if absent.

        Returns True if this call published it (the scratch file may then be gone), False if the name was taken, also
        by an earlier try of ours whose answer got lost: compare.
        """

    def replace(self, name: str, local_file: Path) -> None:
        """Puts a finished file from `scratch` in the place of what has this name, in one step."""

    def move(self, name: str, new_name: str) -> bool:
        """Gives a file another name, in one step and only if that is free.

        Returns True if it is under the new name now, by this call or an interrupted one before; False if something
        else is, or `name` is gone and the new name taken. Then nothing was changed.
        """

    def delete(self, name: str) -> None:
        """Removes a file, if it is there."""

    def delete_folder(self, name: str, known: Sequence[str] = ()) -> None:
        """Removes a folder and its files, if it is there, also after an earlier call that was interrupted.

        Args:
            name: The folder.
            known: The names of its files, where the caller knows all of them: an object store then lists nothing.
        """

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""

    def settled(self, name: str) -> bool:
        """Whether there is such a file; once this says so, not even a power cut takes it away.

        A run that died between publishing and making it durable leaves a file that only `exists`.
        """

    def list(self, prefix: str) -> list[str]:
        """The names of all files below a directory, sorted; `""` is the root. Never a file that is being written."""

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """Yield the same names as `list` a page at a time and in no order, for folders with very many files.

        A local root and S3 hold one page in memory. Google Cloud Storage and Azure are listed as a whole.
        """

    def size(self, name: str) -> int:
        """Bytes of a file, which must be there."""

    def find_size(self, name: str) -> int | None:
        """Bytes of a file, or None if there is no such file."""

    def open_input(self, name: str) -> IO[bytes]:
        """A seekable binary file, as pyarrow reads it. The caller closes it."""

    def local_path(self, name: str) -> Path | None:
        """Where a file lies (or would lie) on this machine; None on an object store."""

    def scratch(self) -> AbstractContextManager[Path]:
        """An empty directory of ours from which `publish` and `replace` take files; removed at the end."""

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        """Prove that records can be created and files be published below `keys_dir`, and leave nothing there.

        Args:
            keys_dir: A folder of files to be published.
            names: Names of files to be published: it is proven for each, as far as that shows without publishing.

        Raises:
            StorageRefused: They cannot; the hint says what to do. Nothing has been paid by then.
        """


def open_storage(root: RootPath, *, storage_options: Mapping[str, object] | None = None) -> Storage:
    """The storage of a dataset root.

    Args:
        root: A local path, `file://`, `memory://`, `s3://`, `gs://` or `abfs://` URL, or an object with `fs` and
            `path`, whose file system is used as it is. Nothing is created or contacted yet.
        storage_options: For the file system of a URL, as fsspec takes them. Default: what its backend reads from the
            environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS and the like). Local
            roots need none.

    Raises:
        StorageRefused: No such kind of storage, or a URL with credentials in it.
        FeatureMissing: The extra for it is not installed.
    """
    fs = getattr(root, "fs", None)
    path = getattr(root, "path", None)
    if fs is not None and isinstance(path, str):
        return _from_filesystem(fs, path)
    if not isinstance(root, str | os.PathLike):
        raise StorageRefused(f"A dataset root cannot be of type {type(root).__name__}.", hint=f"Give {_KINDS}.")
    text = os.fspath(root)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise StorageRefused("The dataset root is empty or no text.", hint=f"Give {_KINDS}.")
    try:
        text.encode()
    except UnicodeEncodeError:  # Arrow, object stores and the ledger's JSON have no other text
        raise StorageRefused("The dataset root is no UTF-8 text.", hint="Give it another name.") from None
    scheme = _SCHEME.match(text)
    if scheme is None and "://" not in text:
        return LocalStorage(home(text))
    if scheme is None:
        raise _unknown(text.partition("://")[0].rpartition("/")[2])
    if not text.startswith("://", scheme.end(1)):
        raise StorageRefused(
            f"{scheme[1]}:/… is no dataset root: a pathlib.Path cannot hold a URL.",
            hint="Give the URL as a string or as a universal_pathlib UPath.",
        )
    name = scheme[1].lower()
    return _from_url(name + text[scheme.end(1) :], name, storage_options or {})


def refuse_memory(storage: Storage, process: str, *, hint: str = "") -> None:
    """Raise StorageRefused for a root in memory, to be called where the data would be lost with the process.

    Args:
        storage: The root.
        process: Whose memory it is, such as "this command".
        hint: What else a caller may do, after the kinds of roots that last.
    """
    if storage.url.startswith("memory://"):
        raise StorageRefused(
            f"{storage.url} is in the memory of {process} and gone when that ends.",
            hint=f"Give {_KINDS}. {hint}".strip(),
        )


def _from_url(url: str, scheme: str, options: Mapping[str, object]) -> Storage:
    if scheme in _LOCAL:
        return LocalStorage(_local_path(url))
    if scheme not in BACKENDS:
        raise _unknown(scheme)
    backend, extra = BACKENDS[scheme]
    _check_url(url, backend)
    from weblake.storage.objects import ObjectStorage

    fs, path = _connect(url, scheme, extra, options)
    hidden = tuple(value for value in options.values() if isinstance(value, str) and len(value) > 5)
    return ObjectStorage(backend, fs, path, url.rstrip("/"), hidden)


def _connect(url: str, scheme: str, extra: str, options: Mapping[str, object]) -> tuple[FileSystem, str]:
    from fsspec.core import url_to_fs

    try:
        # Not fsspec's cached instance: that one keeps the endpoint and credentials of whoever came first.
        fs, path = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as error:
        raise FeatureMissing(
            f"{scheme}:// needs a library that is not installed ({error.name or error}).",
            hint=f"pip install 'weblake[{extra}]'",
        ) from error
    except Exception as error:  # a backend that cannot be set up says so in a type of its own
        raise StorageRefused(
            f"{scheme}:// could not be set up: {type(error).__name__}.",
            hint="Check the storage's settings in the environment, or storage_options.",
        ) from error
    return fs, path


def _from_filesystem(fs: FileSystem, path: str) -> LocalStorage | ObjectStorage:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
    if _LOCAL & set(protocols):
        return LocalStorage(Path(path))
    for protocol in protocols:
        if protocol in BACKENDS:
            from weblake.storage.objects import ObjectStorage

            return ObjectStorage(BACKENDS[protocol][0], fs, path, f"{protocol}://{path.strip('/')}")
    raise _unknown("/".join(protocols))


def _check_url(url: str, backend: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StorageRefused("The dataset root cannot be read as a URL.", hint=f"Give {_KINDS}.") from None
    user, at, _ = parts.netloc.rpartition("@")
    # abfs://container@account.host/path names a container there, and is no credential.
    if (at and backend != "azure") or ":" in user:
        raise StorageRefused(
            f"A {parts.scheme}:// root must not hold a user, key or connection.",
            hint="Set credentials in the environment, or give an ObjectStoragePath or UPath that has them.",
        )
    if parts.query or parts.fragment or "::" in url:
        raise StorageRefused(
            f"A {parts.scheme}:// root must not hold '?', '#' or '::'.",
            hint="Give bucket and prefix only; credentials belong into the environment.",
        )
    if backend != "memory" and not parts.netloc:
        raise StorageRefused(
            f"This {parts.scheme}:// root names no bucket.", hint=f"Give {parts.scheme}://bucket/prefix."
        )


def _local_path(url: str) -> Path:
    rest = url.split("://", 1)[1]
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash or re.search(r"[%?#]", path):
        raise StorageRefused(
            "A file:// root must be file:///absolute/path, without percent signs.", hint="Give the plain path instead."
        )
    return Path("/" + path)


def _unknown(scheme: str) -> StorageRefused:
    return StorageRefused(
        f"{scheme}:// is no storage that weblake can land in safely: it needs to create a file only if absent.",
        hint=f"Give {_KINDS}.",
    )

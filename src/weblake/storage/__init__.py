"""The `Storage` protocol of a dataset root, and `open_storage` for a local path, memory or an object store.

All operations of a storage are atomic: a record or a file is created in one step or not at all, and of many concurrent
writers exactly one is told that it succeeded. Local roots need neither fsspec nor an extra.
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

#: The backend of each URL scheme, and the extra that installs it.
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
#: The roots that error messages recommend. memory:// is left out: its data is lost when the process ends.
_KINDS = "a local path, s3://, gs:// or abfs://"


class FsspecPath(Protocol):
    """A path object with its own file system, such as universal_pathlib's UPath or Airflow's ObjectStoragePath."""

    @property
    def fs(self) -> FileSystem:
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

    def delete_folder(self, name: str, known: Sequence[str] = ()) -> None:
        """Delete a folder and its files if it exists, also after an earlier call that was interrupted.

        Args:
            name: The folder.
            known: The names of all its files, if the caller knows them: an object store then needs no listing.
        """

    def exists(self, name: str) -> bool:
        """Return whether the file exists."""

    def settled(self, name: str) -> bool:
        """Return whether the file exists; once this returns True, the file is durable, also in case of a power failure.

        A run that ended between publishing a file and making it durable leaves a file that only `exists`.
        """

    def list(self, prefix: str) -> list[str]:
        """Return the names of all finished files below a directory, sorted; `""` is the root."""

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """Yield the same names as `list` in pages and in no particular order, for folders with very many files.

        For a local root and S3 one page is in memory. Google Cloud Storage and Azure are listed as a whole.
        """

    def size(self, name: str) -> int:
        """Return the size of a file in bytes; the file must exist."""

    def find_size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of an existing file from `start` to before `end`; one request."""

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


def open_storage(root: RootPath, *, storage_options: Mapping[str, object] | None = None) -> Storage:
    """Return the storage of a dataset root.

    Args:
        root: A local path, `file://`, `memory://`, `s3://`, `gs://` or `abfs://` URL, or an object with `fs` and
            `path`, whose file system is used unchanged. Nothing is created or contacted yet.
        storage_options: Options for the file system of a URL, as fsspec takes them. Default: the settings that its
            backend reads from the environment (such as AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and
            GOOGLE_APPLICATION_CREDENTIALS). Local roots need none.

    Raises:
        StorageRefused: The storage is not supported, or the URL contains credentials.
        FeatureMissing: The extra for this storage is not installed.
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
    except UnicodeEncodeError:  # Arrow, object stores and the ledger's JSON support UTF-8 text only
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
    """Raise StorageRefused for a root in memory; for callers whose process ends before the data can be read.

    Args:
        storage: The storage of the root.
        process: The name of the process in the message, such as "this command".
        hint: Text that is appended to the hint, after the supported kinds of persistent roots.
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
        # Not fsspec's cached instance, which keeps the endpoint and credentials of the first caller in the process.
        fs, path = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as error:
        raise FeatureMissing(
            f"{scheme}:// needs a library that is not installed ({error.name or error}).",
            hint=f"pip install 'weblake[{extra}]'",
        ) from error
    except Exception as error:  # backends raise their own types of errors if they cannot be set up
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
    # In abfs://container@account.host/path the user part names a container and is no credential.
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
        f"{scheme}:// is not a storage that weblake can land in safely: it needs to create a file only if absent.",
        hint=f"Give {_KINDS}.",
    )

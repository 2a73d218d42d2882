"""Open a dataset root: a local path, memory or an object store. Local roots need neither fsspec nor an extra."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from weblake.credentials import home
from weblake.errors import FeatureMissing, StorageRefused
from weblake.storage.local import LocalStorage
from weblake.storage.protocol import RootPath, Storage

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from weblake.storage.objects import ObjectStorage

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
KINDS = "a local path, s3://, gs:// or abfs://"


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
        raise StorageRefused(f"A dataset root cannot be of type {type(root).__name__}.", hint=f"Give {KINDS}.")
    text = os.fspath(root)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise StorageRefused("The dataset root is empty or no text.", hint=f"Give {KINDS}.")
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
        if isinstance(root, str):
            raise StorageRefused(
                f"{scheme[1]}:/… is no dataset root: a URL has two slashes after its scheme.", hint=f"Give {KINDS}."
            )
        raise StorageRefused(
            f"{scheme[1]}:/… is no dataset root: a pathlib.Path cannot hold a URL.",
            hint="Give the URL as a string or as a universal_pathlib UPath.",
        )
    name = scheme[1].lower()
    return _from_url(name + text[scheme.end(1) :], name, storage_options or {})


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


def _connect(url: str, scheme: str, extra: str, options: Mapping[str, object]) -> tuple[AbstractFileSystem, str]:
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


def _from_filesystem(fs: AbstractFileSystem, path: str) -> LocalStorage | ObjectStorage:
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
        raise StorageRefused("The dataset root cannot be read as a URL.", hint=f"Give {KINDS}.") from None
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
        hint=f"Give {KINDS}.",
    )

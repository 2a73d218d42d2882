"""Opens a file with a list of URLs on any storage and reads it by byte range.

A list may be larger than the memory, and one worker may need a thousandth of it.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self

from weblake.errors import FixRequest, InvalidOption
from weblake.storage import BACKENDS, RootPath, open_storage
from weblake.storage.rules import hide_secrets, translate_errors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fsspec import AbstractFileSystem

_LOCAL_PROTOCOLS = {"file", "local"}


@dataclass(frozen=True, slots=True)
class UrlFile:
    """An open file with a list of URLs. Use it in a `with` block, which closes it."""

    #: The path or URL under which another process can open it; `-` for standard input.
    address: str
    #: The size in bytes.
    size: int
    #: Returns the bytes from a start to an end.
    read: Callable[[int, int], bytes]
    #: What is closed at the end of the `with` block.
    opened: ExitStack = field(default_factory=ExitStack)
    #: Whether it can be opened again; False for a pipe.
    lasting: bool = True

    @property
    def name(self) -> str:
        """The address without credentials, for messages."""
        return hide_secrets(self.address)

    def fetch(self, start: int, end: int) -> bytes:
        """Return the bytes of a range; fewer if the file ends within it.

        Raises:
            StorageRefused: The storage failed to return them.
        """
        if start >= end:
            return b""
        with translate_errors("be read", self.name):
            return self.read(start, end)

    @property
    def ending(self) -> str:
        """The file name extension in lower case, such as `.csv`."""
        return PurePosixPath(self.address).suffix.lower()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()


class RangeStream(io.RawIOBase):
    """A range of a file as a seekable stream, fetched as it is read: the bytes that are asked for, or in blocks.

    Args:
        file: The file.
        start: The first byte of the range.
        end: The end of the range; by default that of the file.
        block_bytes: Bytes of a block, for readers that ask for a few KiB at a time, as text decoders do; 0 for none.
    """

    def __init__(self, file: UrlFile, start: int = 0, end: int | None = None, *, block_bytes: int = 0) -> None:
        self._file, self._at, self._block_bytes = file, start, block_bytes
        self._end = file.size if end is None else end
        #: Bytes that have been fetched, from `_at` on.
        self._block = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in the file."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position in the file and return it."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._block = memoryview(b"")
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer from the bytes that have been fetched and return the bytes read; 0 at the end.

        Raises:
            FixRequest: The file ends before the end of the range, because it was changed meanwhile.
        """
        into = memoryview(buffer).cast("B")
        if not self._block:
            end = min(self._at + (self._block_bytes or len(into)), self._end)
            self._block = memoryview(self._file.fetch(self._at, end))
            if not self._block and self._at < end:
                raise FixRequest(
                    f"{self._file.name} became shorter while it was read.", hint="Run it again when it is complete."
                )
        taken = min(len(into), len(self._block))
        into[:taken] = self._block[:taken]
        self._block = self._block[taken:]
        self._at += taken
        return taken


def open_url_file(file: RootPath) -> UrlFile:
    """Return an open list: `-` is standard input, else a local path, a storage URL, or an object with `fs` and `path`.

    Raises:
        FixRequest: The file does not exist or cannot be read.
        InvalidOption: It is the URL of a web page, or of a storage that is not supported.
        FeatureMissing: The extra for its storage is not installed.
    """
    fs, path = getattr(file, "fs", None), getattr(file, "path", None)
    if fs is not None and isinstance(path, str):
        protocols = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
        if _LOCAL_PROTOCOLS & {*protocols}:
            return _open_local(Path(path))
        text = str(file)
        return _open_remote(fs, path, text if "://" in text else f"{protocols[0]}://{path.lstrip('/')}")
    if not isinstance(file, str | os.PathLike):
        raise InvalidOption(f"A list of URLs cannot be read from a {type(file).__name__}.", hint="Give a path or URL.")
    text = str(os.fspath(file))
    if text == "-":
        return _in_memory(text, sys.stdin.buffer.read())
    return _open_url(text) if "://" in text else _open_local(Path(text))


def _open_url(url: str) -> UrlFile:
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    url = f"{scheme}://{rest}"
    if scheme not in BACKENDS.keys() | _LOCAL_PROTOCOLS:
        page = scheme in ("http", "https")
        # Without the parts that may be a credential under any name: the user and the query.
        host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
        shown = hide_secrets(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}")
        raise InvalidOption(
            f"{shown} is {'the address of a page' if page else 'on no storage that is known'}, "
            "and no file with a list of URLs.",
            hint=("To scrape this very page give a list that holds it. " if page else "")
            + "Files are read from a local path, s3://, gs:// or abfs://.",
        )
    name = url.rpartition("/")[2]
    directory = url.removesuffix(name)
    storage = open_storage(directory)  # raises for credentials in the URL or a missing extra
    local = storage.local_path(name) if name else None
    if local is not None:
        return _open_local(local)
    from fsspec.core import url_to_fs

    # Not fsspec's cached instance, which keeps the endpoint and credentials of the first caller in the process.
    fs, path = url_to_fs(directory, skip_instance_cache=True)
    return _open_remote(fs, f"{path.rstrip('/')}/{name}", url)


def _open_local(path: Path) -> UrlFile:
    try:
        handle = path.open("rb")
    except OSError as error:
        raise FixRequest(
            f"{path} cannot be read: {error.strerror or error}.",
            hint="Check the path and that this user may read the file.",
        ) from None
    with ExitStack() as opened:
        opened.enter_context(handle)
        about = os.fstat(handle.fileno())
        if not stat.S_ISREG(about.st_mode):  # a pipe has neither a size nor ranges
            return _in_memory(str(path), handle.read())

        def fetch(start: int, end: int) -> bytes:
            handle.seek(start)
            return handle.read(end - start)

        return UrlFile(str(path.absolute()), about.st_size, fetch, opened=opened.pop_all())


def _in_memory(address: str, content: bytes) -> UrlFile:
    return UrlFile(address, len(content), lambda start, end: content[start:end], lasting=False)


def _open_remote(fs: AbstractFileSystem, path: str, address: str) -> UrlFile:
    name = hide_secrets(address)
    with translate_errors("be looked up", name):
        fs.invalidate_cache()  # a cached listing may be older than the changes of another process
        try:
            about = fs.info(path)
        except FileNotFoundError:
            raise FixRequest(f"{name} does not exist.") from None
    size = about.get("size")
    if about.get("type") != "file" or not isinstance(size, int):
        raise FixRequest(f"{name} is not a file.", hint="Name one file with a list of URLs.")
    return UrlFile(address, size, lambda start, end: fs.cat_file(path, start=start, end=end))

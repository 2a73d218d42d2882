"""Storage of a dataset root on an object store or in memory, through fsspec.

"Only if absent" is a precondition of the store, sent with the request that makes the object visible:
- S3 (s3fs): `If-None-Match: *` on the put and on the completion of a multipart upload. Tested with concurrent
  processes against a server over sockets: tests/storage/test_storage.py.
- Google Cloud Storage (gcsfs): `ifGenerationMatch=0` on both kinds of upload; Azure (adlfs): `If-None-Match: *` on the
  put and on the block list (azure_blocks.py). Both are known from the source of gcsfs 2026.10 and adlfs 2026.8, and not
  tested against the stores themselves.
- memory: a lock of this process. Other processes do not share the memory.
`preflight` proves the precondition: a store that accepts the same name twice is refused. Streams opened with "xb" are
not used, because they commit partial content if an exception occurs. This module does not import fsspec.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from inspect import signature
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

from weblake.errors import StorageRefused
from weblake.storage.azure_blocks import upload_blocks
from weblake.storage.rules import TMP, checked_name, refusal, translate_errors
from weblake.storage.scratch import refuse_without_locks, scratch_in, sweep

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: Maximum attempts of a conditional put while the object is absent; repeated puts remain exclusive.
TRIES = 3
#: Bytes of a part of a large file, and concurrent parts: at most PART x PARALLEL bytes of it are in memory.
PART, PARALLEL = 16 << 20, 4
#: Maximum bytes of a key, on every supported object store.
KEY_BYTES = 1024
#: Bytes per block when two files are compared.
BLOCK = 1 << 20
#: Bytes of read-ahead: reading a Parquet footer should not transfer 50 MB, the default of s3fs.
READ_AHEAD = 4 << 20

_UPLOAD_OPTIONS: dict[str, dict[str, object]] = {
    "s3": {"chunksize": PART, "max_concurrency": PARALLEL},
    "gcs": {"chunksize": PART},
    "azure": {},
    "memory": {},
}
#: Arguments to read an object with one request: s3fs asks for its size first if it may send requests in parallel.
_READ_OPTIONS: dict[str, dict[str, object]] = {"s3": {"max_concurrency": 1}, "gcs": {}, "azure": {}, "memory": {}}
#: The roots that `preflight` has proven, by file system: those of fsspec are equal if their options are.
_PROVEN: dict[AbstractFileSystem, set[str]] = {}
_MEMORY_LOCK = threading.Lock()
_PERMANENT_ERRORS = (PermissionError, FileNotFoundError, NotImplementedError)


def _accepted_options(fs: AbstractFileSystem, options: dict[str, object]) -> dict[str, object]:
    """Return the options of a read that the file system takes; an older s3fs reads in one request and has none."""
    read = getattr(fs, "_cat_file", None)
    taken = signature(read).parameters if read is not None else options
    return {name: value for name, value in options.items() if name in taken}


class ObjectStorage:
    """Storage in a bucket below a prefix. `Storage` documents the methods."""

    def __init__(self, backend: str, fs: AbstractFileSystem, path: str, url: str, hidden: tuple[str, ...] = ()) -> None:
        self._backend = backend
        self._fs = fs
        self._prefix = path.rstrip("/")
        #: The URL of the root without credentials.
        self.url = url
        self._hidden = hidden
        self._read_options = _accepted_options(fs, _READ_OPTIONS[backend])
        self._lock: AbstractContextManager[object] = _MEMORY_LOCK if backend == "memory" else nullcontext()
        self._swept = False

    def read(self, name: str) -> bytes | None:
        """Return the whole content, or None if the object certainly does not exist."""
        path = self._path(name)
        with self._translate_errors(f"read {name}"):
            try:
                data: bytes = self._fs.cat_file(path, **self._read_options)
                return data
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        """Create a record only if absent; after an ambiguous response the existing object decides."""
        refuse_without_locks()
        path = self._path(name)

        def is_ours() -> bool | None:
            # The client library repeats a put whose response was lost, and then finds its own object.
            found = self.read(name)
            return None if found is None else found == data

        return self._put(f"create {name}", lambda: self._fs.pipe_file(path, data, mode="create"), is_ours)

    def publish(self, local_file: Path, name: str) -> bool:
        """Upload a finished scratch file, only if its final name is free."""
        path = self._path(name)
        return self._put(
            f"publish {name}",
            lambda: self._upload(local_file, path, mode="create"),
            lambda: False if self.exists(name) else None,
        )

    def _put(self, doing: str, put: Callable[[], object], is_ours: Callable[[], bool | None]) -> bool:
        """Return whether a conditional put has made the object; `is_ours` looks it up, and is None if there is none.

        It is repeated while there is none: S3 answers it with 409 if another process is writing the same name, and asks
        to repeat it. No library does that.
        """
        for attempt in range(1, TRIES + 1):
            try:
                with self._lock:
                    put()
                return True
            except Exception as error:  # some backends report a refusal and a lost response alike: look it up
                with self._prefer_write_error(doing, error):
                    found = is_ours()
                    if found is not None:
                        return found
                    if attempt == TRIES or isinstance(error, _PERMANENT_ERRORS):
                        raise
        raise AssertionError("the last attempt returns or raises")

    def replace(self, name: str, local_file: Path) -> None:
        """Upload a finished scratch file over the object of this name; readers see the old or the new object."""
        path = self._path(name)
        with self._translate_errors(f"replace {name}"), self._lock:
            self._upload(local_file, path, mode="overwrite")

    def move(self, name: str, new_name: str) -> bool:
        """Download, publish under the new name and delete the old one: a copy within the store has no precondition."""
        path = self._path(name)
        with self.scratch() as directory:
            copy = directory / "moved"
            with self._translate_errors(f"move {name} to {new_name}"):
                try:
                    self._fs.get_file(path, str(copy))
                except FileNotFoundError:
                    if self.exists(new_name):
                        return False
                    raise
            # Equal bytes under the new name are the result of an interrupted move.
            if not self.publish(copy, new_name) and not self._has_content_of(copy, new_name):
                return False
        self.delete(name)
        return True

    def delete(self, name: str) -> None:
        """Delete an object if it exists."""
        path = self._path(name)
        with self._translate_errors(f"delete {name}"), suppress(FileNotFoundError), self._lock:
            self._fs.rm_file(path)

    def exists(self, name: str) -> bool:
        """Return whether the object exists."""
        return self.find_size(name) is not None

    def ensure_durable(self, name: str) -> bool:
        """Return whether the object exists; object stores make objects durable before they show them."""
        return self.exists(name)

    def find_size(self, name: str) -> int | None:
        """Return the size of an object in bytes, or None if it does not exist."""
        path = self._path(name)
        with self._translate_errors(f"look up {name}"):
            try:
                return self._size(path)
            except (FileNotFoundError, IsADirectoryError):
                return None

    def list(self, prefix: str) -> list[str]:
        """Return the names of all objects below a prefix, sorted."""
        return sorted(name for page in self.pages(prefix) for name in page)

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """Yield the same names in pages."""
        top = self._path(prefix.rstrip("/")) if prefix else self._prefix
        cut = len(self._prefix) + 1
        paths = self._s3_pages(top) if self._s3_call() is not None else self._find_pages(top)
        while True:
            with self._translate_errors(f"list {prefix or 'the root'}"):
                page = next(paths, None)
            if page is None:
                return
            names = (path[cut:] for path in page if path.startswith(f"{top}/") and not path.endswith("/"))
            yield [name for name in names if not name.startswith(f"{TMP}/")]

    def _find_pages(self, top: str) -> Iterator[Sequence[str]]:
        self._fs.invalidate_cache()
        found: Sequence[str] = ()
        with suppress(FileNotFoundError), self._lock:  # memory is one dictionary, which must not change meanwhile
            found = self._fs.find(top)
        yield found

    def _s3_pages(self, top: str) -> Iterator[Sequence[str]]:
        """Yield pages of the paths of all objects below a prefix, without the cache that s3fs keeps of its listings."""
        call = self._s3_call()
        assert call is not None
        bucket, _, key = top.partition("/")
        asked: dict[str, object] = {"Bucket": bucket, "Prefix": f"{key}/" if key else ""}
        while True:
            try:
                page = call("list_objects_v2", **asked)
            except FileNotFoundError:  # the bucket does not exist
                return
            contents = page.get("Contents")
            yield [f"{bucket}/{each['Key']}" for each in contents] if isinstance(contents, list) else []
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def open_input(self, name: str) -> IO[bytes]:
        """Return the object, open for reading."""
        path = self._path(name)
        with self._translate_errors(f"open {name}"):
            if self._backend == "memory":  # its open files share one position between all readers
                return BytesIO(self._fs.cat_file(path))
            # The size in a cached listing may be that of a file which another process has replaced.
            self._fs.invalidate_cache()
            opened: IO[bytes] = self._fs.open(path, "rb", block_size=READ_AHEAD)
            return opened

    def local_path(self, name: str) -> Path | None:
        """Return None: objects have no path on this machine."""
        checked_name(name)
        return None

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Create a directory in the machine's temporary directory (TMPDIR); the first call deletes abandoned ones."""
        with self._translate_errors("make a staging directory"):
            parent, prefix = Path(tempfile.gettempdir()), "weblake-scratch-"
            if not self._swept:
                self._swept = True
                sweep(parent, prefix)
            made = scratch_in(parent, prefix)
            directory = made.__enter__()
        try:
            yield directory
        finally:
            made.__exit__(None, None, None)

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        """Prove the precondition with a probe, and on S3 the permission to write `names` or below `keys_dir`.

        A process proves each root once; a later call only checks that the names are short enough.
        """
        names = names or (f"{keys_dir}/probe",)
        for name in names:
            self._check_length(name)
        proven = _PROVEN.setdefault(self._fs, set())
        if self._prefix in proven:
            return
        probe = f"_weblake/probe-{secrets.token_hex(8)}"
        first, second = secrets.token_bytes(16), secrets.token_bytes(16)
        try:
            # The second create fails and then reads the object, which proves the permission to read as well.
            if not self.create(probe, first) or self.create(probe, second):
                raise StorageRefused(
                    f"{self.url} created the same object twice: it ignores If-None-Match.",
                    hint="weblake cannot land there exactly once; use a store that honours conditional puts.",
                )
        except StorageRefused:
            with suppress(StorageRefused):
                self.delete(probe)
            raise
        self.delete(probe)
        for name in names:
            self._prove_file(name)
        proven.add(self._prefix)

    def _check_length(self, name: str) -> None:
        if len(self._path(name).partition("/")[2].encode()) > KEY_BYTES:
            raise StorageRefused(
                f"{self.url} cannot hold {name[:200]}…: its key is longer than {KEY_BYTES} bytes.",
                hint="Use shorter partition values, or a shorter root.",
            )

    def _prove_file(self, name: str) -> None:
        """Prove on S3 the permission to write a name."""
        call = self._s3_call()
        if call is None:
            return
        # Starting and aborting an upload proves the permission to write, and readers of the table see no object.
        bucket, _, key = self._path(name).partition("/")
        with self._translate_errors(f"publish {name}"):
            upload = call("create_multipart_upload", Bucket=bucket, Key=key)
            call("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"])

    def _upload(self, local_file: Path, path: str, *, mode: str) -> None:
        if self._backend == "memory":
            self._fs.pipe_file(path, local_file.read_bytes(), mode=mode)
        elif self._backend == "azure" and local_file.stat().st_size > PART:
            upload_blocks(self._fs, local_file, path, mode=mode, block_bytes=PART, parallel=PARALLEL)
        else:  # a file of at most PART bytes is sent to Azure in one request
            self._fs.put_file(str(local_file), path, mode=mode, **_UPLOAD_OPTIONS[self._backend])

    def _has_content_of(self, local_file: Path, name: str) -> bool:
        """Return whether an object holds the same bytes as a local file."""
        if self.find_size(name) != local_file.stat().st_size:
            return False
        with self._translate_errors(f"compare {name}"), local_file.open("rb") as ours, self.open_input(name) as theirs:
            while block := ours.read(BLOCK):
                if theirs.read(len(block)) != block:
                    return False
        return True

    def _size(self, path: str) -> int:
        """Return the size of an object in bytes; raise FileNotFoundError or IsADirectoryError if it does not exist."""
        call = self._s3_call()
        if call is not None:  # `info` of a missing object sends a second request, a listing
            bucket, _, key = path.partition("/")
            size = call("head_object", Bucket=bucket, Key=key)["ContentLength"]
        else:
            # A cached listing may be older than the changes of another process.
            self._fs.invalidate_cache()
            found = self._fs.info(path)
            if found["type"] != "file":
                raise IsADirectoryError(path)
            size = found["size"]
        assert isinstance(size, int)
        return size

    def _s3_call(self) -> Callable[..., dict[str, object]] | None:
        """Return the function that sends one request to S3, or None if the root is not on S3."""
        call: Callable[..., dict[str, object]] | None = getattr(self._fs, "call_s3", None)
        return call if self._backend == "s3" else None

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{checked_name(name)}"

    def _translate_errors(self, doing: str) -> AbstractContextManager[None]:
        return translate_errors(doing, self.url, self._hidden)

    @contextmanager
    def _prefer_write_error(self, doing: str, error: Exception) -> Iterator[None]:
        """Raise the error of a failed write if the lookup of its outcome, in the block, fails too."""
        try:
            yield
        except Exception as raised:
            raise refusal(error, doing, self.url, self._hidden) from raised

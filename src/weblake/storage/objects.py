"""A dataset root on an object store or in memory, through fsspec.

Create-only is the store's own precondition, sent with the one request that makes the object visible:
- S3 (s3fs): `If-None-Match: *` on the put and on the completion of a multipart upload. Proven: racing processes
  against a server over sockets, tests/storage/test_storage.py.
- Google Cloud Storage (gcsfs): `ifGenerationMatch=0` on both kinds of upload; Azure (adlfs): `If-None-Match: *` on the
  put and on the block list. Both read in the source of gcsfs 2026.10 and adlfs 2026.8, not run here.
- memory: a lock of this process. Another process has another memory.
`preflight` proves it on the spot: a store that takes the same name twice is refused. Never a stream opened with "xb",
which commits whatever it has when an exception leaves it. fsspec is imported by who brings the file system.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Protocol

from weblake.errors import StorageRefused
from weblake.storage.rules import TMP, checked_name, refusal, translate_errors
from weblake.storage.scratch import scratch_in

#: A conditional put is repeated this often while nothing is there: it stays exclusive however often it is sent.
TRIES = 3
#: Parts of a large file: at most PART x PARALLEL bytes of it are in memory.
PART, PARALLEL = 16 << 20, 4
#: Bytes of a key, on every object store that weblake knows.
KEY_BYTES = 1024
#: Bytes that are read at once where two files are compared.
BLOCK = 1 << 20
#: Bytes read beyond what was asked for: a Parquet footer should not cost the 50 MB that is s3fs' default.
READ_AHEAD = 4 << 20

_UPLOAD: dict[str, dict[str, object]] = {
    "s3": {"chunksize": PART, "max_concurrency": PARALLEL},
    "gcs": {"chunksize": PART},
    "azure": {"max_concurrency": PARALLEL},
    "memory": {},
}
#: How a small object is read with one request: s3fs asks for its size first unless it may send one request at a time.
_WHOLE: dict[str, dict[str, object]] = {"s3": {"max_concurrency": 1}, "gcs": {}, "azure": {}, "memory": {}}
_MEMORY = threading.Lock()
_HOPELESS = (PermissionError, FileNotFoundError, NotImplementedError)


class FileSystem(Protocol):
    """What is used of an fsspec file system."""

    @property
    def protocol(self) -> str | tuple[str, ...]:
        """The URL schemes that it serves."""

    def cat_file(self, path: str, **kwargs: object) -> bytes:
        """The whole content."""

    def pipe_file(self, path: str, value: bytes, mode: str = ...) -> object:
        """Writes a whole object; mode `create` only if absent."""

    def put_file(self, lpath: str, rpath: str, **kwargs: object) -> object:
        """Uploads a local file; `mode` as above."""

    def get_file(self, rpath: str, lpath: str) -> object:
        """Downloads to a local file."""

    def rm_file(self, path: str) -> object:
        """Deletes one object."""

    def info(self, path: str) -> dict[str, object]:
        """Its `type` and `size`."""

    def find(self, path: str) -> list[str]:
        """The paths of all objects below."""

    def open(self, path: str, mode: str, *, block_size: int) -> IO[bytes]:
        """The object as a seekable file."""

    def invalidate_cache(self) -> object:
        """Forgets what listings it remembers."""


class ObjectStorage:
    """A bucket and prefix. `Storage` says what each method does."""

    def __init__(self, backend: str, fs: FileSystem, path: str, url: str, hidden: tuple[str, ...] = ()) -> None:
        self._backend = backend
        self._fs = fs
        self._prefix = path.rstrip("/")
        self._url = url
        self._hidden = hidden
        self._alone: AbstractContextManager[object] = _MEMORY if backend == "memory" else nullcontext()

    @property
    def url(self) -> str:
        """The root, without credentials."""
        return self._url

    def read(self, name: str) -> bytes | None:
        """The whole content, or None if there surely is no such object."""
        path = self._path(name)
        with self._translate_errors(f"read {name}"):
            try:
                return self._fs.cat_file(path, **_WHOLE[self._backend])
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> bool:
        """Puts a record, only if absent; after a doubtful answer what is there decides."""
        path = self._path(name)
        for attempt in range(1, TRIES + 1):
            try:
                with self._alone:
                    self._fs.pipe_file(path, data, mode="create")
                return True
            except Exception as error:  # a refusal and a lost answer look alike in some backends: look
                with self._doubt(f"create {name}", error):
                    found = self.read(name)
                    if found is not None:
                        # The client library repeats a put whose answer it missed, and then meets its own object.
                        return found == data
                    if attempt == TRIES or isinstance(error, _HOPELESS):
                        raise
        raise AssertionError("the last attempt returns or raises")

    def publish(self, local_file: Path, name: str) -> bool:
        """Uploads a finished scratch file, only if its final name is free."""
        path = self._path(name)
        try:
            with self._alone:
                self._upload(local_file, path, mode="create")
            return True
        except Exception as error:
            with self._doubt(f"publish {name}", error):
                if not self.exists(name):
                    raise
                return False

    def replace(self, name: str, local_file: Path) -> None:
        """Uploads a finished scratch file over what has this name; readers see the old or the new object."""
        path = self._path(name)
        with self._translate_errors(f"replace {name}"), self._alone:
            self._upload(local_file, path, mode="overwrite")

    def move(self, name: str, new_name: str) -> bool:
        """Downloads, publishes under the new name and deletes the old one: a copy inside the store has no condition."""
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
            # The same bytes under the new name are an interrupted move before.
            if not self.publish(copy, new_name) and not self._same(copy, new_name):
                return False
        self.delete(name)
        return True

    def delete(self, name: str) -> None:
        """Removes an object, if it is there."""
        path = self._path(name)
        with self._translate_errors(f"delete {name}"), suppress(FileNotFoundError), self._alone:
            self._fs.rm_file(path)

    def delete_folder(self, name: str, known: Sequence[str] = ()) -> None:
        """Removes all objects below a prefix."""
        for file in known or self.list(name):
            self.delete(file)

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        return self.find_size(name) is not None

    def settled(self, name: str) -> bool:
        """Whether there is such an object; a store that shows it has it for good."""
        return self.exists(name)

    def size(self, name: str) -> int:
        """Bytes of an object, which must be there."""
        path = self._path(name)
        with self._translate_errors(f"look up {name}"):
            return self._size(path)

    def find_size(self, name: str) -> int | None:
        """Bytes of an object, or None if there is no such object."""
        path = self._path(name)
        with self._translate_errors(f"look up {name}"):
            try:
                return self._size(path)
            except (FileNotFoundError, IsADirectoryError):
                return None

    def list(self, prefix: str) -> list[str]:
        """The names of all objects below a prefix, sorted."""
        return sorted(name for page in self.pages(prefix) for name in page)

    def pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """The same names a page at a time."""
        top = self._path(prefix.rstrip("/")) if prefix else self._prefix
        cut = len(self._prefix) + 1
        paths = self._s3_pages(top) if self._s3_call() is not None else self._found(top)
        while True:
            with self._translate_errors(f"list {prefix or 'the root'}"):
                page = next(paths, None)
            if page is None:
                return
            names = (path[cut:] for path in page if path.startswith(f"{top}/") and not path.endswith("/"))
            yield [name for name in names if not name.startswith(f"{TMP}/")]

    def _found(self, top: str) -> Iterator[Sequence[str]]:
        self._fs.invalidate_cache()
        found: Sequence[str] = ()
        with suppress(FileNotFoundError), self._alone:  # memory is one dictionary, which must not change meanwhile
            found = self._fs.find(top)
        yield found

    def _s3_pages(self, top: str) -> Iterator[Sequence[str]]:
        """The paths of all objects below a prefix; s3fs itself remembers every object that it lists."""
        call = self._s3_call()
        assert call is not None
        bucket, _, key = top.partition("/")
        asked: dict[str, object] = {"Bucket": bucket, "Prefix": f"{key}/" if key else ""}
        while True:
            try:
                page = call("list_objects_v2", **asked)
            except FileNotFoundError:  # there is no such bucket
                return
            contents = page.get("Contents")
            yield [f"{bucket}/{each['Key']}" for each in contents] if isinstance(contents, list) else []
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def open_input(self, name: str) -> IO[bytes]:
        """The object, open for reading."""
        path = self._path(name)
        with self._translate_errors(f"open {name}"):
            if self._backend == "memory":  # its files are the stored ones: two readers would share one position
                return BytesIO(self._fs.cat_file(path))
            return self._fs.open(path, "rb", block_size=READ_AHEAD)

    def local_path(self, name: str) -> Path | None:
        """None: nothing lies on this machine."""
        checked_name(name)
        return None

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory in the machine's temporary directory (TMPDIR)."""
        with self._translate_errors("make a staging directory"):
            made = scratch_in(Path(tempfile.gettempdir()), "weblake-scratch-")
            directory = made.__enter__()
        try:
            yield directory
        finally:
            made.__exit__(None, None, None)

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        """Prove the precondition with a probe, and on S3 the right to write the names, or else below `keys_dir`."""
        probe = f"_weblake/probe-{secrets.token_hex(8)}"
        first, second = secrets.token_bytes(16), secrets.token_bytes(16)
        try:
            # The second one fails, and then reads what is there: the right to read is proven as well.
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
        for name in names or (f"{keys_dir}/probe",):
            self._prove_file(name)

    def _prove_file(self, name: str) -> None:
        """Prove that a name is short enough, and on S3 the right to write it."""
        path = self._path(name)
        if len(path.partition("/")[2].encode()) > KEY_BYTES:
            raise StorageRefused(
                f"{self.url} cannot hold {name[:200]}…: its key is longer than {KEY_BYTES} bytes.",
                hint="Use shorter partition values, or a shorter root.",
            )
        call = self._s3_call()
        if call is None:
            return
        # An upload is begun and dropped: the right to write is proven, and no reader of the table sees an object.
        bucket, _, key = path.partition("/")
        with self._translate_errors(f"publish {name}"):
            begun = call("create_multipart_upload", Bucket=bucket, Key=key)
            call("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=begun["UploadId"])

    def _upload(self, local_file: Path, path: str, *, mode: str) -> None:
        if self._backend == "memory":
            self._fs.pipe_file(path, local_file.read_bytes(), mode=mode)
        else:
            self._fs.put_file(str(local_file), path, mode=mode, **_UPLOAD[self._backend])

    def _same(self, local_file: Path, name: str) -> bool:
        """Whether an object holds the same bytes as a local file."""
        if self.size(name) != local_file.stat().st_size:
            return False
        with self._translate_errors(f"compare {name}"), local_file.open("rb") as ours, self.open_input(name) as theirs:
            while block := ours.read(BLOCK):
                if theirs.read(len(block)) != block:
                    return False
        return True

    def _size(self, path: str) -> int:
        """Return the bytes of an object; raise FileNotFoundError or IsADirectoryError where there is none."""
        call = self._s3_call()
        if call is not None:  # `info` of a missing object is a second request, which lists what is below its name
            bucket, _, key = path.partition("/")
            size = call("head_object", Bucket=bucket, Key=key)["ContentLength"]
        else:
            # A listing that the file system remembers may be older than what another process has done.
            self._fs.invalidate_cache()
            found = self._fs.info(path)
            if found["type"] != "file":
                raise IsADirectoryError(path)
            size = found["size"]
        assert isinstance(size, int)
        return size

    def _s3_call(self) -> Callable[..., dict[str, object]] | None:
        """Return what sends one request to S3, or None where the root is not on S3."""
        call: Callable[..., dict[str, object]] | None = getattr(self._fs, "call_s3", None)
        return call if self._backend == "s3" else None

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{checked_name(name)}"

    def _translate_errors(self, doing: str) -> AbstractContextManager[None]:
        return translate_errors(doing, self._url, self._hidden)

    @contextmanager
    def _doubt(self, doing: str, error: Exception) -> Iterator[None]:
        """While it is looked up what came of a failed write: if that fails too, the write's own error is told."""
        try:
            yield
        except Exception as raised:
            raise refusal(error, doing, self._url, self._hidden) from raised

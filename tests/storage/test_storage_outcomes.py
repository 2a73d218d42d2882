"""Tests of an object store whose response is lost or in doubt, and of one without conditional create."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from catalogue import proves

from weblake.errors import StorageRefused
from weblake.storage.objects import ObjectStorage


class _Loses:
    """A file system that does what it is told and loses the answer."""

    protocol = "memory"

    def __init__(self, fs: object, error: Exception, *, first: bool) -> None:
        self._fs, self._error, self._first = fs, error, first
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        self.asked += 1
        if self._first or self.asked > 1:
            self._fs.pipe_file(path, value, mode=mode)  # type: ignore[attr-defined]
        raise self._error


@pytest.mark.parametrize("error", [FileExistsError("412"), TimeoutError("lost"), OSError(errno.EREMOTEIO, "500")])
def test_a_record_written_by_a_put_with_a_lost_response_counts_as_ours(error: Exception) -> None:
    import fsspec

    fs = _Loses(fsspec.filesystem("memory"), error, first=True)
    storage = ObjectStorage("memory", fs, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    assert storage.create("a.json", b"with-a-nonce")
    assert not storage.create("a.json", b"of-another")
    assert storage.read("a.json") == b"with-a-nonce"


def test_a_put_that_did_not_arrive_is_repeated_and_then_reported() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    fs = _Loses(memory, TimeoutError("lost"), first=False)
    storage = ObjectStorage("memory", fs, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    assert storage.create("a.json", b"x")
    assert fs.asked == 2

    class _Dead(_Loses):
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
            self.asked += 1
            raise self._error

    dead = _Dead(memory, TimeoutError("sig=abcdef lost at //user:pass@host"), first=False)
    storage = ObjectStorage("memory", dead, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    with pytest.raises(StorageRefused, match=r"refused to create a\.json") as caught:
        storage.create("a.json", b"x")
    assert dead.asked == 3
    assert "abcdef" not in str(caught.value)
    assert "pass" not in str(caught.value)

    denied = _Dead(memory, PermissionError("403"), first=False)
    storage = ObjectStorage("memory", denied, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    with pytest.raises(StorageRefused, match="403"):
        storage.create("a.json", b"x")
    assert denied.asked == 1, "a store that denies the access denies it again"


def test_a_file_whose_upload_conflicts_with_another_is_uploaded_again(tmp_path: Path) -> None:
    """The load is paid by then, and its pages would have to be downloaded again."""
    import fsspec

    memory, ready = fsspec.filesystem("memory"), tmp_path / "ready"
    ready.write_bytes(b"x")
    conflict = OSError(errno.EBUSY, "ConditionalRequestConflict (409)")

    class _Conflicts(_Loses):
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
            self.asked += 1
            if self._first or self.asked == 1:
                raise self._error
            self._fs.pipe_file(path, value, mode=mode)  # type: ignore[attr-defined]

    once, always = _Conflicts(memory, conflict, first=False), _Conflicts(memory, conflict, first=True)
    storage = ObjectStorage("memory", once, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    assert storage.publish(ready, "a.parquet")
    assert (once.asked, storage.read("a.parquet")) == (2, b"x")
    assert not storage.publish(ready, "a.parquet")
    storage = ObjectStorage("memory", always, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    with pytest.raises(StorageRefused, match=r"refused to publish a\.parquet"):
        storage.publish(ready, "a.parquet")
    assert always.asked == 3


@proves(
    "1.5",
    at="src/weblake/storage/objects.py",
    line="            if not self.create(probe, first) or self.create(probe, second):",
    becomes="            if not self.create(probe, first):",
)
def test_a_store_without_conditional_create_is_refused() -> None:
    import fsspec

    class _Careless(_Loses):
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
            self._fs.pipe_file(path, value)  # type: ignore[attr-defined]

    fs = _Careless(fsspec.filesystem("memory"), OSError(), first=True)
    storage = ObjectStorage("memory", fs, f"/{os.urandom(4).hex()}", "memory://x")  # type: ignore[arg-type]
    with pytest.raises(StorageRefused, match="twice"):
        storage.preflight("documents/k=1")
    assert storage.list("") == []


def test_an_older_s3fs_reads_without_the_newer_argument() -> None:
    """s3fs 2025.9, which the constraints of Airflow 3.0 have, refuses `max_concurrency` when it reads."""
    from weblake.storage.objects import ObjectStorage

    class Older:
        async def _cat_file(self, path: str, version_id: str | None = None) -> bytes:
            return b"content"

        def cat_file(self, path: str, version_id: str | None = None) -> bytes:
            return b"content"

    older: Any = Older()
    assert ObjectStorage("s3", older, "bucket/lake", "s3://bucket/lake").read("_weblake/layout.json") == b"content"


def test_a_listing_of_s3_is_read_to_its_last_page() -> None:
    class Paged:
        def call_s3(self, name: str, **asked: object) -> dict[str, object]:
            assert (name, asked["Bucket"], asked["Prefix"]) == ("list_objects_v2", "bucket", "lake/documents/")
            at = int(str(asked.get("ContinuationToken", 0)))
            page: dict[str, object] = {"Contents": [{"Key": f"lake/documents/{at}.parquet"}]}
            return page if at == 2 else page | {"IsTruncated": True, "NextContinuationToken": str(at + 1)}

    paged: Any = Paged()
    storage = ObjectStorage("s3", paged, "bucket/lake", "s3://bucket/lake")
    assert [list(page) for page in storage.pages("documents")] == [[f"documents/{at}.parquet"] for at in range(3)]


@pytest.mark.parametrize("backend", ["s3", "gcs"])
def test_a_listing_that_fails_is_no_empty_folder(backend: str) -> None:
    """A load that is not found would be paid again."""

    class Fails:
        def invalidate_cache(self) -> None:
            pass

        def call_s3(self, name: str, **asked: object) -> dict[str, object]:
            raise PermissionError(errno.EACCES, "no right to list")

        def find(self, path: str) -> list[str]:
            raise PermissionError(errno.EACCES, "no right to list")

    fails: Any = Fails()
    storage = ObjectStorage(backend, fails, "bucket/lake", f"{backend}://bucket/lake")
    with pytest.raises(StorageRefused, match="refused to list documents: no right to list"):
        storage.list("documents")


def test_the_marker_of_a_folder_is_no_file() -> None:
    """The console of S3 creates one, and some programs list it for a folder that they find."""

    class Marked:
        def invalidate_cache(self) -> None:
            pass

        def find(self, path: str) -> list[str]:
            return [f"{path}/", f"{path}/day=1/", f"{path}/day=1/a.parquet", f"{path}-other/b.parquet"]

    marked: Any = Marked()
    storage = ObjectStorage("gcs", marked, "bucket/lake", "gcs://bucket/lake")
    assert storage.list("documents") == ["documents/day=1/a.parquet"]


def test_no_file_is_looked_up_in_a_cached_listing() -> None:
    """Another process may have created or deleted it since."""

    class Cached:
        def __init__(self) -> None:
            self.listed: list[str] | None = []

        def invalidate_cache(self) -> None:
            self.listed = None

        def info(self, path: str) -> dict[str, object]:
            assert self.listed is None
            return {"type": "file", "size": 3}

        def find(self, path: str) -> list[str]:
            assert self.listed is None
            return [f"{path}/a"]

        def open(self, path: str, mode: str, *, block_size: int) -> io.BytesIO:
            return io.BytesIO(b"x" * int(str(self.info(path)["size"])))

    for look in (
        lambda storage: storage.find_size("a"),
        lambda storage: len(storage.list("a/b/c")[0]) - 4,
        lambda storage: len(storage.open_input("a").read()),
    ):
        cached: Any = Cached()
        assert look(ObjectStorage("gcs", cached, "bucket/lake", "gs://bucket/lake")) == 3


def test_no_error_shows_a_secret_of_the_storage_options() -> None:
    class Leaks:
        def cat_file(self, path: str) -> bytes:
            raise RuntimeError("no such key: secret-value")

        def pipe_file(self, path: str, value: bytes, mode: str) -> None:
            raise RuntimeError("put refused: secret-value")

    leaks: Any = Leaks()
    storage = ObjectStorage("gcs", leaks, "bucket/lake", "gs://bucket/lake", ("secret-value",))
    with pytest.raises(StorageRefused, match=r"no such key: \*\*\*"):
        storage.read("a")
    with pytest.raises(StorageRefused, match=r"put refused: \*\*\*"):
        storage.create("a", b"x")


def test_a_process_proves_a_root_on_s3_once_and_leaves_no_upload_behind() -> None:
    class Uploads(SimpleNamespace):  # equal to each other, as file systems with the same options are
        calls: ClassVar[list[tuple[str, dict[str, object]]]] = []
        kept: ClassVar[dict[str, bytes]] = {}

        def __hash__(self) -> int:
            return 1

        def call_s3(self, name: str, **asked: object) -> dict[str, object]:
            self.calls.append((name, asked))
            return {"UploadId": "u"}

        def pipe_file(self, path: str, value: bytes, mode: str) -> None:
            if path in self.kept:
                raise FileExistsError(path)
            self.kept[path] = value

        def cat_file(self, path: str, **options: object) -> bytes:
            return self.kept[path]

        def rm_file(self, path: str) -> None:
            del self.kept[path]

    for root in ("lake", "lake", "other"):
        uploads: Any = Uploads()
        storage = ObjectStorage("s3", uploads, f"bucket/{root}", f"s3://bucket/{root}")
        storage.preflight("documents", ["documents/a.parquet"])
    assert uploads.calls == [
        call
        for root in ("lake", "other")
        for of in ({"Bucket": "bucket", "Key": f"{root}/documents/a.parquet"},)
        for call in (("create_multipart_upload", of), ("abort_multipart_upload", of | {"UploadId": "u"}))
    ]
    with pytest.raises(StorageRefused, match="key is longer"):
        storage.preflight("documents", ["documents/" + "a" * 1024])
    assert uploads.kept == {}

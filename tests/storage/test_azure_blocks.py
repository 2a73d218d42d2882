"""Tests of uploads to Azure in blocks, with a store in memory that keeps uncommitted blocks for the blob, as Azure."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weblake.storage import objects
from weblake.storage.objects import ObjectStorage

PART, BYTES = 4, 30


class Blobs:
    """The part of adlfs and of its clients that an upload uses; a commit may be held until other blocks are staged."""

    protocol = "abfs"

    def __init__(self) -> None:
        from fsspec.asyn import get_loop

        self.loop = get_loop()
        self.service_client = self
        self.blobs: dict[str, bytes] = {}
        self.blocks: dict[str, dict[str, bytes]] = {}
        self.largest = self.waiting = 0
        self.held: threading.Event | None = None
        self.others: asyncio.Event = asyncio.Event()

    def split_path(self, path: str) -> tuple[str, str, None]:
        container, _, blob = path.partition("/")
        return container, blob, None

    @asynccontextmanager
    async def get_blob_client(self, container: str, blob: str) -> Any:
        async def stage_block(block_id: str, data: bytes) -> None:
            self.waiting += 1
            self.largest = max(self.largest, self.waiting)
            await asyncio.sleep(0)
            self.waiting -= 1
            self.blocks.setdefault(blob, {})[block_id] = data
            if self.held is not None and self.held.is_set():
                self.others.set()

        async def commit_block_list(block_list: Sequence[str], **options: Any) -> None:
            if self.held is not None and not self.held.is_set():
                self.held.set()
                await asyncio.wait_for(self.others.wait(), 30)
            if blob in self.blobs and options.get("match_condition") == "missing":
                raise FileExistsError(blob)
            self.blobs[blob] = b"".join(self.blocks[blob][each] for each in block_list)

        yield SimpleNamespace(stage_block=stage_block, commit_block_list=commit_block_list)

    def put_file(self, lpath: str, rpath: str, mode: str) -> None:
        self.blobs[self.split_path(rpath)[1]] = Path(lpath).read_bytes()

    def info(self, path: str) -> dict[str, object]:
        blob = self.split_path(path)[1]
        if blob not in self.blobs:
            raise FileNotFoundError(path)
        return {"type": "file", "size": len(self.blobs[blob])}

    def invalidate_cache(self) -> None:
        pass


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> Blobs:
    monkeypatch.setitem(
        sys.modules, "azure.core", SimpleNamespace(MatchConditions=SimpleNamespace(IfMissing="missing"))
    )
    monkeypatch.setitem(sys.modules, "azure.storage.blob", SimpleNamespace(BlobBlock=str))
    monkeypatch.setattr(objects, "PART", PART)
    return Blobs()


def storage_of(blobs: Blobs) -> ObjectStorage:
    return ObjectStorage("azure", blobs, "c/lake", "abfs://c/lake")  # type: ignore[arg-type]


def test_a_file_is_uploaded_in_parts_and_only_if_it_is_absent(blobs: Blobs, tmp_path: Path) -> None:
    storage, file = storage_of(blobs), tmp_path / "file"
    content = bytes(range(BYTES))
    file.write_bytes(content)
    assert storage.publish(file, "a.parquet")
    assert (blobs.blobs["lake/a.parquet"], blobs.largest) == (content, objects.PARALLEL)
    assert {len(each) for each in blobs.blocks["lake/a.parquet"].values()} == {PART, BYTES % PART}
    file.write_bytes(b"another one")
    assert not storage.publish(file, "a.parquet")
    assert blobs.blobs["lake/a.parquet"] == content
    storage.replace("a.parquet", file)
    assert blobs.blobs["lake/a.parquet"] == b"another one"


def test_two_writers_of_one_name_do_not_mix_their_parts(blobs: Blobs, tmp_path: Path) -> None:
    blobs.held = threading.Event()
    files = {name: tmp_path / name for name in "ab"}
    for name, file in files.items():
        file.write_bytes(name.encode() * BYTES)
    published: dict[str, bool] = {}

    def publish(name: str) -> None:
        published[name] = storage_of(blobs).publish(files[name], "x.parquet")

    first = threading.Thread(target=publish, args=["a"])
    first.start()
    assert blobs.held.wait(30)
    publish("b")
    first.join(30)
    assert sorted(published.values()) == [False, True]
    winner = next(name for name, is_first in published.items() if is_first)
    assert blobs.blobs["lake/x.parquet"] == winner.encode() * BYTES


def test_a_file_of_one_part_is_one_request(blobs: Blobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    assert storage_of(blobs).publish(tmp_path / "file", "a.parquet")
    assert (blobs.blobs, blobs.blocks) == ({"lake/a.parquet": b"four"}, {})

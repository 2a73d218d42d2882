from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from catalogue import proves
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.errors import StorageRefused
from weblake.storage import Storage, objects, open_storage
from weblake.storage.local import LocalStorage

RACER = Path(__file__).with_name("storage_racer.py")
NAME = "_weblake/ledger/0123456789abcdef.json"
DATA = "documents/load_date=2026-11-21/0123456789abcdef-00000.parquet"


@contextmanager
def racers(root: str, what: str, writers: str) -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, str(RACER), root, what, writer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for writer in writers
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(10)
            for pipe in (process.stdin, process.stdout):
                pipe.close()


def staged(storage: Storage, name: str, data: bytes) -> bool:
    with storage.scratch() as directory:
        (directory / "file").write_bytes(data)
        return storage.publish(directory / "file", name)


# --- exactly one ---


@proves(
    "P5",
    at="src/weblake/storage/local.py",
    line="        os.link(source, final)",
    becomes="        os.replace(source, final)",
    case="local-publish",
)
@proves(
    "P5",
    at="src/weblake/storage/objects.py",
    line="            self._fs.put_file(str(local_file), path, mode=mode, **_UPLOAD_OPTIONS[self._backend])",
    becomes="            self._fs.put_file(str(local_file), path, **_UPLOAD_OPTIONS[self._backend])",
    case="s3-publish",
)
@pytest.mark.parametrize("what", ["create", "publish"])
def test_p5_of_racing_processes_exactly_one_wins_and_its_bytes_stay(any_root: str, what: str) -> None:
    storage = open_storage(any_root)
    local = not any_root.startswith("s3:")
    winners = []
    # The S3 server takes one request at a time: there the condition of the request decides, and not the moment.
    rounds = 24 if local else 8
    with racers(any_root, what, "abcd" if what == "create" and local else "ab") as processes:
        assert all(process.stdout.readline() == "ready\n" for process in processes)
        for n in range(rounds):
            name = f"_weblake/ledger/race-{n}.json" if what == "create" else f"documents/k={n % 3}/{n}.parquet"
            for process in processes:
                process.stdin.write(f"{name} {time.monotonic() + 0.03}\n")
                process.stdin.flush()
            won = [process.stdout.readline() for process in processes]
            assert sorted(set(won)) == ["False\n", "True\n"]
            assert won.count("True\n") == 1
            winner = "abcd"[won.index("True\n")]
            data = storage.read(name)
            assert data == f"<{winner}>".encode() + winner.encode() * 9000 + b"</>"
            winners.append(winner)
    assert len(storage.list("")) == rounds


@pytest.mark.system
@proves(
    "P1",
    at="src/weblake/storage/local.py",
    line="            won = _link(local_file, final)",
    becomes='            won = bool((file := final.open("xb")).write(local_file.read_bytes()) and not file.close())',
    case="publish",
)
@pytest.mark.parametrize("what", ["create", "publish", "move"])
def test_p1_death_before_any_instruction_leaves_all_or_nothing(local_root: str, what: str) -> None:
    done = subprocess.run(
        [sys.executable, str(RACER), local_root, "sweep", what], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout[0].isdigit(), done.stdout
    absent, whole = map(int, done.stdout.split())
    assert absent > 50
    assert whole > 10


# --- what a storage does ---


def test_create_read_delete(storage: Storage) -> None:
    assert storage.read(NAME) is None
    assert not storage.exists(NAME)
    assert storage.create(NAME, b"first")
    assert not storage.create(NAME, b"second")
    assert storage.read(NAME) == b"first"
    assert storage.exists(NAME)
    assert storage.find_size(NAME) == 5
    storage.delete(NAME)
    storage.delete(NAME)
    assert storage.read(NAME) is None
    assert storage.find_size(NAME) is None


def test_publish_is_create_only_and_readable(storage: Storage) -> None:
    assert staged(storage, DATA, b"rows")
    assert not staged(storage, DATA, b"other")
    with storage.open_input(DATA) as file:
        assert file.seekable()
        file.seek(1)
        assert file.read() == b"ows"
    assert not storage.exists("documents")  # a folder is no file
    path = storage.local_path(DATA)
    assert path is None or path.read_bytes() == b"rows"


def test_a_file_whose_name_is_taken_stays_where_it_was_staged(storage: Storage) -> None:
    """Its pages are paid; the caller keeps them in another place."""
    assert storage.create(DATA, b"rows")
    with storage.scratch() as directory:
        (directory / "file").write_bytes(b"other")
        assert not storage.publish(directory / "file", DATA)
        assert (directory / "file").read_bytes() == b"other"


def test_a_move_to_a_name_with_other_bytes_deletes_nothing(storage: Storage) -> None:
    """They differ at the end only: a file is compared in blocks of 1 MiB."""
    whole = b"x" * (1 << 20)
    assert storage.create(NAME, whole + b"1")
    assert storage.create(DATA, whole + b"2")
    assert not storage.move(NAME, DATA)
    assert (storage.read(NAME), storage.read(DATA)) == (whole + b"1", whole + b"2")


def test_a_missing_file_is_not_durable(storage: Storage) -> None:
    assert not storage.ensure_durable(NAME)
    assert storage.create(NAME, b"x")
    assert storage.ensure_durable(NAME)


def test_replace(storage: Storage) -> None:
    for data in (b"one", b"two"):
        with storage.scratch() as directory:
            (directory / "file").write_bytes(data)
            storage.replace("activity/activity_date=2026-11-21/activity.parquet", directory / "file")
        assert storage.read("activity/activity_date=2026-11-21/activity.parquet") == data


def test_move_is_create_only_and_can_be_resumed(storage: Storage) -> None:
    storage.create("_weblake/refused/x.parquet", b"rows")
    assert storage.move("_weblake/refused/x.parquet", DATA)
    assert storage.list("") == [DATA]
    assert not storage.move("_weblake/refused/x.parquet", DATA)  # gone, and the name is taken
    storage.create("_weblake/refused/y.parquet", b"others")
    assert not storage.move("_weblake/refused/y.parquet", DATA)
    assert storage.read(DATA) == b"rows"
    assert storage.read("_weblake/refused/y.parquet") == b"others"
    with pytest.raises(StorageRefused, match=r"move _weblake/refused/z\.parquet"):
        storage.move("_weblake/refused/z.parquet", "documents/k=1/z.parquet")


def test_move_interrupted_after_the_new_name_is_finished(storage: Storage) -> None:
    storage.create("_weblake/refused/x.parquet", b"rows")
    source = storage.local_path("_weblake/refused/x.parquet")
    if source is None:
        storage.create("documents/k=1/x.parquet", b"rows")
    else:
        Path(source.parents[2] / "documents/k=1").mkdir(parents=True)
        os.link(source, source.parents[2] / "documents/k=1/x.parquet")
    assert storage.move("_weblake/refused/x.parquet", "documents/k=1/x.parquet")
    assert storage.list("") == ["documents/k=1/x.parquet"]


def test_list_is_recursive_sorted_and_knows_no_temporary_files(storage: Storage) -> None:
    assert storage.list("documents") == []
    for name in (
        "documents/k=b/2.parquet",
        "documents/k=a/1.parquet",
        "documents2/k=a/1.parquet",
        "_weblake/ledger/a.json",
    ):
        storage.create(name, b"x")
    with storage.scratch() as directory:
        (directory / "half.parquet").write_bytes(b"half")
        assert storage.list("documents") == ["documents/k=a/1.parquet", "documents/k=b/2.parquet"]
        assert storage.list("documents/") == storage.list("documents")
        assert storage.list("") == [
            "_weblake/ledger/a.json",
            "documents/k=a/1.parquet",
            "documents/k=b/2.parquet",
            "documents2/k=a/1.parquet",
        ]
    assert not directory.exists()


def test_listing_sees_what_another_process_has_done(any_root: str) -> None:
    ours, theirs = open_storage(any_root), open_storage(any_root)
    assert ours.list("documents") == []
    theirs.create("documents/k=1/a.parquet", b"x")
    assert ours.list("documents") == ["documents/k=1/a.parquet"]
    assert ours.exists("documents/k=1/a.parquet")
    theirs.delete("documents/k=1/a.parquet")
    assert not ours.exists("documents/k=1/a.parquet")


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/.", "a\\b", "a\0b", "a\nb", "a/", "\ud800"]
)
def test_names_that_leave_the_root_are_refused(storage: Storage, name: str) -> None:
    for call in (
        lambda: storage.read(name),
        lambda: storage.create(name, b""),
        lambda: storage.publish(Path("x"), name),
        lambda: storage.replace(name, Path("x")),
        lambda: storage.move(name, "ok"),
        lambda: storage.delete(name),
        lambda: storage.open_input(name),
        lambda: storage.local_path(name),
    ):
        with pytest.raises(StorageRefused, match="not a name inside"):
            call()


@settings(max_examples=examples(200))
@given(st.text(max_size=40))
def test_no_generated_name_leaves_the_root(name: str) -> None:
    storage = LocalStorage(Path("/nowhere/lake"))
    try:
        path = storage.local_path(name)
    except StorageRefused:
        return
    assert path is not None
    assert os.path.normpath(path).startswith("/nowhere/lake/")


def test_preflight_passes_and_leaves_nothing(storage: Storage) -> None:
    storage.preflight("documents/load_date=2026-11-21")
    storage.preflight("documents/load_date=2026-11-21")
    assert storage.list("") == []
    folder = storage.local_path("documents/load_date=2026-11-21")
    assert folder is None or list(folder.iterdir()) == []
    staging = storage.local_path("_weblake/tmp")
    assert staging is None or list(staging.iterdir()) == []


def test_preflight_creates_no_entry_in_a_table(tmp_path: Path) -> None:
    """Polars and pathlib fail if a directory is removed between the listing of its parent and its own listing."""
    folder = tmp_path / "documents" / "load_date=2026-11-21"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    open_storage(tmp_path).preflight("documents/load_date=2026-11-21", ["documents/load_date=2026-11-21/a.parquet"])
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mtime == 0, "the time changes with each entry that is created or removed"


@pytest.mark.system
def test_large_file_goes_up_in_parts_and_stays_conditional(s3_root: str) -> None:
    storage = open_storage(s3_root)
    rows = os.urandom(1 << 20) * 40
    assert staged(storage, DATA, rows)
    assert not staged(storage, DATA, rows[::-1])
    assert storage.find_size(DATA) == len(rows)
    assert storage.read(DATA) == rows
    import boto3

    bucket, client = s3_root.split("/")[2], boto3.client("s3")
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    head = client.head_object(Bucket=bucket, Key=f"lake/{DATA}")
    assert head["ETag"].strip('"').endswith("-3")  # it really went up in three parts


@pytest.mark.parametrize("step", ["find", "rm_file", "pipe_file"])
def test_memory_is_used_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The storage is one dictionary, which must not change while another thread lists it."""
    held: list[bool] = []
    call = getattr(MemoryFileSystem, step)

    def watched(self: MemoryFileSystem, *args: object, **kwargs: object) -> object:
        held.append(objects._MEMORY_LOCK.locked())
        return call(self, *args, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, step, watched)
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    storage.create("a/b", b"x")
    assert storage.list("a") == ["a/b"]
    storage.delete("a/b")
    assert set(held) == {True}

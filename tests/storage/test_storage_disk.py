from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from catalogue import proves

from weblake.errors import StorageRefused
from weblake.storage import local as local_storage
from weblake.storage import open_storage, rules, scratch
from weblake.storage.local import LocalStorage

RACER = Path(__file__).with_name("storage_racer.py")
NAME = "_weblake/ledger/0123456789abcdef.json"


# --- what a disk can do ---


def _run_big(root: str, *prefix: str) -> list[str]:
    done = subprocess.run(
        [*prefix, sys.executable, str(RACER), root, "big", "200000"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@proves(
    "P3",
    at="src/weblake/storage/local.py",
    line="        except BaseException:",
    becomes="        except ZeroDivisionError:",
)
def test_p3_limit_on_file_size_leaves_nothing(local_root: str) -> None:
    create, publish = _run_big(local_root, "sh", "-c", 'ulimit -f 100 && exec "$@"', "sh")
    assert create.startswith("StorageRefused")
    assert "_weblake/ledger/big.json" in create
    assert "ulimit -f" in create
    assert "File too large" in publish  # the staging itself, which is the caller's
    assert [path for path in Path(local_root).rglob("*") if path.is_file()] == []


def _unshare(*mount: str) -> list[str]:
    """Runs the rest in a mount namespace of its own, where `mount` was done first."""
    return ["unshare", "-m", "sh", "-c", f'{" ".join(mount)} && exec "$@"', "sh"]


def _can_mount() -> bool:
    try:
        return subprocess.run([*_unshare("true"), "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


mounts = pytest.mark.skipif(not _can_mount(), reason="mounting needs root and unshare")


def _preflight(root: str, *prefix: str) -> str:
    code = (
        "import sys; from weblake.storage import open_storage; from weblake.errors import StorageRefused\n"
        "try: open_storage(sys.argv[1]).preflight('documents/load_date=2026-11-21'); print('fine')\n"
        "except StorageRefused as error: print(error)"
    )
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, root], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@mounts
def test_p14_preflight_finds_mounts_that_stand_in_the_way(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    (root / "documents").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    assert _preflight(str(root)) == "fine\n"
    other = _preflight(str(root), *_unshare("mount", "-t", "tmpfs", "tmpfs", f"{root}/documents"))
    assert "one file system" in other
    # The same disk, mounted twice: the device number is the same, and a link still cannot cross.
    bound = _preflight(str(root), *_unshare("mount", "--bind", f"{tmp_path}/elsewhere", f"{root}/documents"))
    assert "one file system" in bound
    read_only = _preflight(
        str(root), *_unshare("mount", "--bind", str(root), str(root), "&&", "mount", "-o", "remount,bind,ro", str(root))
    )
    assert "Read-only file system" in read_only
    assert "mounted read-only" in read_only


@mounts
@proves(
    "P4",
    at="src/weblake/storage/local.py",
    line="            path.lstat()  # a read-only",
    becomes="            # a read-only",
)
def test_p4_a_landed_load_is_found_on_a_read_only_file_system(local_root: str) -> None:
    """Nothing is left of its list of URLs and of a refused file, and what does not exist is not deleted."""
    code = (
        "import sys; from weblake.storage import open_storage; from weblake.loads import sent_lists\n"
        "root = open_storage(sys.argv[1]); sent_lists.drop(root, '0' * 16, ['0' * 32])\n"
        "root.delete('_weblake/submitted/none.parquet'); print('fine')"
    )
    Path(local_root, "_weblake/submitted").mkdir(parents=True)
    prefix = _unshare("mount", "--bind", local_root, local_root, "&&", "mount", "-o", "remount,bind,ro", local_root)
    done = subprocess.run([*prefix, sys.executable, "-c", code, local_root], capture_output=True, text=True, timeout=60)
    assert done.stdout == "fine\n", done.stderr


def test_preflight_names_a_bucket_that_is_missing(s3_root: str) -> None:
    with pytest.raises(StorageRefused, match="bucket"):
        open_storage("s3://no-such-bucket-here/lake").preflight("documents/k=1")


def test_an_unreachable_server_is_reported(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StorageRefused) as caught:
        open_storage(s3_root).read(NAME)
    assert "test-key" not in str(caught.value)


def test_p4_file_in_place_of_a_directory_is_not_absence(local_root: str) -> None:
    Path(local_root).mkdir()
    (Path(local_root) / "_weblake").write_text("a file")
    storage = open_storage(local_root)
    for call in (lambda: storage.read(NAME), lambda: storage.exists(NAME), lambda: storage.list("_weblake")):
        with pytest.raises(StorageRefused, match="Not a directory"):
            call()
    (Path(local_root) / "dangling").symlink_to("/nowhere/at/all")
    with pytest.raises(StorageRefused):
        storage.read("dangling")


@proves(
    "P3",
    at="src/weblake/storage/local.py",
    line='    with path.open("rb") as file:',
    becomes="    for file in ():",
)
def test_p3_a_failed_fsync_is_reported_and_never_repeated(local_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(local_root)
    storage.create("_weblake/ledger/first.json", b"x")
    asked: list[str] = []

    def broken(descriptor: int) -> None:
        asked.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with storage.scratch() as directory:
        (directory / "file").write_bytes(b"rows")
        monkeypatch.setattr(local_storage.os, "fsync", broken)
        with pytest.raises(StorageRefused, match="Input/output error"):
            storage.create(NAME, b"x")
        with pytest.raises(StorageRefused, match="Check the disk"):
            storage.publish(directory / "file", "_weblake/ledger/file.parquet")
        monkeypatch.undo()
    assert len(asked) == len(set(asked)) == 2
    assert storage.list("") == ["_weblake/ledger/first.json"]
    assert list((Path(local_root) / "_weblake/tmp").iterdir()) == []


# --- litter ---


def _age(*paths: Path) -> None:
    old = time.time() - scratch.ABANDONED_S - 60
    for path in paths:
        os.utime(path, (old, old))


@proves(
    "P14",
    at="src/weblake/storage/scratch.py",
    line="    if time.time() - _last_change(entry) < age_s:",
    becomes="    if True:",
)
@proves(
    "P14",
    at="src/weblake/storage/scratch.py",
    line="            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    becomes="            pass",
)
def test_p14_temporary_files_of_dead_processes_are_removed_and_no_others(local_root: str) -> None:
    storage = open_storage(local_root)
    tmp = Path(local_root) / "_weblake/tmp"
    with storage.scratch() as alive:
        (alive / "long.parquet").write_bytes(b"still being written")
        _age(alive / "long.parquet", alive / "owner.lock", alive)
        dead, young, foreign = tmp / "1-00000000000000aa", tmp / "1-00000000000000bb", tmp / "notes of somebody"
        for directory in (dead, young, foreign):
            directory.mkdir()
            (directory / "x.parquet").write_bytes(b"x")
            (directory / "owner.lock").write_bytes(b"")
        filled, emptied = tmp / "1-00000000000000ee", tmp / "1-00000000000000ff"  # one change of each is recent
        for directory in (filled, emptied):
            directory.mkdir()
            (directory / "x.parquet").write_bytes(b"x")
            _age(directory / "x.parquet")
        (filled / "recent.parquet").write_bytes(b"x")
        _age(filled)
        link = tmp / "1-00000000000000ab"  # removed; what it leads to is not
        link.symlink_to(young)
        os.utime(link, (0, 0), follow_symlinks=False)
        part, fresh = tmp / "1-00000000000000cc.part", tmp / "1-00000000000000dd.part"
        part.write_bytes(b"x")
        fresh.write_bytes(b"x")
        _age(
            dead / "x.parquet", dead / "owner.lock", dead, foreign / "x.parquet", foreign / "owner.lock", foreign, part
        )
        with open_storage(local_root).scratch():
            pass
        left = {path.name for path in tmp.iterdir()}
        assert left == {alive.name, young.name, filled.name, emptied.name, foreign.name, fresh.name}
        assert (alive / "long.parquet").read_bytes() == b"still being written"


def test_p14_scratch_files_of_object_stores_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, foreign = tmp_path / "weblake-scratch-1-00000000000000aa", tmp_path / "1-00000000000000aa"
    for directory in (dead, foreign):
        directory.mkdir()
        _age(directory)
    with open_storage("memory://sweep/lake").scratch() as directory:
        assert directory.parent == tmp_path
        assert directory.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [foreign]


def test_a_partition_that_is_a_link_is_listed_and_a_link_that_goes_round_ends(tmp_path: Path) -> None:
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    storage = open_storage(lake)
    elsewhere.mkdir()
    storage.create("documents/day=1/a.parquet", b"x")
    (lake / "documents" / "day=2").symlink_to(elsewhere)
    storage.create("documents/day=2/b.parquet", b"x")
    (elsewhere / "again").symlink_to(lake / "documents")
    (lake / "documents" / "self").symlink_to(lake)
    (lake / "documents" / "nowhere").symlink_to(tmp_path / "gone")
    assert storage.list("documents") == ["documents/day=1/a.parquet", "documents/day=2/b.parquet", "documents/nowhere"]


def test_a_folder_that_another_program_has_removed_is_created_again(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "lake")
    for _ in range(2):
        assert storage.create(NAME, b"x")
        shutil.rmtree(tmp_path / "lake" / "_weblake")


def test_the_parent_of_an_existing_root_may_be_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    opened = os.open

    def refused(path: str | Path, *args: int, **options: int) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", refused)
    assert LocalStorage(tmp_path / "lake").create(NAME, b"x")


def test_a_move_that_another_process_finishes_at_the_same_time_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both link the new name, and one of them finds that the old name is gone."""
    storage, other = LocalStorage(tmp_path), LocalStorage(tmp_path)
    storage.create(NAME, b"x")
    link = local_storage._link

    def meanwhile(source: Path, final: Path) -> bool:
        won = link(source, final)
        monkeypatch.setattr(local_storage, "_link", link)
        assert other.move(NAME, "documents/a.json")
        return won

    monkeypatch.setattr(local_storage, "_link", meanwhile)
    assert storage.move(NAME, "documents/a.json")
    assert storage.list("") == ["documents/a.json"]


def test_a_scratch_directory_that_something_else_has_removed_is_no_error(tmp_path: Path) -> None:
    with scratch.scratch_in(tmp_path) as directory:
        shutil.rmtree(directory)
    assert list(tmp_path.iterdir()) == []


def caused(error: Exception, cause: str) -> Exception:
    """Return an error with a cause, as s3fs makes them."""
    error.__cause__ = RuntimeError(cause)
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMLINK, "Too many links"), "hard links"),
        (OSError(errno.EROFS, "Read-only"), "mounted read-only"),
        (FileNotFoundError("no bucket"), "Create the directory, bucket or container"),
        (PermissionError("no"), "Give these credentials leave"),
        (RuntimeError("Unable to locate credentials"), "Set the storage's credentials"),
        (RuntimeError("Credential expired"), "Set the storage's credentials"),
        (
            caused(PermissionError("gone"), "An error occurred (InvalidAccessKeyId) when calling"),
            "does not know this key",
        ),
        (
            PermissionError("The AWS Access Key Id you provided does not exist in our records."),
            "does not know this key",
        ),
        (PermissionError("The request signature we calculated does not match"), "does not know this key"),
        (caused(PermissionError("x"), "An error occurred (ExpiredToken) when calling PutObject"), "token is wrong"),
        (
            caused(PermissionError("no"), "An error occurred (AccessDenied) when calling"),
            "Give these credentials leave",
        ),
        (RuntimeError("Invalid Credentials, 401"), "does not know this key"),
        (RuntimeError("('invalid_grant: Invalid JWT Signature.', {})"), "does not know this key"),
        (
            RuntimeError("Server failed to authenticate the request. ErrorCode:AuthenticationFailed"),
            "correct it in the env",
        ),
        (RuntimeError("odd"), "Check that the root is right"),
    ],
)
def test_a_refusal_names_its_remedy_and_no_secret(error: Exception, words: str) -> None:
    assert words in str(rules.refusal(error, "write", "s3://b/lake"))
    secret = RuntimeError("GET https://u:pw@h/x?sig=abc&X-Amz-Signature=def..  mine\n")
    told = rules.refusal(secret, "read", "s3://b", ("mine",)).message
    assert told == "s3://b refused to read: GET https://***@h/x?sig=***&X-Amz-Signature=*** ***."
    cut = rules.refusal(RuntimeError("x" * 296 + "mine-and-long"), "read", "s3://b", ("mine-and-long",)).message
    assert "mine" not in cut, "a secret at the end of the cut text is not shown in part"
    assert "ValueError" in rules.refusal(ValueError(), "read", "s3://b").message


def test_a_directory_that_cannot_be_synced_is_an_error_unless_the_file_system_has_no_such_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, told in ((errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)):

        def fails(descriptor: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            with pytest.raises(OSError, match=os.strerror(number)) if told else nullcontext():
                local_storage._sync_dir(tmp_path)


@pytest.mark.parametrize("kept", [b"first", b"second"])
def test_preflight_refuses_a_disk_that_lets_a_second_writer_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bytes
) -> None:
    """Whether it tells the second writer so or not."""
    create = LocalStorage.create

    def twice(self: LocalStorage, name: str, data: bytes) -> bool:
        created = create(self, name, data)
        if not created:
            (tmp_path / name).write_bytes(kept)
        return created or kept == b"first"

    monkeypatch.setattr(LocalStorage, "create", twice)
    with pytest.raises(StorageRefused, match="created the same file twice"):
        open_storage(tmp_path).preflight("documents")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_preflight_refuses_a_folder_in_which_nothing_can_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not bind the superuser, who may run this test."""
    folder = tmp_path / "documents" / "load_date=2026-11-21"
    folder.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode, **_: path != folder)
    with pytest.raises(StorageRefused, match="write permission"):
        open_storage(tmp_path).preflight("documents/load_date=2026-11-21")


def test_a_path_may_have_4095_bytes_and_a_key_1024(tmp_path: Path) -> None:
    def name_of(size: int) -> str:
        return "/".join(["x" * 200] * 25)[: size - 1] + "x"

    storage = LocalStorage(tmp_path)
    left = 4095 - len(str(tmp_path)) - 1
    storage.preflight("documents", [name_of(left)])
    with pytest.raises(StorageRefused, match="File name too long"):
        storage.preflight("documents", [name_of(left + 1)])
    memory = open_storage("memory://b")
    memory.preflight("documents", [name_of(1024 - len("b/"))])
    with pytest.raises(StorageRefused):
        memory.preflight("documents", [name_of(1025 - len("b/"))])

"""A root that cannot hold a load is refused before the job is started."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catalogue import proves
from scripted_job import url_of
from simulated_service import Content, SimulatedClient, SimulatedService

from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import StorageRefused
from weblake.events import Event, StatusPolled
from weblake.jobs.retry import observing
from weblake.loads import load, load_request
from weblake.loads.load_request import Naming, Terms

#: Directories of which one is usually on another file system than `tmp_path`.
ELSEWHERE = [Path("/dev/shm"), Path("/tmp")]
#: What `other_disk` has made during a test.
_MADE: list[Path] = []


@pytest.fixture(autouse=True)
def no_directory_is_left() -> Iterator[None]:
    """Remove the directories that a test made outside of `tmp_path`."""
    yield
    while _MADE:
        shutil.rmtree(_MADE.pop(), ignore_errors=True)  # some tests remove it themselves


def other_disk(root: Path) -> Path:
    """Return a new directory on another file system than the root."""
    others = [path for path in ELSEWHERE if path.is_dir() and path.stat().st_dev != root.parent.stat().st_dev]
    if not others:
        pytest.skip("NOT PROVEN HERE: no other file system is at /dev/shm or /tmp")
    made = others[0] / f"weblake-{uuid.uuid4().hex}"
    made.mkdir()
    _MADE.append(made)
    return made


def a_file_as_root(root: Path) -> None:
    root.write_text("a file")


def a_file_as_table(root: Path) -> None:
    root.mkdir()
    (root / "documents").write_text("a file")


def a_file_as_ledger(root: Path) -> None:
    (root / "_weblake").mkdir(parents=True)
    (root / "_weblake/ledger").write_text("a file")


def a_dangling_table(root: Path) -> None:
    root.mkdir()
    (root / "documents").symlink_to(root / "gone")


def a_file_as_page_errors(root: Path) -> None:
    root.mkdir()
    (root / "page_errors").write_text("a file")


def a_dangling_day(root: Path) -> None:
    (root / "documents").mkdir(parents=True)
    (root / "documents/day=1").symlink_to(root / "gone")


def page_errors_on_another_disk(root: Path) -> None:
    root.mkdir()
    (root / "page_errors").symlink_to(other_disk(root))


def a_file_as_refused(root: Path) -> None:
    (root / "_weblake").mkdir(parents=True)
    (root / "_weblake/refused").write_text("a file")


def nothing_above(root: Path) -> None:
    root.parent.rmdir()


def not_ours(root: Path) -> None:
    root.symlink_to("/proc")


ROOTS: list[Callable[[Path], None]] = [
    *(a_file_as_root, a_file_as_table, a_file_as_ledger, a_dangling_table, nothing_above, not_ours),
    *(a_file_as_page_errors, a_dangling_day, page_errors_on_another_disk, a_file_as_refused),
]


def refused(dataset: Dataset) -> StorageRefused:
    """Run a batch and assert that the service got no start; return the error."""
    content = Content([{"markdown": "x", "metadata": {"sourceURL": url_of(0)}}])
    world = SimulatedService(lambda urls: content)
    with world.clock.installed(), pytest.raises(StorageRefused) as caught:
        load.land(
            SimulatedClient(world),
            dataset,
            load_request.batch([url_of(0)], Naming(partition={"day": "1"})),
            Terms(timeout_s=60),
        )
    assert not world.jobs, "a job was started"
    assert caught.value.hint
    return caught.value


@proves(
    "P4",
    at="src/weblake/loads/intents.py",
    line="    dataset.preflight(request.partition, request.load_id)",
    becomes="    pass",
    case="a_file_as_table",
)
@proves(
    "P4",
    at="src/weblake/dataset/root.py",
    line="for table in layout.LOAD_TABLES]",
    becomes="for table in layout.LOAD_TABLES[:1]]",
    case="a_file_as_page_errors",
)
@proves(
    "P4",
    at="src/weblake/dataset/root.py",
    line="names.append(layout.refused_path(PAGE_ERRORS, load_id))",
    becomes="pass",
    case="a_file_as_refused",
)
@pytest.mark.parametrize("spoil", ROOTS, ids=lambda spoil: str(spoil.__name__))
def test_p4_an_unusable_root_is_refused_before_the_start(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    (tmp_path / "above").mkdir()
    root = tmp_path / "above" / "lake"
    spoil(root)
    assert str(root) in refused(open_dataset(root)).message


@pytest.mark.parametrize("bucket", [False, True])
def test_p4_a_name_that_is_too_long_is_refused_before_the_start(
    tmp_path: Path, request: pytest.FixtureRequest, *, bucket: bool
) -> None:
    root = request.getfixturevalue("s3_root") if bucket else str(tmp_path / "lake")
    for values, fits in ((3, True), (6 if bucket else 20, False)):
        content = Content([{"markdown": "x", "metadata": {"sourceURL": url_of(0)}}])
        world = SimulatedService(lambda urls, content=content: content)  # type: ignore[misc]
        partition = {f"key_{n}": "a" * 200 for n in range(values)}
        request, dataset = (
            load_request.batch([url_of(0)], Naming(partition=partition)),
            open_dataset(f"{root}-{values}"),
        )
        with world.clock.installed():
            if fits:
                load.land(SimulatedClient(world), dataset, request, Terms(timeout_s=60))
            else:
                with pytest.raises(StorageRefused, match=r"name is too long|name too long|longer than 1024"):
                    load.land(SimulatedClient(world), dataset, request, Terms(timeout_s=60))
        assert len(world.jobs) == fits


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere: test_storage_disk.py has it mounted read-only")
def test_p4_a_read_only_root_is_refused_before_the_start(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    (root / "documents").mkdir(parents=True)
    (root / "documents").chmod(0o500)
    assert "write permission" in str(refused(open_dataset(root)).hint)


@proves(
    "P14",
    at="src/weblake/storage/local.py",
    line="                (self._root / TMP / absent).rename(folder / absent)",
    becomes="                pass",
    case="documents",
)
@pytest.mark.parametrize("where", ["documents", "_weblake/tmp"])
def test_p14_staging_on_another_file_system_is_refused_before_the_start(tmp_path: Path, where: str) -> None:
    root = tmp_path / "lake"
    (root / where).parent.mkdir(parents=True)
    existing_job = other_disk(root)
    try:
        (root / where).symlink_to(existing_job)
        assert "one file system" in str(refused(open_dataset(root)).hint)
        assert list(existing_job.iterdir()) == []
    finally:
        shutil.rmtree(existing_job)


def test_p4_a_root_that_vanishes_during_the_job_is_reported_and_lands_later(tmp_path: Path) -> None:
    """Also a root replaced by a link meanwhile: the target of the link must not be written to."""
    content = Content([{"markdown": "x", "metadata": {"sourceURL": url_of(0)}}], polls=2)
    world = SimulatedService(lambda urls: content, replay=True)
    root, away = tmp_path / "lake", tmp_path / "away"
    request = load_request.batch([url_of(0)], Naming())

    def unplugged(event: Event) -> None:
        if isinstance(event, StatusPolled) and root.exists():
            root.rename(away)

    with world.clock.installed():
        client = SimulatedClient(world)
        with observing(client, unplugged), pytest.raises(StorageRefused) as caught:
            load.land(client, open_dataset(root), request, Terms(timeout_s=60))
        assert caught.value.hint
        if root.exists():
            shutil.rmtree(root)
        away.rename(root)
        receipt = load.land(SimulatedClient(world), open_dataset(root), request, Terms(timeout_s=60)).receipt
    assert (receipt.stored, len(world.jobs)) == (1, 1)

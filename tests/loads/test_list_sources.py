"""Tests of a file of URLs that changes between a killed run of the command line and the next run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from catalogue import proves
from task_lab import URLS, TaskLab, task_lab
from typer.testing import CliRunner, Result

from weblake.cli import _commands
from weblake.dataset import layout
from weblake.dataset.ledger import Ledger
from weblake.dataset.root import open_dataset
from weblake.errors import StorageRefused
from weblake.loads import load
from weblake.loads.list_sources import source_of
from weblake.loads.load_request import Naming

ANOTHER = "http://pages.test/new"


class Shell:
    """A command line with a file of URLs."""

    def __init__(self, lab: TaskLab, folder: Path) -> None:
        self.lab, self.file, self.root = lab, folder / "urls.txt", folder / "shell-lake"
        self.write(URLS)

    def write(self, urls: list[str]) -> None:
        self.file.write_text("\n".join(urls))

    def batch(self, *more: str) -> Result:
        _commands()
        from weblake.cli.app import app

        command = ["batch", "--urls", str(self.file), "--to", str(self.root), "--json", *more]
        return CliRunner().invoke(app, command)

    def landed(self, *more: str) -> tuple[int, str]:
        """Return how many pages of the list landed, and the messages."""
        result = self.batch(*more)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["stored"], result.stderr

    def killed(self, *more: str) -> None:
        """A run that dies while it waits for its job."""
        with mock.patch.object(load, "_wait_for_end", side_effect=MemoryError):
            assert isinstance(self.batch(*more).exception, MemoryError)

    @property
    def kept(self) -> list[str]:
        storage = open_dataset(self.root).storage
        return [*storage.list(layout.LISTS), *storage.list(layout.SUBMITTED)]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with task_lab(tmp_path) as lab:
        monkeypatch.setenv("WEBLAKE_BASE_URL", lab.service.url)
        monkeypatch.setenv("WEBLAKE_API_KEY", lab.service.key)
        yield Shell(lab, tmp_path)


CHANGES: dict[str, Callable[[Shell], None]] = {
    "one more": lambda shell: shell.write([*URLS, ANOTHER]),
    "fewer": lambda shell: shell.write(URLS[:1]),
    "another order": lambda shell: shell.write(URLS[::-1]),
    "deleted": lambda shell: shell.file.unlink(),
    "emptied": lambda shell: shell.file.write_text("# nothing\n"),
}


@proves(
    "2.9",
    at="src/weblake/cli/landing.py",
    line="    listed = urls or _urls_of(str(urls_file), column, sent)",
    becomes="    listed = urls or _urls_of(str(urls_file), column, None)",
    case="killed-one more",
)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first", ["killed", "detached"])
def test_a_started_load_lands_although_its_url_file_changed(shell: Shell, first: str, change: str) -> None:
    more = ("--key", "monday")
    if first == "killed":
        shell.killed(*more)
    else:
        assert shell.batch(*more, "--detach").exit_code == 0
    CHANGES[change](shell)
    stored, said = shell.landed(*more)
    assert (stored, shell.lab.started) == (3, 1)
    assert "landing what was sent" in " ".join(said.lower().split())
    assert shell.kept == []


def test_the_changed_list_is_started_after_the_first_has_landed(shell: Shell) -> None:
    shell.killed()
    shell.write([*URLS, ANOTHER])
    assert shell.landed()[0] == 3
    assert shell.landed()[0] == 4
    assert shell.lab.started == 2
    assert shell.kept == []


@pytest.mark.parametrize(
    "other",
    [("--key", "tuesday"), ("--new",), ("--format", "html"), ("--partition", "day=2026-11-21")],
    ids=lambda other: other[0],
)
def test_other_options_for_the_same_file_are_another_load(shell: Shell, other: tuple[str, ...]) -> None:
    if other[0] != "--partition":
        shell.killed()
    shell.write([*URLS, ANOTHER])
    assert shell.landed(*other)[0] == 4


def test_a_file_of_the_same_name_with_other_pages_is_another_load(shell: Shell) -> None:
    """As in a shell loop that writes one shard after the other into the same file."""
    shell.killed()
    shell.write([ANOTHER])
    assert shell.landed() == (1, "")
    shell.write(URLS)
    assert shell.landed()[0] == 3
    assert shell.lab.started == 2


def test_a_refused_load_does_not_block_another_list(shell: Shell) -> None:
    shell.lab.service.faults()
    with mock.patch("weblake.loads.load.completeness_error", return_value=StorageRefused("it does not add up")):
        assert shell.batch().exit_code == 1
    shell.write([*URLS, ANOTHER])
    assert shell.landed()[0] == 4


def test_a_refused_load_is_published_with_allow_partial_although_its_file_has_changed(shell: Shell) -> None:
    """Its remedy is the same command with --allow-partial, which must not pay for the changed list."""
    with mock.patch("weblake.loads.load.completeness_error", return_value=StorageRefused("it does not add up")):
        assert shell.batch().exit_code == 1
    shell.write([*URLS, ANOTHER])
    stored, said = shell.landed("--allow-partial")
    assert (stored, shell.lab.started) == (3, 1)
    assert "the list has changed since the job was started; landing what was sent" in said
    assert (shell.landed("--allow-partial")[0], shell.lab.started) == (4, 2), "then the current list"


def test_a_run_that_died_before_its_start_does_not_bind_the_file_to_its_list(shell: Shell) -> None:
    with mock.patch.object(Ledger, "record_start", side_effect=MemoryError):
        assert isinstance(shell.batch().exception, MemoryError)
    shell.write([*URLS, ANOTHER])
    assert shell.landed() == (4, "")
    assert shell.lab.started == 1


def test_a_damaged_record_of_the_file_stops_its_load_only(shell: Shell, tmp_path: Path) -> None:
    shell.killed()
    (record,) = (shell.root / layout.LISTS).iterdir()
    record.write_bytes(b"{")
    result = shell.batch()
    assert isinstance(result.exception, StorageRefused)
    assert record.name in str(result.exception)
    assert shell.lab.started == 1
    shell.file = tmp_path / "other.txt"
    shell.write([ANOTHER])
    assert shell.landed()[0] == 1


@pytest.mark.parametrize(
    ("file", "recognised"),
    [
        ("/dev/shm/urls.txt", True),
        ("/dev/fd/63", False),
        ("/dev/stdin", False),
        ("/proc/self/fd/0", False),
        ("-", False),
    ],
)
def test_a_file_in_memory_is_a_file_and_a_pipe_is_not(file: str, recognised: bool) -> None:
    assert (source_of(file, None, Naming(), {}) is not None) == recognised

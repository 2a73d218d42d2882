"""S6: tests of ids and names that try to leave their folder or URL path: in the client, the ledger and a root."""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from catalogue import proves
from hypothesis import given
from hypothesis import strategies as st

from weblake.api import operations
from weblake.dataset import ledger_listing
from weblake.dataset.layout import LEDGER, keys_of, load_path, refused_path, submitted_path
from weblake.dataset.ledger import Ledger
from weblake.errors import FixRequest, InvalidOption, StorageRefused
from weblake.storage import open_storage

NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
JOB = "01234567-89ab-4cde-8123-456789abcdef"
LOAD = "0123456789abcdef"
AWAY = [
    *("", ".", "..", "../x", "../../etc/passwd", "/etc/passwd", "a/../../b", "a//b", "\\\\host\\share", "..\\..\\x"),
    *(
        "%2e%2e/x",
        "..%2fx",
        "%2e%2e%2fx",
        "..%5cx",
        "%00",
        "a\0b",
        "a\nb",
        "CON",
        "con.json",
        "NUL",
        "x" * 300,
        "~root",
    ),
    *("\u2024\u2024/x", "\uff0e\uff0e/x", "\u2025/x", "x\u2215y", "\ud800", "\u202etxt", "file:///etc/passwd", "C:\\x"),
    *(f"{JOB}/..", f"{JOB}/../x", f"{JOB}\n", f" {JOB}", f"{JOB}?x=1", f"{JOB}#x", f"{JOB}%2f..", f"{{{JOB}}}"),
    *(JOB.replace("-", ""), f"{LOAD}/../x", f"{LOAD}\n", LOAD.upper(), f"{LOAD}0", LOAD.replace("0", "٠")),
]
WITH_JOB_ID = [
    each
    for _, each in inspect.getmembers(operations, inspect.isfunction)
    if next(iter(inspect.signature(each).parameters), "") == "job_id"
]


@proves(
    "S6",
    at="src/weblake/api/options/values.py",
    line="if isinstance(value, str) and _UUID.fullmatch(value):",
    becomes="if isinstance(value, str) and _UUID.match(value):",
)
@pytest.mark.parametrize("operation", WITH_JOB_ID, ids=lambda each: each.__name__)
def test_s6_an_id_is_a_uuid_before_it_stands_in_a_path(operation: Callable[..., object]) -> None:
    for away in AWAY:
        with pytest.raises(FixRequest, match="not a UUID"):
            operation(away)


def test_s6_operations_that_take_an_id_are_known() -> None:
    assert len(WITH_JOB_ID) >= 7


@proves("S6", at="src/weblake/dataset/identity.py", line="if not _LOAD_ID.fullmatch(load_id):", becomes="if False:")
@pytest.mark.parametrize("away", AWAY)
def test_s6_a_load_id_is_sixteen_digits_before_it_is_part_of_a_name(away: str, tmp_path: Path) -> None:
    ledger = Ledger(open_storage(str(tmp_path)))
    calls: list[Callable[[], object]] = [
        lambda: load_path("documents", None, NOON, away),
        lambda: refused_path("documents", away),
        lambda: submitted_path(away, "0" * 32),
        lambda: ledger.intent(away),
        lambda: ledger.job(away),
        lambda: ledger.done(away),
    ]
    for call in calls:
        with pytest.raises(InvalidOption):
            call()


@proves(
    "S6",
    at="src/weblake/storage/rules.py",
    line='any(part in ("", ".", "..") for part in parts)',
    becomes="False",
)
def test_s6_no_name_leaves_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("not yours")
    storage = open_storage(str(tmp_path / "root"))
    absolute = str(tmp_path / "outside")
    for away in ("../outside", "a/../../outside", absolute, "..\\outside", "a\0b", "./x", "a//b", "", "..", "a/", "/"):
        for call in (storage.read, storage.delete, storage.exists):
            with pytest.raises(StorageRefused, match="not a name inside"):
                call(away)
        with pytest.raises(StorageRefused, match="not a name inside"):
            storage.create(away, b"mine")
    assert (tmp_path / "outside").read_text() == "not yours"
    assert sorted(path.name for path in tmp_path.iterdir()) in (["outside"], ["outside", "root"])


@proves(
    "S6",
    at="src/weblake/dataset/layout.py",
    line="found: f'%{ord(found[0]):02X}', value",
    becomes="found: found[0], value",
)
@given(st.text(min_size=1, max_size=60) | st.sampled_from([text for text in AWAY if text]))
def test_s6_a_partition_value_is_one_folder_or_refused(value: str) -> None:
    try:
        path = load_path("documents", {"site": value}, NOON, LOAD)
    except InvalidOption:
        return
    assert path.count("/") == 2, path
    table, folder, name = path.split("/")
    assert (table, name) == ("documents", f"{LOAD}-00000.parquet")
    assert folder.startswith("site=")
    assert posixpath.normpath(path) == path
    assert len(folder.encode()) <= 255
    assert not set(folder) & set('\\\0\n:*?"')
    assert keys_of(path) == {"site": value}


@proves(
    "S6",
    at="src/weblake/dataset/layout.py",
    line="if not isinstance(key, str) or not _KEY.fullmatch(key):",
    becomes="if not isinstance(key, str):",
)
@pytest.mark.parametrize("away", [*AWAY, "Upper", "_hidden", "a-b", "a=b"])
def test_s6_a_partition_key_is_a_plain_word(away: str) -> None:
    if away != "con":
        with pytest.raises(InvalidOption):
            load_path("documents", {away: "x"}, NOON, LOAD)


def test_s6_a_foreign_file_in_the_ledger_is_not_a_load(tmp_path: Path) -> None:
    """Names that are no record of ours are passed over, whatever they say."""
    folder = tmp_path / LEDGER
    folder.mkdir(parents=True)
    for name in ("x.json", "..json", "%2e%2e.json", f"{LOAD.upper()}.json", f"{LOAD}.start-0.json", "CON.json"):
        (folder / name).write_text("{}")
    ledger = Ledger(open_storage(str(tmp_path)))
    assert (list(ledger_listing.loads(ledger)), ledger_listing.steps(ledger)) == ([], {})

"""What changed between two moments is what a slow, obvious implementation finds, once each, whatever lands when."""

from __future__ import annotations

import json
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from command_in_process import run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from made_loads import load_id
from task_lab import CLEAR, RETRY, task_lab
from tiers import examples
from versions_lab import BEGAN, land, page

import weblake
from weblake.dataset import changes, layout, newest
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import InvalidOption

PAGES = 4
#: Of each page that is known by a load that counts: whether it is there, and its text.
State = dict[int, tuple[bool, str]]


def kinds(found: weblake.Changes) -> list[tuple[str, str]]:
    return [(each.kind, each.page_key) for each in found]


def state(loads: dict[str, tuple[datetime, dict[int, tuple[int, str]]]]) -> State:
    """Return what the newest answer of each page is, slowly."""
    answers: dict[int, tuple[Any, ...]] = {}
    for load, (began, rows) in loads.items():
        for number, (status, text) in rows.items():
            if status < 400 or status in (404, 410):
                answers[number] = max(answers.get(number, ()), (began, load, status < 400, text))
    return {number: answer[2:] for number, answer in answers.items()}


def difference(before: State, after: State) -> list[tuple[str, str]]:
    found = []
    for number in range(PAGES):
        (was, old), (there, new) = before.get(number, (False, "")), after.get(number, (False, ""))
        kind = "changed" if was and there and old != new else "new" if there and not was else "gone"
        if was != there or (was and old != new):
            found.append((kind, f"a.test/{number}"))
    return found


rows = st.dictionaries(
    st.integers(0, PAGES - 1),
    st.tuples(st.sampled_from([200, 200, 200, 301, 404, 410, 403, 500]), st.sampled_from(["a", "b"])),
)
#: The hour at which a load began, its rows, the version of its file, whether it replaces the load that landed last but
#: so many, and whether `changes` is called after it.
events = st.lists(
    st.tuples(st.integers(0, 6), rows, st.sampled_from([1, 2]), st.none() | st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=6,
)


def replace(dataset: Dataset, old: str, new: str) -> None:
    (name,) = [name for name in dataset.storage.list("documents") if layout.load_id_in(name) == old]
    changes.keep_versions(dataset.storage, old, name)
    dataset.ledger.record_retired(old, new)
    dataset.storage.delete(name)


@given(events)
@settings(max_examples=examples(40))
def test_a_program_that_keeps_the_cursor_gets_every_change_once(made: list[tuple[Any, ...]]) -> None:
    """Loads land in another order than they began, and are replaced, also those of the cursor."""
    with tempfile.TemporaryDirectory() as root:
        dataset, cursor, known = open_dataset(root), None, State()
        dataset.layout.claim("documents", ("load_date",))
        loads: dict[str, tuple[datetime, dict[int, tuple[int, str]]]] = {}
        for n, (hour, found, version, replaced, look) in enumerate(made):
            old = [*loads][-1 - replaced] if replaced is not None and replaced < len(loads) else None
            began, new = BEGAN + timedelta(hours=hour), load_id(n)
            content = [page(number, status, text) for number, (status, text) in found.items()]
            at = BEGAN + timedelta(hours=9, minutes=n)
            land(dataset, new, began, content, version=version, landed=at, replaces=(old,) if old else ())
            loads[new] = (began, found)
            if old:
                replace(dataset, old, new)
                del loads[old]
            if look or n == len(made) - 1:
                now = state(loads)
                told = weblake.changes(root, cursor)
                assert kinds(told) == difference(known, now)
                assert told.cursor == new
                assert kinds(weblake.changes(root, new)) == []
                cursor, known = told.cursor, now
        assert {kind for kind, _ in kinds(weblake.changes(root))} <= {"new"}


def test_a_change_names_both_loads_and_times(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    hour = timedelta(hours=1)
    first = land(dataset, "0" * 16, BEGAN, [page(n, text="x") for n in range(4)])
    second = land(dataset, "1" * 16, BEGAN + hour, [page(0, text="y"), page(1, 404), page(2, 500), page(9)])
    found = weblake.changes(tmp_path, first)
    assert [(each.kind, each.url, each.load_id, each.before_load_id) for each in found] == [
        ("changed", "http://a.test/0", second, first),
        ("gone", "http://a.test/1", second, first),
        ("new", "http://a.test/9", second, None),
    ]
    assert {(each.loaded_at, each.before_loaded_at) for each in found if each.kind != "new"} == {(BEGAN + hour, BEGAN)}
    assert (found.counts(), len(found), found.cursor) == ({"new": 1, "changed": 1, "gone": 1}, 3, second)
    assert kinds(weblake.changes(tmp_path, BEGAN + hour / 2, second)) == kinds(found)
    assert kinds(weblake.changes(tmp_path, None, first)) == [("new", f"a.test/{n}") for n in range(4)]
    assert changes.counts_of_load(dataset, second) == found.counts()
    assert changes.counts_of_load(dataset, first) == {"new": 4, "changed": 0, "gone": 0}
    with pytest.raises(InvalidOption, match="before since"):
        weblake.changes(tmp_path, second, first)
    with pytest.raises(InvalidOption, match="neither a load that has landed here nor a time"):
        weblake.changes(tmp_path, "f" * 16)


def test_loads_that_landed_just_now_wait_while_another_one_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of that load may state an earlier time than theirs: it would be before the cursor."""
    dataset, now = open_dataset(tmp_path), datetime.now(timezone.utc)
    old = land(dataset, "0" * 16, BEGAN, [page(0)])
    new = land(dataset, "1" * 16, BEGAN, [page(1)], landed=now)
    slow = land(dataset, "2" * 16, BEGAN, [page(2)], done=False)
    found = weblake.changes(tmp_path)
    assert (kinds(found), found.cursor) == ([("new", "a.test/0")], old)
    dataset.ledger.record_done(slow, {"load_id": slow, "files": []}, at=(now - timedelta(seconds=1)).isoformat())
    assert kinds(weblake.changes(tmp_path, found.cursor)) == [("new", "a.test/1"), ("new", "a.test/2")]
    assert weblake.changes(tmp_path, found.cursor).cursor == new


def test_a_root_without_a_load_has_no_change(tmp_path: Path) -> None:
    found = weblake.changes(tmp_path)
    assert (kinds(found), found.cursor, found.to_table().num_rows) == ([], None, 0)


@pytest.mark.parametrize("kept", [True, False])
def test_a_replacement_by_a_clear_tells_what_differs_from_the_replaced_load(tmp_path: Path, kept: bool) -> None:
    """Of a load that an older weblake has replaced, nothing is known: its pages are new once more."""
    with task_lab(tmp_path) as lab:
        lab.web.statuses[lab.urls[1]] = 404
        old = lab.land(RETRY).receipt.load_id
        seen = weblake.changes(lab.root)
        assert seen.counts() == {"new": 2, "changed": 0, "gone": 0}
        lab.web.statuses.clear()
        new = lab.land(CLEAR).receipt.load_id
        versions = lab.root / layout.REPLACED / f"{old}.parquet"
        assert versions.exists()
        if not kept:
            versions.unlink()
        found = weblake.changes(lab.root, seen.cursor)
        assert lab.visible == [new]
        assert kinds(found) == [("new", f"pages.test/{n}") for n in ([1] if kept else [0, 1, 2])]


def test_a_replacement_keeps_nothing_where_nobody_has_asked_for_changes(tmp_path: Path) -> None:
    with task_lab(tmp_path) as lab:
        lab.land(RETRY)
        lab.land(CLEAR)
        assert not (lab.root / layout.REPLACED).exists()
        assert weblake.changes(lab.root).counts()["new"] == 3


def test_the_command_lists_changes_and_the_cursor(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path / "lake")
    first = land(dataset, "0" * 16, BEGAN, [page(0, text="x")])
    second = land(dataset, "1" * 16, BEGAN + timedelta(hours=1), [page(0, text="y")])
    code, out, _ = run_command(["changes", str(tmp_path / "lake"), "--since", first, "--json"], {})
    shown = json.loads(out)
    assert (code, shown["cursor"], shown["counts"]) == (0, second, {"new": 0, "changed": 1, "gone": 0})
    assert [(each["kind"], each["url"], each["before_loaded_at"]) for each in shown["changes"]] == [
        ("changed", "http://a.test/0", BEGAN.isoformat())
    ]
    code, out, err = run_command(["changes", str(tmp_path / "lake"), "--since", "2026-11-21T00:30:00Z"], {})
    assert (code, "http://a.test/0" in out, second in out) == (0, True, True)
    assert f"0 new, 1 changed, 0 gone. Continue with --since {second}." in err
    assert run_command(["changes", str(tmp_path)], {})[0] == 1


def test_memory_drops_older_versions_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "_MIN_ROWS", 3)
    dataset = open_dataset(tmp_path)
    for n in range(8):
        land(dataset, load_id(n), BEGAN + timedelta(hours=n), [page(m, text=f"{n}") for m in range(4)])
    assert sorted(weblake.read(tmp_path).latest().to_table()["markdown"].to_pylist()) == ["7"] * 4
    assert weblake.changes(tmp_path, load_id(5)).counts() == {"new": 0, "changed": 4, "gone": 0}

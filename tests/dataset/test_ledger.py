from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from catalogue import proves
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.dataset import ledger_listing
from weblake.dataset.identity import job_load_id, load_id_of
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Done, Intent, Job, Retired, StartAttempt, Void, utc_now
from weblake.dataset.slots import group_of
from weblake.errors import InvalidOption, StorageRefused
from weblake.storage import Storage, open_storage

LOAD = "0123456789abcdef"
OTHER = "fedcba9876543210"


def intent(load_id: str = LOAD, **given: object) -> Intent:
    fields: dict[str, object] = {
        "kind": "batch_scrape",
        "endpoint": "batch_scrape",
        "created_at": "2026-11-21T06:00:00.123456+00:00",
        "request_sha256": "ab" * 32,
        "service": "https://service.example",
        "submitted": 3,
        "first_target": "https://example.com/ä?x=1",
        "partition": {"site": "b", "ds": "2026-11-21"},
        "slot": "dag/task",
        "slot_has_partition": True,
        "generation": 2,
        "run": "manual",
        "replay": True,
    }
    return Intent(load_id=load_id, **{**fields, **given})  # type: ignore[arg-type]


def job(load_id: str = LOAD, job_id: str = "4d8b6c1e-0000-4000-8000-000000000001", **given: object) -> Job:
    return Job(load_id=load_id, job_id=job_id, kind="batch_scrape", at=utc_now(), **given)  # type: ignore[arg-type]


def start(n: int = 1, load_id: str = LOAD) -> StartAttempt:
    return StartAttempt(load_id=load_id, n=n, key=f"key-{n}", at="2026-11-21T06:00:01Z")


@pytest.fixture
def storage(any_root: str) -> Storage:
    return open_storage(any_root)


@pytest.fixture
def ledger(storage: Storage) -> Ledger:
    return Ledger(storage)


def test_a_load_from_intent_to_retirement(ledger: Ledger, storage: Storage) -> None:
    assert ledger.intent(LOAD) is None
    ours = intent()
    assert ledger.record_intent(ours) == ours
    assert ledger.intent(LOAD) == ours
    assert list(ledger.intent(LOAD).partition) == ["site", "ds"]  # type: ignore[union-attr, arg-type]
    assert ours.created() == datetime(2026, 11, 21, 6, 0, 0, 123456, timezone.utc)
    assert ledger.last_start(LOAD) is None
    assert ledger.record_start(start())
    assert not ledger.record_start(start())
    assert ledger.starts(LOAD)[0].key == "key-1"
    ledger.void_start(start(), "refused")
    assert [each.void for each in ledger.starts(LOAD)] == [True]
    assert ledger.record_start(start(2))
    assert [(each.n, each.void) for each in ledger.starts(LOAD)] == [(1, True), (2, False)]
    found = job(rejected=("x://y",), adopted=True)
    assert ledger.record_job(found) == found == ledger.job(LOAD)
    assert ledger.done(LOAD) is None
    receipt = {"load_id": LOAD, "job_id": found.job_id, "stored": 3, "files": [{"path": "a", "rows": 3, "bytes": 9}]}
    done = ledger.record_done(LOAD, receipt, retired=[OTHER])
    assert (done.receipt, done.retired) == (receipt, (OTHER,))
    assert ledger.done(LOAD) == done
    assert ledger.record_retired(LOAD, OTHER).by == OTHER
    assert ledger.retired(LOAD).by == OTHER  # type: ignore[union-attr]
    assert storage.list("") == [
        f"_weblake/ledger/{LOAD}{step}.json"
        for step in (".done", ".job", "", ".retired", ".start-1", ".start-1.void", ".start-2")
    ]


def test_the_second_writer_gets_the_record_of_the_first(ledger: Ledger) -> None:
    first = intent()
    ledger.record_intent(first)
    assert ledger.record_intent(intent(kind="crawl")) == first
    ours = ledger.record_job(job())
    assert ledger.record_job(job(job_id="another")) == ours
    done = ledger.record_done(LOAD, {"stored": 1})
    assert ledger.record_done(LOAD, {"stored": 2}) == done
    assert ledger.record_retired(LOAD, OTHER) == ledger.record_retired(LOAD, LOAD)


def test_equal_intents_of_two_writers_have_one_winner(any_root: str) -> None:
    barrier = threading.Barrier(6)
    got: list[tuple[str, str]] = []

    def begin() -> None:
        ledger, mine = Ledger(open_storage(any_root)), intent()
        barrier.wait(30)
        got.append((mine.writer, ledger.record_intent(mine).writer))

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(got) == 6
    assert len({winner for _, winner in got}) == 1
    assert sum(mine == winner for mine, winner in got) == 1


def test_a_start_whose_predecessor_is_open_is_refused(ledger: Ledger) -> None:
    ledger.record_start(start())
    with pytest.raises(StorageRefused, match="the outcome of start 1 is unknown"):
        ledger.record_start(start(2))
    assert [each.n for each in ledger.starts(LOAD)] == [1]


@pytest.mark.parametrize("load_id", ["", "0123", LOAD.upper(), "../../x", f"{LOAD}0", f"{LOAD}\n", "0123456789abcde/"])
def test_load_ids_are_checked(ledger: Ledger, load_id: str) -> None:
    reads: list[Callable[[str], object]] = [ledger.intent, ledger.starts, ledger.job, ledger.done, ledger.retired]
    for read in reads:
        with pytest.raises(InvalidOption):
            read(load_id)
    with pytest.raises(InvalidOption):
        ledger.record_job(job(load_id))


def test_loads_come_in_the_order_in_which_they_landed(ledger: Ledger) -> None:
    day = datetime(2026, 11, 1, tzinfo=timezone.utc)
    ids = [f"{n:016x}" for n in (5, 3, 9, 1)]
    for n, load_id in enumerate(ids):
        ledger.record_intent(intent(load_id, created_at=(day + timedelta(days=n)).isoformat()))
    ledger.record_done(ids[0], {}, at=(day + timedelta(days=9)).isoformat())
    ledger.record_done(ids[1], {}, at=(day + timedelta(days=8)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    ledger.record_retired(ids[1], ids[0])
    loads = list(ledger_listing.loads(ledger))
    assert [load.load_id for load in loads] == [ids[2], ids[3], ids[1], ids[0]]
    assert [bool(load.done) for load in loads] == [False, False, True, True]
    assert [load.retired.by if load.retired else None for load in loads] == [None, None, ids[0], None]
    assert [bool(load.intent) for load in loads] == [True, True, False, False], "a receipt says it all"


def test_a_job_of_any_kind_has_one_owner(ledger: Ledger) -> None:
    for kind in ("batch_scrape", "scrape"):
        assert ledger.owner(kind, "job-1") is None
        assert ledger.claim_job(kind, "JOB-1", LOAD) == LOAD
        assert ledger.claim_job(kind, "job-1", OTHER) == ledger.owner(kind, "job-1") == LOAD


def test_foreign_files_in_the_ledger_are_ignored(ledger: Ledger, storage: Storage) -> None:
    storage.create("_weblake/ledger/notes.txt", b"somebody's")
    assert list(ledger_listing.loads(ledger)) == []
    ledger.record_done(LOAD, {"job_id": None})
    assert [load.load_id for load in ledger_listing.loads(ledger)] == [LOAD]


# --- unknown is not absent -----------------------------------------------------------------------------------------

READERS: dict[str, tuple[str, Callable[[Ledger], object], msgspec.Struct]] = {
    "intent": ("", lambda ledger: ledger.intent(LOAD), intent()),
    "start": (".start-1", lambda ledger: ledger.starts(LOAD), start()),
    "job": (".job", lambda ledger: ledger.job(LOAD), job()),
    "done": (".done", lambda ledger: ledger.done(LOAD), Done(load_id=LOAD, at=utc_now(), receipt={"job_id": "x"})),
    "retired": (".retired", lambda ledger: ledger.retired(LOAD), Retired(load_id=LOAD, by=OTHER, at=utc_now())),
}


def _with(step: str, data: bytes) -> tuple[Ledger, Storage]:
    storage = open_storage(f"memory://{os.urandom(8).hex()}/lake")
    storage.create(f"_weblake/ledger/{LOAD}{step}.json", data)
    return Ledger(storage), storage


@proves(
    "P13",
    at="src/weblake/dataset/ledger.py",
    line='            raise self._unknown(name, "it is damaged") from error',
    becomes="            return None",
    case="job",
)
@pytest.mark.parametrize("which", READERS)
@settings(max_examples=examples(60, 3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_p13_a_damaged_record_is_never_read_as_absent(which: str, data: st.DataObject) -> None:
    step, read, record = READERS[which]
    whole = msgspec.json.encode(record)
    damaged = data.draw(
        st.one_of(
            st.binary(max_size=64),
            st.integers(0, len(whole) - 1).map(lambda cut: whole[:cut]),
            st.integers(1, len(whole)).map(lambda hole: b"\0" * hole + whole[hole:]),
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            ).map(lambda value: json.dumps(value).encode()),
        )
    )
    ledger, storage = _with(step, damaged)
    with pytest.raises(StorageRefused, match=r"cannot be read") as caught:
        read(ledger)
    assert caught.value.hint
    assert storage.read(f"_weblake/ledger/{LOAD}{step}.json") == damaged


@settings(max_examples=examples(200))
@given(st.data())
@example(None)
def test_p13_a_flipped_byte_is_unknown_or_still_a_record(data: st.DataObject | None) -> None:
    """With any change of one byte, a record is never read as absent, nor as that of another load."""
    whole = bytearray(msgspec.json.encode(intent()))
    if data is not None:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    ledger, _ = _with("", bytes(whole))
    try:
        found = ledger.intent(LOAD)
    except StorageRefused:
        return
    assert found is not None
    assert found.load_id == LOAD
    found.created().timestamp()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": 2},
        {"version": "1"},
        {"load_id": OTHER},
        {"created_at": "yesterday"},
        {"created_at": "2026-13-21T06:00:00Z"},
        {"created_at": "2026-11-21T06:00:00+02:00"},
        {"kind": ""},
        {"partition": ["x"]},
        {"generation": 1.5},
    ],
)
def test_p13_records_that_are_not_understood_are_unknown(change: dict[str, object]) -> None:
    ledger, _ = _with("", json.dumps({**json.loads(msgspec.json.encode(intent())), **change}).encode())
    with pytest.raises(StorageRefused, match="cannot be read"):
        ledger.intent(LOAD)


def test_p13_a_second_writer_does_not_continue_from_a_damaged_record() -> None:
    ledger, storage = _with("", b'{"version":1')
    with pytest.raises(StorageRefused, match="cannot be read"):
        ledger.record_intent(intent())
    assert storage.read(f"_weblake/ledger/{LOAD}.json") == b'{"version":1'


def test_fields_of_a_later_version_are_ignored() -> None:
    ledger, _ = _with("", json.dumps({**json.loads(msgspec.json.encode(intent())), "colour": {"new": [1]}}).encode())
    assert ledger.intent(LOAD) is not None


def test_a_record_that_could_not_be_read_back_is_not_written(ledger: Ledger, storage: Storage) -> None:
    for bad in (
        lambda: ledger.record_intent(intent(created_at="now")),
        lambda: ledger.record_intent(intent(first_target="\ud800")),
        lambda: ledger.record_done(LOAD, {"x": object()}),
        lambda: ledger.record_job(job(job_id="")),
    ):
        with pytest.raises(StorageRefused, match="was not written"):
            bad()
    assert storage.list("") == []


def test_only_the_first_target_of_a_request_is_recorded() -> None:
    """No field exists that could hold a URL list (`urls` is a digest), a body, headers or a key."""
    assert set(Intent.__struct_fields__) == {
        *("load_id", "version", "writer", "kind", "endpoint", "created_at", "request_sha256", "service", "submitted"),
        *("first_target", "urls", "partition", "slot", "slot_has_partition", "generation", "run", "occasion", "replay"),
        *("task", "clock_ahead_s", "new_key", "page_limit", "fresh"),
    }


def test_a_scrape_is_landed_as_its_own_load_whatever_its_job_id(tmp_path: Path) -> None:
    """Only batches and crawls can be landed by job id, so nothing is claimed for other kinds."""
    ledger = Ledger(open_storage(tmp_path))
    for load_id in (LOAD, OTHER):
        assert ledger.claim_landing("scrape", job().job_id, load_id) == load_id
        assert ledger.claim_landing("batch_scrape", job().job_id, load_id) == LOAD
    assert ledger.landing_load("scrape", job().job_id) is None
    assert ledger.landing_load("batch_scrape", job().job_id) == LOAD


def test_a_cycle_of_replacements_ends(tmp_path: Path) -> None:
    """Only a damaged ledger has one; each load is then replaced by the other."""
    ledger = Ledger(open_storage(tmp_path))
    ledger.record_retired(LOAD, OTHER)
    assert ledger.current_load(LOAD) == OTHER
    ledger.record_retired(OTHER, LOAD)
    assert {ledger.current_load(LOAD), ledger.current_load(OTHER)} == {LOAD, OTHER}


def test_ids_stay_the_same_in_every_version() -> None:
    """They name the records: with another id, a job that was paid would be started again."""
    assert load_id_of("task", "a", {"b": 1, "a": None}) == "646cc9ea02df3a8a"
    assert job_load_id("batch_scrape", job().job_id.upper()) == "bd51a57532a658ec"
    assert group_of("asset", "run", has_partition=True) == "5f30f490476782d8"
    assert group_of("asset", "run", has_partition=False) == "acea8e63a041cadf"


def test_the_evidence_that_a_start_started_nothing_is_kept_up_to_500_characters(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    ledger = Ledger(storage)
    ledger.record_start(start())
    ledger.void_start(start(), "RequestRejected (400) " + "x" * 1000)
    (name,) = (each for each in storage.list("_weblake") if each.endswith(".void.json"))
    why = msgspec.json.decode(storage.read(name) or b"", type=Void).why
    assert (why[:21], len(why)) == ("RequestRejected (400)", 500)

"""Tests of a root with thousands of loads: all are listed in order, and finding one reads no other.

Two thousand by default, a hundred thousand under `nightly`.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from catalogue import proves

from weblake.dataset import layout
from weblake.dataset.history import history
from weblake.dataset.landed_loads import find
from weblake.dataset.records import Done, Intent
from weblake.dataset.root import Dataset, open_dataset
from weblake.receipt import Receipt
from weblake.storage.local import LocalStorage

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def filled(root: Path, count: int) -> Dataset:
    """A root whose loads have landed in the reverse order of their ids; every tenth has only begun."""
    ledger = root / layout.LEDGER
    ledger.mkdir(parents=True)
    for n in range(count):
        load_id, at = f"{n:016x}", (BEGUN + timedelta(seconds=count - n)).isoformat()
        intent = Intent(
            load_id=load_id, kind="crawl", endpoint="crawl", created_at=at, request_sha256="ab" * 32, writer="test"
        )
        (ledger / f"{load_id}.json").write_bytes(msgspec.json.encode(intent))
        if n % 10:
            receipt = Receipt(load_id=load_id, kind="crawl", job_id=f"job-{n}", stored=n).to_dict()
            done = Done(load_id=load_id, at=at, receipt=receipt, writer="test")
            (ledger / f"{load_id}.done.json").write_bytes(msgspec.json.encode(done))
    return open_dataset(root)


@proves(
    "P14",
    at="src/weblake/dataset/ledger_listing.py",
    line="in sorted(found):",
    becomes="in found:",
    case="2000",
)
@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])])
def test_p14_loads_are_listed_in_order(tmp_path: Path, count: int) -> None:
    dataset = filled(tmp_path / "lake", count)
    landed = [f"{n:016x}" for n in reversed(range(count)) if n % 10]
    rows = list(history(dataset))
    assert [row.receipt.load_id for row in rows] == landed
    assert sum(row.receipt.stored for row in rows) == sum(n for n in range(count) if n % 10)
    assert [row.receipt.load_id for row in history(dataset, since=landed[-3])] == landed[-2:]


def test_p14_finding_a_load_reads_no_other_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = filled(tmp_path / "lake", 100)
    read: list[str] = []
    real = LocalStorage.read

    def spied(self: LocalStorage, name: str) -> bytes | None:
        read.append(name)
        return real(self, name)

    def refuse(self: LocalStorage, prefix: str) -> Any:
        raise AssertionError(f"{prefix} was listed")

    monkeypatch.setattr(LocalStorage, "read", spied)
    monkeypatch.setattr(LocalStorage, "list", refuse)
    landing = find(dataset, f"{57:016x}")
    assert landing is not None
    assert landing.receipt.stored == 57
    assert all(f"{57:016x}" in name for name in read)

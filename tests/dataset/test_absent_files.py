"""Tests of files of landed loads that another program has deleted: their absence is an error, not an empty result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catalogue import proves
from landing_lab import LandingLab, landing_lab

import weblake
from weblake import Terms, errors
from weblake.receipt import Receipt
from weblake_service.page_failure import PageFailure

SITE = "http://pages.test"
TERMS = Terms(poll_s=0.05, timeout_s=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LandingLab]:
    with landing_lab(LandingLab, tmp_path / "lake") as made:
        yield made


def land(lab: LandingLab, *names: str, **options: str) -> Receipt:
    urls = [f"{SITE}/{name}" for name in names]
    return weblake.land_batch(urls, to=lab.root, client=lab.client, terms=TERMS, **options)


def delete(lab: LandingLab, receipt: Receipt, table: str = "documents") -> None:
    for file in receipt.files:
        if file.path.startswith(table):
            (Path(lab.root) / file.path).unlink()


FORMS: dict[str, Callable[[weblake.Reading], object]] = {
    "table": lambda reading: reading.to_table(),
    "rows": lambda reading: reading.count_rows(),
    "files": lambda reading: reading.files(),
    "lazy": lambda reading: reading.to_polars_lazy(),
    "dataset": lambda reading: reading.to_dataset(),
}


@proves("2.14", at="src/weblake/dataset/reading.py", line="        if gone:", becomes="        if False:")
@pytest.mark.parametrize("form", FORMS)
def test_a_reader_names_the_loads_whose_files_are_gone(lab: LandingLab, form: str) -> None:
    kept, gone = land(lab, "kept"), land(lab, "gone")
    delete(lab, gone)
    for loads in (None, [gone.load_id], [kept.load_id, gone.load_id]):
        with pytest.raises(errors.StorageRefused, match=f"gone from documents of .*: {gone.load_id}"):
            FORMS[form](weblake.read(lab.root, loads=loads))
    assert weblake.read(lab.root, loads=[kept.load_id]).count_rows() == 1


def test_page_errors_that_are_gone_are_reported_too(lab: LandingLab) -> None:
    """The documents of such a load are read: only its page errors are gone."""
    lab.web.failures[f"{SITE}/failed"] = PageFailure("SCRAPE_DNS_RESOLUTION_ERROR", "the name does not exist")
    receipt = land(lab, "page", "failed")
    assert (receipt.stored, receipt.failed) == (1, 1)
    delete(lab, receipt, "page_errors")
    with pytest.raises(errors.StorageRefused, match=f"gone from page_errors of .*: {receipt.load_id}"):
        weblake.read(lab.root, "page_errors").to_table()
    assert weblake.read(lab.root).count_rows() == 1


def test_only_the_partitions_that_are_read_must_have_their_files(lab: LandingLab) -> None:
    old, new = (land(lab, "page", partition={"day": day}) for day in ("2026-11-01", "2026-11-02"))
    delete(lab, old)
    with pytest.raises(errors.StorageRefused, match=old.load_id):
        weblake.read(lab.root).to_table()
    assert weblake.read(lab.root, keys={"day": "2026-11-02"}).count_rows() == new.stored


def test_a_load_whose_file_is_gone_has_not_landed_already(lab: LandingLab) -> None:
    receipt = land(lab, "page")
    delete(lab, receipt)
    advice = f"documents.*{receipt.load_id}.*a table of the dataset.*new=True, which"
    with pytest.raises(errors.StorageRefused, match=advice):
        land(lab, "page")
    assert lab.service.counts()["batch_scrape_started"] == 1

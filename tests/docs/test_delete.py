"""The programs of the page "Delete a page or a load", run on a dataset with tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from command_in_process import run_command
from page_blocks import codes
from pyiceberg.utils.config import Config

import weblake
from weblake.api.page_keys import page_key
from weblake.dataset.root import open_dataset

if TYPE_CHECKING:
    from weblake.testing import WeblakeService, WeblakeSite

TEXT = (Path(__file__).parents[2] / "docs" / "site" / "tasks" / "delete.md").read_text()
A_PAGE, A_LOAD, DELTA, ICEBERG, CHECK = codes(TEXT, "python")


@pytest.fixture
def lake(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Land two loads with the page and a failed page; return what stands in the programs, and what to put there."""
    monkeypatch.chdir(tmp_path)
    for name, value in weblake_service.environment().items():
        monkeypatch.setenv(name, value)
    home, about = weblake_site.urls()[:2]
    for options in ({}, {"new": True}):
        receipt = weblake.land_batch([home, about, "http://127.0.0.1:1/dead"], to="lake", **options)  # type: ignore[arg-type]
    key = page_key(about)
    assert key is not None
    return {"https://example.org/about": about, "example.org/about": key, "0123456789abcdef": receipt.load_id}


def run(code: str, lake: dict[str, str]) -> None:
    for shown, real in lake.items():
        code = code.replace(shown, real)
    exec(compile(code, "delete.md", "exec"), {})


def command(*args: str) -> str:
    code, out, err = run_command(args, {})
    assert code == 0, f"{out}\n{err}"
    return out


def keys_in_files(folder: str) -> set[str]:
    """Return the page keys in all Parquet files of a folder, also in those of older versions of a table."""
    files = Path(folder).rglob("*.parquet")
    return {key for file in files for key in pq.ParquetFile(file).read(["page_key"])["page_key"].to_pylist()}


@pytest.mark.system
def test_a_page_is_in_no_file_of_the_dataset_and_stays_out_of_a_table(lake: dict[str, str]) -> None:
    key = lake["example.org/about"]
    command("table", "add", "lake", "delta")
    command("table", "sync", "lake")
    with pytest.raises(AssertionError):
        run(CHECK, lake)
    run(A_PAGE, lake)
    run(CHECK, lake)
    assert key not in keys_in_files("lake/documents")
    assert (weblake.read("lake").count_rows(), weblake.read("lake", "page_errors").count_rows()) == (2, 2)
    assert key in keys_in_files("lake/delta")
    run(DELTA, lake)
    assert key not in keys_in_files("lake/delta")
    assert "0 loads added" in command("table", "sync", "lake")
    assert "2 rows" in command("table", "status", "lake")


def test_a_page_that_failed_is_deleted_and_nothing_is_bought_again(
    lake: dict[str, str], weblake_service: WeblakeService, weblake_site: WeblakeSite
) -> None:
    before = weblake_service.counts()["pages_billed"]
    run(A_PAGE, {"https://example.org/about": "http://127.0.0.1:1/dead"})
    assert (weblake.read("lake").count_rows(), weblake.read("lake", "page_errors").count_rows()) == (4, 0)
    again = weblake.land_batch([*weblake_site.urls()[:2], "http://127.0.0.1:1/dead"], to="lake")
    assert (again.stored, again.failed, weblake_service.counts()["pages_billed"]) == (2, 1, before)
    assert json.loads(command("orphans", "lake", "--json"))["orphans"] == []


@pytest.mark.system
def test_a_load_has_no_rows_and_a_later_sync_copies_none(lake: dict[str, str]) -> None:
    run(A_LOAD, lake)
    rows = weblake.read("lake").to_table()
    assert lake["0123456789abcdef"] not in rows["load_id"].to_pylist()
    assert rows.num_rows == weblake.read("lake").latest().count_rows() == weblake.read("lake").to_polars().height == 2
    assert weblake.read("lake", "page_errors").count_rows() == 1
    command("table", "add", "lake", "delta")
    command("table", "sync", "lake")
    assert "2 rows" in command("table", "status", "lake")


@pytest.mark.system
def test_a_page_is_deleted_from_an_iceberg_table(
    lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it has read the environment at its import
    command("table", "add", "lake", "iceberg", "--catalog", "lake", "--identifier", "web.documents")
    command("table", "sync", "lake")
    run(A_PAGE, lake)
    run(ICEBERG, lake)
    assert "0 loads added" in command("table", "sync", "lake")
    assert "2 rows" in command("table", "status", "lake")


def test_a_refused_load_whose_file_was_deleted_is_read_again(lake: dict[str, str], weblake_site: WeblakeSite) -> None:
    urls = [weblake_site.urls()[0], "http://127.0.0.1:1/dead"]
    with pytest.raises(weblake.errors.LoadIncomplete) as refused:
        weblake.land_batch(urls, to="lake", key="a", terms=weblake.Terms(fail_ratio=0.1))
    assert refused.value.receipt is not None
    for file in Path("lake/_weblake/refused").glob(f"*{refused.value.receipt.load_id}*"):
        open_dataset("lake").storage.delete(f"_weblake/refused/{file.name}")
    assert weblake.land_batch(urls, to="lake", key="a").job_id == refused.value.receipt.job_id

"""The programs and DuckDB's statements of the pages about tables, run literally over a dataset with both tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from own_environment import environment
from page_blocks import blocks, files
from pyiceberg.catalog import load_catalog
from versions_lab import BEGAN, land, page

from weblake import tables
from weblake.dataset.root import open_dataset

PAGES = Path(__file__).parents[2] / "docs/site/tables"
PROGRAMS = {
    name: code
    for file in ("overview.md", "query.md", "maintain.md")
    for name, code in files((PAGES / file).read_text()).items()
}
STATEMENTS = [code for _, title, code in blocks((PAGES / "query.md").read_text()) if title == "DuckDB"]
EXTENSIONS = ("delta", "avro", "iceberg")

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset `lake` and its tables; `run` gives programs the catalog."""
    folder = tmp_path_factory.mktemp("tables")
    dataset = open_dataset(folder / "lake")
    dataset.layout.claim("documents", ("load_date",))
    for day in range(2):
        land(dataset, str(day) * 16, BEGAN + timedelta(days=day), [page(n) for n in range(3)])
    assert run(folder, PROGRAMS["sync.py"]).startswith("documents (")
    tables.add(folder / "lake", "iceberg", catalog="lake", identifier="web.documents", table_options=catalog(folder))
    tables.sync(folder / "lake", format="iceberg", table_options=catalog(folder))
    return folder


def catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/house"}


def run(folder: Path, program: str, python: str = sys.executable) -> str:
    named = {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": value for name, value in catalog(folder).items()}
    done = subprocess.run(
        [python, "-c", program], cwd=folder, env=os.environ | named, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_frames_read_files_and_both_tables(folder: Path) -> None:
    assert run(folder, PROGRAMS["frames.py"]).split() == ["6"] * 4


def test_maintenance_changes_no_row(folder: Path) -> None:
    for name in ("compact.py", "vacuum.py", "expire.py"):
        run(folder, PROGRAMS[name])
    delta, iceberg = tables.status(folder / "lake", table_options=None, format="delta") + tables.status(
        folder / "lake", table_options=catalog(folder), format="iceberg"
    )
    assert (delta.in_step, delta.rows) == (iceberg.in_step, iceberg.rows) == (True, 6)


def test_duckdb_runs_its_statements(folder: Path, tmp_path: Path) -> None:
    """In an environment of its own: its extensions are packages for one version of DuckDB."""
    python = environment(
        tmp_path / "env", ["duckdb==1.5.5", "pytz", *(f"duckdb-extension-{name}==1.5.5" for name in EXTENSIONS)]
    )
    newest = load_catalog("lake", **catalog(folder)).load_table("web.documents").metadata_location
    assert len(STATEMENTS) == 3
    for statement in STATEMENTS:
        for name in re.findall(r"INSTALL (\w+)", statement):
            (file,) = (tmp_path / "env").rglob(f"{name}.duckdb_extension")
            statement = statement.replace(f"INSTALL {name}; LOAD {name};", f"LOAD '{file}';")
        statement = re.sub(r"'lake/warehouse/.+?'", f"'{newest}'", statement)
        printed = run(folder, f"import duckdb; print(len(duckdb.sql({statement!r}).fetchall()))", python)
        assert int(printed) == (6 if "iceberg" in statement else 3)

"""The dbt project of the documentation, run literally by dbt-duckdb in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from own_environment import environment
from page_blocks import files
from versions_lab import BEGAN, land, page

from weblake import tables
from weblake.dataset.root import open_dataset

PAGE = (Path(__file__).parents[2] / "docs/site/tasks/dbt.md").read_text()
FILES = files(PAGE)
#: dbt-core 1.12 has a part in Rust, of which there are no wheels for each system.
PACKAGES = ["dbt-duckdb==1.11.1", "dbt-core==1.11.16", "duckdb==1.5.5", "duckdb-extension-delta==1.5.5", "pytz"]
DONE = "Done. PASS=4 WARN=0 ERROR=0 SKIP=0 NO-OP=0 TOTAL=4"
#: Prints the first letters of the ids of the loads; in the environment's DuckDB, which has written the file.
READ = """
import duckdb, json
with duckdb.connect("web.duckdb") as web:
    versions = "SELECT DISTINCT load_id[1] FROM page_versions ORDER BY 1"
    pages = "SELECT load_id[1] FROM pages ORDER BY page_key"
    print(json.dumps([[load for load, in web.execute(query).fetchall()] for query in (versions, pages)]))
"""

pytestmark = pytest.mark.system


def test_the_models_follow_the_loads(tmp_path: Path) -> None:
    python = Path(environment(tmp_path / "env", PACKAGES))
    project = tmp_path / "web"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)

    def build(*more: str) -> tuple[list[str], list[str]]:
        """Run dbt; return the loads of page_versions, and those of the pages in the order of their keys."""
        command = [str(python.parent / "dbt"), "--no-use-colors", "build", *more]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=200)
        assert DONE in done.stdout, done.stdout + done.stderr
        printed = subprocess.run([str(python), "-c", READ], cwd=project, capture_output=True, text=True, check=True)
        versions, pages = json.loads(printed.stdout)
        return versions, pages

    assert DONE in PAGE
    dataset = open_dataset(project / "lake")
    dataset.layout.claim("documents", ("load_date",))
    land(dataset, "1" * 16, BEGAN, [page(0), page(1), page(2, 404)])
    assert build() == (["1"], ["1", "1"])
    # A load that began earlier lands later; the first one is replaced, and its file is deleted.
    land(dataset, "2" * 16, BEGAN - timedelta(days=1), [page(0), page(3)])
    land(dataset, "3" * 16, BEGAN + timedelta(days=1), [page(0), page(2)], replaces=("1" * 16,))
    (gone,) = (project / "lake/documents").rglob("1111*.parquet")
    gone.unlink()
    assert build() == (["2", "3"], ["3", "3", "2"])
    assert build() == (["2", "3"], ["3", "3", "2"])

    tables.add(project / "lake", "delta")
    tables.sync(project / "lake")
    (extension,) = (tmp_path / "env").rglob("delta.duckdb_extension")
    profile = FILES["profiles.yml"].replace("extensions: []", f"extensions: [{extension}]")
    (project / "profiles.yml").write_text(profile)
    assert build("--full-refresh", "--vars", "documents: documents_delta") == (["2", "3"], ["3", "3", "2"])

"""The queries of the page about newest versions find the newest versions that `latest` finds, over files and tables."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from catalogue import REPOSITORY
from deltalake import DeltaTable, QueryBuilder
from own_environment import environment
from page_blocks import files
from pyiceberg.catalog import load_catalog
from versions_lab import BEGAN, land, page

import weblake
from weblake import tables
from weblake.dataset.root import open_dataset

DOCS = (REPOSITORY / "docs/site/tasks/newest-version.md").read_text()
ENGINES = (REPOSITORY / "docs/site/tables/query.md").read_text()
QUERY = re.findall(r"CREATE VIEW latest AS\n(.+?)```", DOCS, re.DOTALL)[0]
GLOB = re.findall(r"FROM (read_parquet\(.+?\))\s+WHERE", ENGINES, re.DOTALL)[0]
FRAME = files(DOCS)["latest_polars.py"]
(SCAN,) = re.findall(r"^documents = (.+)$", FRAME, re.MULTILINE)


class Lake:
    """A dataset with a Delta Lake and an Iceberg table."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lake"
        self._catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/house"}
        dataset = open_dataset(self.root)
        dataset.layout.claim("documents", ("load_date",))
        for n, statuses in enumerate(([200, 200, 404, 200], [200, 500, 200, None], [200, 200])):
            rows = [page(number, status) for number, status in enumerate(statuses)]
            rows += [page(0, text="twice in a load"), {"source_url": None, "status_code": 200, "markdown": "no page"}]
            land(dataset, f"{n}" * 16, BEGAN + timedelta(days=n % 2), rows)
        for format, how in (("delta", {}), ("iceberg", {"catalog": "lake", "identifier": "web.documents"})):
            options = self._catalog if format == "iceberg" else None
            tables.add(self.root, format, table_options=options, **how)  # type: ignore[arg-type]
            tables.sync(self.root, format=format, table_options=options)
        self.newest = keys(weblake.read(self.root).latest().to_table())

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.root / "delta/documents")

    @property
    def iceberg(self) -> Any:
        return load_catalog("lake", **self._catalog).load_table("web.documents")


def keys(found: pa.Table) -> list[tuple[Any, ...]]:
    columns = ("page_key", "load_id", "position")
    return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True))


def in_duckdb(documents: str, **given: Any) -> pa.Table:
    connection = duckdb.connect()
    for name, value in given.items():
        connection.register(name, value)
    return connection.sql(re.sub(r"\bdocuments\b", lambda _: documents, QUERY)).to_arrow_table()


def in_polars(lake: Lake, scan: str) -> pa.Table:
    names: dict[str, Any] = {"table": lake.iceberg}
    code = FRAME.replace(SCAN, scan).replace('"lake/', f'"{lake.root}/')
    exec(compile(code, "newest-version.md", "exec"), names)
    frame: pl.LazyFrame = names["latest"]
    return frame.select("page_key", "load_id", "position").collect().to_arrow()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("versions"))


QUERIES: dict[str, Callable[[Lake], pa.Table]] = {
    "DuckDB, Parquet": lambda lake: in_duckdb(GLOB.replace("'lake/", f"'{lake.root}/")),
    "DuckDB, Delta Lake": lambda lake: in_duckdb("delta", delta=lake.delta.to_pyarrow_dataset()),
    "DuckDB, Iceberg": lambda lake: in_duckdb("iceberg", iceberg=lake.iceberg.scan().to_arrow()),
    "DataFusion, Delta Lake": lambda lake: pa.table(QueryBuilder().register("documents", lake.delta).execute(QUERY)),
    "Polars, Parquet": lambda lake: in_polars(lake, SCAN),
    "Polars, Delta Lake": lambda lake: in_polars(lake, 'pl.scan_delta("lake/delta/documents")'),
    "Polars, Iceberg": lambda lake: in_polars(lake, "pl.scan_iceberg(table)"),
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_finds_the_newest_versions(lake: Lake, query: str) -> None:
    assert len(lake.newest) == 4
    assert keys(QUERIES[query](lake)) == lake.newest


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_spark_finds_the_newest_versions(lake: Lake, tmp_path: Path) -> None:
    """In an environment of its own, with a Java runtime, as the other engines that weblake does not use."""
    python = environment(tmp_path / "env", ["-r", str(REPOSITORY / "tests/tables/engines.txt")])
    command = [str(python), str(REPOSITORY / "tests/labs/latest_in_spark.py"), str(lake.root), QUERY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])] == lake.newest

"""Reads the tables of a dataset with each engine and prints what it found as JSON: run by test_engines.py.

    TZ=UTC DATASET=... CATALOG_URI=... WAREHOUSE=... LAKE_COLUMNS='["url"]' python read_with_engines.py READER...

pandas, DuckDB and Sail give local times, so the time zone has to be UTC. The result has for each reader: its version,
the rows of each load, each column's values in the order of load_id and position (or the error that reading it caused),
and the number of rows that a query of one URL found, beside the number expected.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

URI, WAREHOUSE = os.environ.get("CATALOG_URI", ""), os.environ.get("WAREHOUSE", "")
DELTA = f"{os.environ.get('DATASET', '')}/delta/documents"

#: Reads columns, if a condition is given only of the rows of one URL, as a list of dicts.
Reader = Callable[[list[str], "str | None"], list[dict[str, Any]]]


def iceberg() -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", type="sql", uri=URI, warehouse=WAREHOUSE).load_table("web.documents")


def duckdb(source: str) -> Reader:
    import duckdb as engine

    connection = engine.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "delta", "iceberg"):
        package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__ or "").parent
        (extension,) = package.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        where = "" if url is None else " WHERE url = ?"
        names = ", ".join(f'"{name}"' for name in columns)
        found = connection.execute(f"SELECT {names} FROM {source}{where}", [] if url is None else [url])
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]

    return read


def duckdb_delta() -> Reader:
    return duckdb(f"delta_scan('{DELTA}')")


def duckdb_iceberg() -> Reader:
    return duckdb(f"iceberg_scan('{iceberg().metadata_location}')")


def polars(frame: Any) -> Reader:
    import polars as engine

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        wanted = frame if url is None else frame.filter(engine.col("url") == url)
        rows: list[dict[str, Any]] = wanted.select(columns).collect().to_dicts()
        return rows

    return read


def polars_delta() -> Reader:
    import polars as engine

    return polars(engine.scan_delta(DELTA))


def polars_iceberg() -> Reader:
    import polars as engine

    return polars(engine.scan_iceberg(iceberg()))


def pandas_delta() -> Reader:
    from deltalake import DeltaTable

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        filters = None if url is None else [("url", "=", url)]
        rows: list[dict[str, Any]] = DeltaTable(DELTA).to_pandas(columns=columns, filters=filters).to_dict("records")
        return rows

    return read


def pandas_iceberg() -> Reader:
    import pandas as engine

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        frame = engine.read_iceberg(
            "web.documents",
            catalog_name="lake",
            catalog_properties={"type": "sql", "uri": URI, "warehouse": WAREHOUSE},
            columns=columns,
            row_filter=None if url is None else f"url == '{url}'",
        )
        rows: list[dict[str, Any]] = frame.to_dict("records")
        return rows

    return read


def pyiceberg_iceberg() -> Reader:
    table = iceberg()

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        wanted = {} if url is None else {"row_filter": f"url == '{url}'"}
        rows: list[dict[str, Any]] = table.scan(selected_fields=tuple(columns), **wanted).to_arrow().to_pylist()
        return rows

    return read


def chdb(source: str) -> Reader:
    """ClickHouse in the process. It has no missing list, map or struct: they come back empty."""
    import chdb as engine
    import pyarrow as pa

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        settings = "SETTINGS session_timezone = 'UTC', output_format_arrow_string_as_string = 1"
        found = engine.query(f"{select(columns, source, url)} {settings}", "ArrowStream")
        rows: list[dict[str, Any]] = pa.ipc.open_stream(found.bytes()).read_all().to_pylist()
        return rows

    return read


def chdb_delta() -> Reader:
    return chdb(f"deltaLakeLocal('{DELTA}')")


def chdb_iceberg() -> Reader:
    return chdb(f"icebergLocal('{iceberg().location().removeprefix('file://')}')")


def sail(format: str, location: str) -> Reader:
    """Sail, an engine with the interface of Spark, which has readers of its own for both formats."""
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    _SERVERS.append(server)
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").create()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    frame = session.read.format(format).load(location)

    def read(columns: list[str], url: str | None) -> list[dict[str, Any]]:
        wanted = frame if url is None else frame.where(frame.url == url)
        return [row.asDict(recursive=True) for row in wanted.select(*columns).collect()]

    return read


#: A server ends with its object.
_SERVERS: list[Any] = []


def sail_delta() -> Reader:
    return sail("delta", DELTA)


def sail_iceberg() -> Reader:
    return sail("iceberg", iceberg().location())


def select(columns: list[str], source: str, url: str | None) -> str:
    where = "" if url is None else f" WHERE url = '{url}'"
    names = ", ".join(f'"{name}"' for name in columns)
    return f"SELECT {names} FROM {source}{where}"


PACKAGES = {"sail": "pysail"}


def plain(value: Any) -> Any:
    """Return a value without the differences between engines in how they show maps, times and missing values."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if value is None or (isinstance(value, float) and value != value) or str(value) == "NaT":
        return None
    if isinstance(value, datetime):
        value = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")
    if isinstance(value, float) and value.is_integer():  # a column with missing values, in pandas
        return int(value)
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            return plain(dict(value))
        if value and all(isinstance(each, dict) and each.keys() == {"key", "value"} for each in value):
            return plain({each["key"]: each["value"] for each in value})
        return [plain(each) for each in value]
    return value


def found(name: str) -> dict[str, Any]:
    """Read everything with one engine."""
    engine, _, _ = name.partition("_")
    read: Reader = globals()[name]()
    keys = ["load_id", "position"]
    rows = read([*keys, "url"], None)
    columns: dict[str, Any] = {}
    for column in json.loads(os.environ["LAKE_COLUMNS"]):
        try:
            values = read(list(dict.fromkeys([*keys, column])), None)
            values.sort(key=lambda row: (row["load_id"], row["position"]))
            columns[column] = [plain(row[column]) for row in values]
        except Exception as error:  # noqa: BLE001 - what an engine cannot read is a result
            columns[column] = f"{type(error).__name__}: {error}"[:300]
    url = min(row["url"] for row in rows)
    return {
        "version": importlib.metadata.version(PACKAGES.get(engine, engine)),
        "loads": Counter(row["load_id"] for row in rows),
        "columns": columns,
        "of_url": [len(read(keys, url)), sum(row["url"] == url for row in rows)],
    }


if __name__ == "__main__":
    print(json.dumps({name: found(name) for name in sys.argv[1:]}))

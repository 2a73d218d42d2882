"""Runs a query of the newest versions in Spark, over the Parquet files of a dataset: run by test_latest_queries.py.

python latest_in_spark.py ROOT QUERY
"""

from __future__ import annotations

import json
import re
import sys

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def main(root: str, query: str) -> None:
    """Print the page key, the load id and the position of each row as JSON."""
    session = SparkSession.builder.master("local[1]").config(map=SETTINGS).getOrCreate()
    rows = session.sql(re.sub(r"\bdocuments\b", lambda _: f"parquet.`{root}/documents`", query)).collect()
    print(json.dumps(sorted([row.page_key, row.load_id, row.position] for row in rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])

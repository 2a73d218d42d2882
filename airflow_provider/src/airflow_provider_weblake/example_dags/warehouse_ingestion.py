"""Copy what lands in the lake into a warehouse: each load once, and delete its rows when another load replaces it.

The event only says that something has landed. The task compares two ledgers to find what is missing: the dataset's, and
the table `loads` of the warehouse, in which rows and load change in one transaction. A run may therefore be retried,
cleared, started by hand, or missed. DuckDB stands for any warehouse with transactions.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG, ObjectStoragePath, task

from airflow_provider_weblake.assets.weblake import weblake_asset

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
#: The database's file, which the worker can write.
WAREHOUSE = os.environ.get("WEBLAKE_WAREHOUSE", "/var/lib/warehouse/web.duckdb")

TABLES = """
    CREATE TABLE IF NOT EXISTS loads (load_id VARCHAR PRIMARY KEY, landed_at TIMESTAMPTZ, stored BIGINT);
    CREATE TABLE IF NOT EXISTS pages (
        load_id VARCHAR, load_date DATE, url VARCHAR, status_code INTEGER, title VARCHAR, markdown VARCHAR,
        loaded_at TIMESTAMPTZ
    );
"""

with DAG(
    "warehouse_ingestion",
    doc_md=__doc__,
    schedule=[weblake_asset(ROOT)],
    # DuckDB has one writer at a time.
    max_active_runs=1,
    tags=["weblake"],
):

    @task(retries=4)
    def ingest() -> dict[str, int]:
        """Copy new loads into the warehouse and delete replaced ones; return counts of loads and rows."""
        import duckdb

        from airflow_provider_weblake.storage import root_path
        from weblake.orchestration import history, open_dataset

        root = root_path(ROOT)
        landed = list(history(open_dataset(root)))
        # A load names the loads that it replaces before they are deleted, so both sources count.
        replaced = {load_id for each in landed for load_id in each.replaces}
        replaced |= {each.receipt.load_id for each in landed if each.replaced_by}
        with duckdb.connect(WAREHOUSE) as db:
            files = ROOT
            if isinstance(root, ObjectStoragePath):  # DuckDB reads through the file system of the Airflow connection
                db.register_filesystem(root.fs)
                files = f"{root.protocol}://{root.path}"
            db.execute(TABLES)
            known = {load_id for (load_id,) in db.execute("SELECT load_id FROM loads").fetchall()}
            new = [each for each in landed if each.receipt.load_id not in known | replaced]
            gone = sorted(known & replaced)
            db.begin()
            for load_id in gone:
                db.execute("DELETE FROM pages WHERE load_id = ?", [load_id])
                db.execute("DELETE FROM loads WHERE load_id = ?", [load_id])
            for each in new:
                receipt = each.receipt
                db.execute("INSERT INTO loads VALUES (?, ?, ?)", [receipt.load_id, each.at, receipt.stored])
                for file in receipt.files:
                    # A load that is gone by now was replaced meanwhile: the task fails here, and its retry sees the
                    # replacement.
                    if file.path.startswith("documents/"):
                        db.execute(
                            "INSERT INTO pages BY NAME SELECT load_id, load_date, url, status_code, title, markdown, "
                            "loaded_at FROM read_parquet(?, hive_partitioning = true)",
                            [f"{files.rstrip('/')}/{file.path}"],
                        )
            db.commit()
        return {"loads": len(new), "rows": sum(each.receipt.stored for each in new), "replaced": len(gone)}

    ingest()

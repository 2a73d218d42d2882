"""Take screenshots of the pages of a list every day; they land with the text, and are also written as files.

In the dataset a picture is a `data:` URI in the column `screenshot`, beside the text of the same visit. The second task
writes the pictures of that load as files, for people and programs that read files: below `pictures` there is one folder
a day, as the dataset has one partition. Each file is written in one step and is named by its page, so a retry writes
the same files again; if a day is cleared, the pictures of its new load replace those of the old one. The example needs
a service with browsers, such as `weblake[browser]` with Chromium; other services answer 503 and say so.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_weblake.assets.weblake import weblake_asset
from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
#: Captures the viewport; `"full_page": True` captures the whole page. With a `quality`, such as 80, the picture is a
#: JPEG: a tenth of the bytes for a page with photographs.
PICTURE = {"type": "screenshot", "viewport": {"width": 1280, "height": 800}}

with DAG(
    "screenshot_capture",
    doc_md=__doc__,
    schedule="@daily",
    start_date=datetime(2026, 11, 1, tzinfo=timezone.utc),
    catchup=False,
    params={
        "urls": Param("s3://aws_default@lists/urls.parquet", type="string", description="The list: Parquet, CSV, text"),
        "pictures": Param(f"{ROOT}/pictures", type="string", description="Where the files go"),
        "max_credits": Param(500, type="number", description="A day that would cost more is not started"),
    },
    tags=["weblake"],
):
    scrape = WeblakeBatchScrapeOperator(
        task_id="scrape",
        urls="{{ params.urls }}",
        options={"formats": ["markdown", PICTURE]},
        to=ROOT,
        partition={"load_date": DAY},
        max_credits="{{ params.max_credits }}",
        deferrable=True,
        deadline=timedelta(hours=2),
        retries=4,
        outlets=[weblake_asset(ROOT)],
    )

    @task(retries=4)
    def write_files(receipt: Any, place: str, day: str) -> dict[str, Any]:
        """Return the number of pictures in the load, and the number of pages without one."""
        import base64

        from airflow.sdk import ObjectStoragePath

        import weblake
        from airflow_provider_weblake.storage import root_path
        from weblake.orchestration import open_dataset

        files, folder = open_dataset(root_path(place)), f"load_date={day}"
        written: set[str] = set()
        without = 0
        load = weblake.read(root_path(ROOT), columns=["url", "screenshot"], loads=[receipt["load_id"]])
        # Small batches: a picture may have megabytes.
        for batch in load.to_batches(batch_size=8):
            for row in batch.to_pylist():
                head, _, data = (row["screenshot"] or "").partition(";base64,")
                if not data:
                    without += 1  # such as a PDF
                    continue
                name = f"{file_name(row['url'])}.{head.rpartition('/')[2]}"
                files.write(f"{folder}/{name}", base64.b64decode(data))
                written.add(name)
        # Done last, so that a reader finds the old pictures or the new ones at any time.
        for picture in (ObjectStoragePath(place) / folder).glob("*"):
            if picture.name not in written:
                picture.unlink()
        return {"load_id": receipt["load_id"], "pictures": len(written), "without": without}

    def file_name(url: str) -> str:
        """Return a recognisable file name; the digits separate similar URLs, such as ?a=1 and ?a=2."""
        import hashlib
        import re

        readable = re.sub(r"[^a-z0-9]+", "-", url.partition("://")[2].lower()).strip("-")[:80]
        return f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"

    write_files(scrape.output, "{{ params.pictures }}", DAY)

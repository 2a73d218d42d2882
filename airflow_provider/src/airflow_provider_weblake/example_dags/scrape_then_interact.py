"""Scrape and land a page, then run code in the browser session in which the page is still open.

The receipt of the scrape names the session for the next task. A browser is billed by the minute, so the second task
stops it, whether the code succeeds or fails. The code is JavaScript for node, in which `page` is Playwright's page; its
return value is the result. The example needs a service that runs its users' code, such as `weblake serve
--allow-code-execution` with `weblake[browser]`; other services answer 503 and name what is missing.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG, Param

from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator, WeblakeScrapeOperator

ROOT = os.environ.get("WEBLAKE_ROOT", "s3://aws_default@lake/web")
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"

with DAG(
    "scrape_then_interact",
    doc_md=__doc__,
    # Triggered by hand or by another DAG, with the page in its parameters.
    schedule=None,
    params={
        "url": Param("https://example.org/", type="string", format="uri", description="The page"),
        "code": Param("return await page.title()", type="string", description="What to run in its browser"),
    },
    tags=["weblake"],
):
    scrape = WeblakeScrapeOperator(
        task_id="scrape",
        url="{{ params.url }}",
        options={"formats": ["markdown"]},
        to=ROOT,
        partition={"load_date": DAY},
        retries=4,
    )
    interact = WeblakeInteractOperator(
        task_id="interact",
        scrape_id="{{ ti.xcom_pull(task_ids='scrape')['job_id'] }}",
        code="{{ params.code }}",
        timeout=60,
    )
    # To try again after a failure, clear both tasks: a browser session that has ended cannot be resumed.
    scrape >> interact

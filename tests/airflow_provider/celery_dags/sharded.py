"""DAGs of the tests on CeleryExecutor; the list, the sizes and the dataset are in each run's conf."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
from airflow_provider_weblake.url_shards import UrlShard, read_urls_or_shard, url_shards

#: The column of the lists; not the default one.
COLUMN = "page"


@task
def cut(dag_run: Any = None) -> list[UrlShard]:
    """Cuts the list of this run."""
    return url_shards(dag_run.conf["list"], column=COLUMN, per_shard=dag_run.conf["per_shard"])


@task
def read_back(shards: Iterable[UrlShard]) -> dict[str, object]:
    """Reads every shard as a mapped task would, and tells what they hold together without telling the URLs."""
    urls, digest = 0, sha256()
    for shard in shards:
        for url in read_urls_or_shard(shard):
            digest.update(f"{url}\n".encode())
            urls += 1
    return {"urls": urls, "digest": digest.hexdigest()}


with DAG("cut_only", schedule=None):
    read_back(cut())  # type: ignore[arg-type]

with DAG("sharded", schedule=None):
    WeblakeBatchScrapeOperator.partial(
        task_id="scrape",
        to="{{ dag_run.conf['to'] }}",
        # A page that is held must not end by itself before the test lets it go, however busy the machine is.
        options={"timeout": 240_000},
        deferrable=False,  # a shard keeps its worker until it has landed: the one that is killed surely has some
        poll_interval=1,
        retries=3,
        retry_delay=timedelta(seconds=1),
    ).expand(urls=cut())

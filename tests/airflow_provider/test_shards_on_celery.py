"""Tests of shards on CeleryExecutor: a list is cut, its pages are scraped, and one of two workers is lost.

Under `system` a list of ten thousand URLs is cut and read back by Airflow tasks, and 600 pages are scraped in 12
shards. Under `nightly` a million URLs are cut, and a million pages scraped in 200 shards, which takes an hour or more.
Lists and dataset are on an S3 server that only an Airflow connection reaches.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from catalogue import proves
from celery_lab import CeleryLab
from gated_site import GatedSite
from supervised_processes import is_alive

from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

HERE = Path(__file__).parent
pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Scale:
    """How many URLs are cut into shards of 5,000, and how many shards of how many pages are scraped."""

    cut: int
    shards: int
    per_shard: int

    @property
    def pages(self) -> int:
        return self.shards * self.per_shard


PER_CUT_SHARD = 5_000
_ALL = [pytest.mark.nightly, pytest.mark.timeout(6 * 3600)]
#: Pages that are scraped and landed in a second, at least.
SLOWEST = 60
#: Tasks that run at a time: two on each worker.
SLOTS = 4
#: Seconds for which Redis keeps what a killed worker had taken, at least: it was gone after 5,174.
UNACKED_S = 1800
#: Bytes of the largest XCom: the account of 200 shards, some 240 bytes each.
LARGEST_XCOM = 64 << 10


class Bucket:
    """A bucket on the S3 server, as whoever owns it sees it: without Airflow and without weblake."""

    def __init__(self, endpoint: str) -> None:
        self.name = f"bucket-{secrets.token_hex(6)}"
        self.secret = f"canary-{secrets.token_hex(16)}"
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="test-key",
            aws_secret_access_key=self.secret,
            region_name="us-east-1",
        )
        self._client.create_bucket(Bucket=self.name)
        extra = {"endpoint_url": endpoint, "region_name": "us-east-1"}
        self.connection = {"conn_type": "aws", "login": "test-key", "password": self.secret, "extra": extra}

    def path(self, key: str) -> str:
        """What a DAG calls an object."""
        return f"s3://lake@{self.name}/{key}"

    def put(self, key: str, urls: list[str], row_group: int) -> str:
        """Writes a list as Parquet; its path."""
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"n": range(len(urls)), "page": urls}), sink, row_group_size=row_group)
        self._client.put_object(Bucket=self.name, Key=key, Body=sink.getvalue().to_pybytes())
        return self.path(key)

    def save(self, prefix: str, to: Path) -> Path:
        """Copies all below a prefix to a local directory."""
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix):
            for entry in page["Contents"]:
                file = to / entry["Key"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(self._client.get_object(Bucket=self.name, Key=entry["Key"])["Body"].read())
        return to / prefix


@dataclass
class Environment:
    """Airflow with two workers, the service, the site and the bucket."""

    lab: CeleryLab
    service: LocalService
    site: GatedSite
    bucket: Bucket

    def running(self, run: str) -> dict[int, list[int]]:
        """The shards that are being scraped now, each with its processes."""
        return {
            task["map_index"]: pids
            for task in self.lab.tasks("sharded", run)
            if task["task_id"] == "scrape" and task["state"] == "running"
            if (pids := self.lab.worker_pids("sharded", run, "scrape", task["map_index"]))
        }

    def awaited(self) -> set[str]:
        """The jobs whose status has been asked for."""
        requests = self.service.requests()
        asked = [str(each["path"]).partition("?")[0] for each in requests if each["method"] == "GET"]
        return {path for path in asked if path.startswith("/v2/batch/scrape/")}

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)


@pytest.fixture
def environment(s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    bucket, site, key = Bucket(s3_endpoint), GatedSite(), f"canary-{secrets.token_hex(16)}"
    try:
        with LocalService(tmp_path / "service.db", keys=[ServiceKey(key)], allow_private=True) as service:
            weblake = {"conn_type": "weblake", "host": service.url, "password": key}
            connections = {"WEBLAKE_DEFAULT": weblake, "LAKE": bucket.connection}
            env = {f"AIRFLOW_CONN_{name}": json.dumps(value) for name, value in connections.items()}
            with CeleryLab(tmp_path / "airflow", HERE / "celery_dags", env) as lab:
                lab.wait_for_dags({"cut_only", "sharded"})
                yield Environment(lab, service, site, bucket)
                site.release()
    finally:
        site.close()


@proves(
    "3.4",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id',
    becomes='("airflow", ti.dag_id, ti.try_number, map_index), ti.run_id',
    case="part",
)
@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(Scale(10_000, 12, 50), id="part"),
        pytest.param(Scale(1_000_000, 200, 5_000), id="all", marks=_ALL),
    ],
)
def test_shards_are_landed_once_when_a_worker_dies(environment: Environment, tmp_path: Path, scale: Scale) -> None:
    host = f"long-list-{secrets.token_hex(6)}.example"
    a_list_is_cut_and_read_back(environment, host, scale.cut)
    urls = [f"{environment.site.url}/page/{n}" for n in range(scale.pages)]
    urls[:: scale.per_shard] = environment.site.held(scale.shards)  # one of each shard waits
    shards = [urls[first : first + scale.per_shard] for first in range(0, len(urls), scale.per_shard)]
    path = environment.bucket.put("lists/short.parquet", urls, scale.per_shard + 20)
    to = environment.bucket.path("lake")
    begin = time.monotonic()
    run = environment.lab.trigger("sharded", {"list": path, "per_shard": scale.per_shard, "to": to})
    jobs = a_worker_dies(environment, run, scale)
    seconds = time.monotonic() - begin
    receipts = every_shard_is_a_load(environment, run, jobs, scale)
    credits = environment.service.counts()["pages_billed"]
    print(f"{scale.pages:,} pages in {seconds:.0f} s, {scale.pages / seconds:.0f} a second, {credits:,} credits")
    lake = environment.bucket.save("lake", tmp_path / "saved")
    the_dataset_is_the_list(lake, receipts, shards)
    no_url_travelled(environment, [f"https://{host}/", f"{environment.site.url}/"])
    no_key_was_written(environment, run, receipts[0], lake, seconds)


def a_list_is_cut_and_read_back(environment: Environment, host: str, many: int) -> None:
    urls = [f"https://{host}/{n:06}" for n in range(many)]
    path = environment.bucket.put("lists/long.parquet", urls, 50_000)
    run = environment.lab.trigger("cut_only", {"list": path, "per_shard": PER_CUT_SHARD})
    assert environment.lab.wait_run("cut_only", run, timeout=360) == "success", environment.lab.describe(
        "cut_only", run
    )
    shards = environment.lab.xcom("cut_only", run, "cut")
    assert [shard["index"] for shard in shards] == list(range(many // PER_CUT_SHARD))
    assert {shard["file"] for shard in shards} == {path}
    back = environment.lab.xcom("cut_only", run, "read_back")
    digest = sha256("".join(f"{url}\n" for url in urls).encode()).hexdigest()
    assert (back["urls"], back["digest"]) == (many, digest)


def a_worker_dies(environment: Environment, run: str, scale: Scale) -> dict[int, str]:
    """Kills a worker when both hold shards, and returns those shards' jobs when the run has succeeded all the same."""
    lab = environment.lab
    lab.until(
        "all slots to wait for their jobs",
        lambda: len(environment.running(run)) == SLOTS == len(environment.awaited()),
        240,
        lambda: lab.describe("sharded", run),
    )
    held = environment.running(run)
    workers = {index: lab.worker_of("sharded", run, "scrape", index) for index in held}
    assert sorted(workers.values()) == [1, 1, 2, 2]
    jobs = {index: str(lab.xcom("sharded", run, "scrape", "job_id", index)) for index in held}
    assert environment.started == SLOTS

    victim = workers[min(held)]
    lab.kill_worker(victim)
    killed_at = time.time()
    for index, pids in held.items():
        assert all(is_alive(pid) != (workers[index] == victim) for pid in pids)
    environment.site.release()
    assert lab.wait_run("sharded", run, timeout=420 + scale.pages / SLOWEST) == "success", lab.describe("sharded", run)
    print(f"{time.time() - killed_at:.1f} s from the kill to the end")

    for index in (index for index, worker in workers.items() if worker == victim):
        task = lab.task("sharded", run, "scrape", index)
        assert task["try_number"] >= 2
        seconds = datetime.fromisoformat(task["start_date"]).timestamp() - killed_at
        print(f"{seconds:.1f} s from the kill to the retry of shard {index}")
    return jobs


def every_shard_is_a_load(
    environment: Environment, run: str, jobs: dict[int, str], scale: Scale
) -> list[dict[str, Any]]:
    """The receipts, by shard; a shard whose worker died has the job that was running then."""
    receipts = [environment.lab.xcom("sharded", run, "scrape", map_index=index) for index in range(scale.shards)]
    assert {index: receipts[index]["job_id"] for index in jobs} == jobs
    assert [(each["submitted"], each["stored"], each["complete"]) for each in receipts] == [
        (scale.per_shard, scale.per_shard, True)
    ] * scale.shards
    for name in ("load_id", "job_id"):
        assert len({each[name] for each in receipts}) == scale.shards
    assert environment.started == scale.shards, "nothing was bought twice"
    assert environment.service.counts()["pages_billed"] == scale.pages
    return receipts


def the_dataset_is_the_list(lake: Path, receipts: list[dict[str, Any]], shards: list[list[str]]) -> None:
    files = {str(file.relative_to(lake)) for file in lake.rglob("documents/**/*.parquet")}
    assert len(files) == len(shards)
    assert {part["path"] for each in receipts for part in each["files"]} == files
    for receipt, shard in zip(receipts, shards, strict=True):
        (part,) = receipt["files"]
        assert sorted(pq.ParquetFile(lake / part["path"]).read(["url"])["url"].to_pylist()) == sorted(shard)
    found = duckdb.connect().execute(f"select url from '{lake}/documents/**/*.parquet'").fetchall()
    assert sorted(url for (url,) in found) == sorted(url for shard in shards for url in shard)


def no_url_travelled(environment: Environment, urls: list[str]) -> None:
    """No XCom is large, and no URL of a list stands anywhere in Airflow, Postgres, Redis or a log."""
    with sa.create_engine(environment.lab.database, poolclass=sa.NullPool).connect() as db:
        xcoms = db.execute(sa.text("SELECT dag_id, octet_length(value::text) FROM xcom")).all()
    largest = {dag_id: max(size for owner, size in xcoms if owner == dag_id) for dag_id, _ in xcoms}
    assert largest["cut_only"] < LARGEST_XCOM
    assert largest["sharded"] < LARGEST_XCOM
    for url in urls:
        assert environment.lab.grep(url) == []


def no_key_was_written(environment: Environment, run: str, receipt: dict[str, Any], lake: Path, seconds: float) -> None:
    """Neither the service's key nor the storage's stands anywhere but in the connections."""
    # The search finds what is there, also in Redis: what the killed worker had taken lies there, but not for hours.
    places = environment.lab.grep(run) + environment.lab.grep(receipt["job_id"])
    in_redis = ["queue unacked"] if seconds < UNACKED_S else []
    for kind in ("row xcom.value", "row dag_run.run_id", "file ", *in_redis):
        assert any(place.startswith(kind) for place in places), f"found in no {kind}"
    assert any(place.endswith(".log") for place in places)
    assert not [name for name in environment.lab.environment() if name.startswith("AWS_")]
    for canary in (environment.service.key, environment.bucket.secret):
        assert environment.lab.grep(canary) == []
        assert [file for file in lake.rglob("*") if file.is_file() and canary.encode() in file.read_bytes()] == []

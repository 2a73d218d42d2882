"""Tests of the webhook receiver in a real API server with two workers and Postgres, which is killed at the end."""

from __future__ import annotations

import json
import secrets
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from airflow_lab import AirflowLab
from celery_lab import CeleryLab
from webhook_lab import Sender, completed

from weblake.webhooks import SIGNATURE_HEADER, sign

pytestmark = pytest.mark.nightly

ASSET = {"uri": "x-weblake://jobs/weblake_default/batch_scrape", "name": "batches"}


class ApiServerOnPostgres(CeleryLab):
    """An API server with two workers, and the database and the broker of `CeleryLab`; nothing that runs tasks."""

    def components(self) -> dict[str, tuple[str, ...]]:
        return {"api-server": ("api-server",)}

    def settings(self) -> dict[str, str]:
        # Unlike in the other labs, Airflow's own paths ask for a login.
        login = {"CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False"}
        return {**AirflowLab.settings(self), **login, "API__WORKERS": "2"}

    def _healthy(self) -> bool:
        try:
            health = httpx.get(f"{self.url}/api/v2/monitor/health", trust_env=False).json()
        except (httpx.HTTPError, ValueError):
            return False
        return bool(health["metadatabase"]["status"] == "healthy")

    def execute(self, statement: str, **values: Any) -> list[Any]:
        """Execute an SQL statement; return its rows, if it has any."""
        with sa.create_engine(self.database, poolclass=sa.NullPool).begin() as db:
            done = db.execute(sa.text(statement), values)
            return list(done.scalars()) if done.returns_rows else []

    def kill_database(self) -> None:
        """SIGINT to Postgres, which closes all connections."""
        self._running.end("postgres", signal.SIGINT, grace=20)


def extras(lab: ApiServerOnPostgres) -> list[dict[str, Any]]:
    """The extras of all asset events, oldest first."""
    return [json.loads(extra) for extra in lab.execute("SELECT extra::text FROM asset_event ORDER BY id")]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[ApiServerOnPostgres, Sender]]:
    secret = secrets.token_hex(16)
    connection = {"conn_type": "weblake", "host": "http://127.0.0.1:9", "extra": {"webhook_secret": secret}}
    (tmp_path / "dags").mkdir()
    env = {"AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection)}
    with ApiServerOnPostgres(tmp_path / "airflow", tmp_path / "dags", env) as lab:
        yield lab, Sender(lab.url, "weblake_default", secret)


def test_webhooks_on_postgres_are_one_event_each_and_none_is_lost_when_it_is_down(
    lab: tuple[ApiServerOnPostgres, Sender],
) -> None:
    airflow, sender = lab
    assert sender.deliver()[0] == 503, "no DAG names the asset"
    airflow.execute(
        'INSERT INTO asset (name, uri, "group", extra, created_at, updated_at)'
        " VALUES (:name, :uri, '', '{}', now(), now())",
        **ASSET,
    )
    airflow.execute("INSERT INTO asset_active (name, uri) VALUES (:name, :uri)", **ASSET)
    jobs = [str(uuid.uuid4()) for _ in range(8)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda job: sender.deliver(completed(job)), [job for job in jobs for _ in range(16)]))
    assert {status for status, _ in answers} == {200}
    assert Counter(answer["outcome"] for _, answer in answers) == {"accepted": 8, "repeated": 120}
    assert Counter(extra["job_id"] for extra in extras(airflow)) == dict.fromkeys(jobs, 1)
    # Connections that are made by hand are in the database, where a look-up finds none.
    assert sender.request("POST", "/weblake/webhooks/no_such")[0] == 404
    signed = [(SIGNATURE_HEADER, sign(sender.secret, b"{}"))]
    for path in ("/api/v2/connections", "/api/v2/assets/events", "/weblake/webhooks/../../api/v2/connections"):
        assert sender.request("POST", path, b"{}", signed)[0] in (401, 404), "a signature is no login"

    airflow.kill_database()
    assert sender.deliver(completed(str(uuid.uuid4()))) == (503, {"detail": "Service Unavailable"})
    assert sender.request("POST", "/weblake/webhooks/another")[0] == 503
    assert sender.deliver({**completed(), "type": "batch_scrape.page"})[0] == 200, "this needs no database"
    log = (airflow.home / "processes" / "api-server.log").read_text(errors="replace")
    assert sender.secret not in log

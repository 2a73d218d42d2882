"""Tests of docs/site/airflow/webhook_receiver.py; test_event_triggers_e2e.py has the one with a real API server."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dagster import AssetKey, DagsterInstance
from gated_site import GatedSite
from lab_resources import free_port
from polling import until

from weblake import Client, webhooks
from weblake_service.config import ServiceConfig
from weblake_service.server import LocalService

DOCS = Path(__file__).parents[2] / "docs" / "site" / "airflow"
JOB = "0f6f1c1e-0000-4000-8000-000000000001"
COMPLETED = {"success": True, "type": "batch_scrape.completed", "id": JOB, "data": []}


@contextmanager
def answering(command: list[str], port: int, **env: str) -> Iterator[str]:
    """Run a program until it answers HTTP requests; the value is its URL."""
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, env={**os.environ, **env}) as process:
        try:
            until(lambda: process.poll() is not None or _answers(url))
            yield url
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        return bool(httpx.get(url, trust_env=False).status_code)
    except httpx.TransportError:
        return False


def receiver(interface: str, url: str, secret: str, **env: str) -> Any:
    port = free_port()
    command = [sys.executable, str(DOCS / "webhook_receiver.py"), interface, url, str(port)]
    return answering(command, port, WEBHOOK_SECRET=secret, **env)


@pytest.mark.system
def test_a_webhook_of_the_service_is_a_materialization_in_dagster(tmp_path: Path, site: GatedSite) -> None:
    """With a real webserver of Dagster."""
    secret, port, home = secrets.token_hex(16), free_port(), str(tmp_path)
    (tmp_path / "dagster.yaml").touch()
    (tmp_path / "defs.py").write_text(
        'import dagster as dg\ndefs = dg.Definitions([dg.AssetSpec("batch_scrape_jobs")])\n'
    )
    webserver = [sys.executable, "-m", "dagster_webserver", "-f", str(tmp_path / "defs.py"), "-p", str(port)]
    with (
        answering(webserver, port, DAGSTER_HOME=home) as dagster,
        receiver("dagster", dagster, secret) as url,
        LocalService(config=ServiceConfig(webhook_secret=secret)) as service,
        Client(base_url=service.url, api_key=service.key) as client,
        DagsterInstance.from_config(home) as instance,
    ):
        job = client.start_batch_scrape(site.pages(1), webhook={"url": url, "events": ["completed"]})
        event = until(lambda: instance.get_latest_materialization_event(AssetKey("batch_scrape_jobs")))
        metadata = {name: each.value for name, each in event.asset_materialization.metadata.items()}
    assert metadata == {"kind": "batch_scrape", "job_id": str(job.id), "status": "completed"}


@pytest.mark.parametrize(
    ("signed_with", "event", "answer"),
    [
        ("another secret", COMPLETED, 401),
        (None, COMPLETED, 401),
        ("secret", {**COMPLETED, "type": "crawl.page"}, 204),
        ("secret", {**COMPLETED, "data": ["x" * (1 << 20)]}, 413),
        ("secret", COMPLETED, 503),
    ],
)
def test_the_answer_tells_the_service_whether_to_send_a_webhook_again(
    receiver_url: str, signed_with: str | None, event: dict[str, Any], answer: int
) -> None:
    body = json.dumps(event).encode()
    headers = {webhooks.SIGNATURE_HEADER: webhooks.sign(signed_with, body)} if signed_with else {}
    assert httpx.post(receiver_url, content=body, headers=headers, trust_env=False, timeout=240).status_code == answer


@pytest.fixture(scope="module")
def receiver_url() -> Iterator[str]:
    """The URL of a receiver whose Airflow does not answer."""
    login = {"AIRFLOW_USERNAME": "user", "AIRFLOW_PASSWORD": "password"}
    with receiver("airflow", f"http://127.0.0.1:{free_port()}", "secret", **login) as url:
        yield url

"""Tests of docs/webhooks-to-assets.md: deliveries of the embedded service through the receiver of the how-to.

A test double of Airflow validates requests against Airflow's own models; the real one is used in
test_event_triggers_e2e.py.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from airflow.api_fastapi.auth.managers.simple.datamodels.login import LoginBody
from airflow.api_fastapi.core_api.datamodels.assets import CreateAssetEventsBody
from docs_programs import load
from gated_site import GatedSite
from polling import until

from weblake import Client
from weblake.api import webhooks
from weblake_service.config import ServiceConfig
from weblake_service.server import LocalService

DOCS = Path(__file__).parents[2] / "docs"
JOB = "0f6f1c1e-0000-4000-8000-000000000001"


howto = load(DOCS / "webhook_receiver.py")


class FakeAirflow:
    """The three calls of the receiver, as strict as Airflow is about their bodies."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.assets = [
            {"id": 6, "name": "jobs_done_too", "uri": "s3://b/too"},
            {"id": 7, "name": "jobs_done", "uri": "s3://b/k"},
        ]
        self.token = secrets.token_hex(8)
        self.password = secrets.token_hex(8)
        self.logins = 0
        self.down, self.refused = False, 0
        fake = self

        class Api(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not self.allowed():
                    return None
                assert self.path.startswith("/api/v2/assets?")
                return self.answer(200, {"assets": fake.assets, "total_entries": len(fake.assets)})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/auth/token":
                    fake.logins += 1
                    login = LoginBody.model_validate(body)
                    if login.password != fake.password:
                        return self.answer(401, {})
                    return self.answer(201, {"access_token": fake.token})
                if not self.allowed():
                    return None
                assert self.path == "/api/v2/assets/events"
                event = CreateAssetEventsBody.model_validate(body)
                if event.asset_id not in {asset["id"] for asset in fake.assets}:
                    return self.answer(404, {"detail": "no such asset"})
                fake.events.append(event.model_dump())
                return self.answer(200, {"id": len(fake.events)})

            def allowed(self) -> bool:
                if fake.down:
                    fake.refused += 1
                    self.answer(503, {})
                elif self.headers.get("Authorization") != f"Bearer {fake.token}":
                    self.answer(401, {})
                else:
                    return True
                return False

            def answer(self, status: int, body: object) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self.server, self.url = listening(ThreadingHTTPServer(("127.0.0.1", 0), Api))


def listening(server: ThreadingHTTPServer) -> tuple[ThreadingHTTPServer, str]:
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


class Bench:
    """A receiver between the two."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.airflow = FakeAirflow()
        self.secret = secrets.token_hex(16)
        self.servers: list[ThreadingHTTPServer] = [self.airflow.server]
        self.url = self.receiver()

    def receiver(self, asset: str = "jobs_done") -> str:
        """Starts one, as after a restart."""
        airflow = howto.Airflow(self.airflow.url, "user", self.airflow.password)
        receiver = howto.Receiver(airflow, asset, self.secret, howto.Passed(self.home / "passed.db"))
        server, url = listening(howto.server(receiver, "127.0.0.1", 0))
        self.servers.append(server)
        return url

    def deliver(self, event: dict[str, Any], signature: str | None = "right", url: str | None = None) -> int:
        body = json.dumps(event).encode()
        headers = {}
        if signature is not None:
            signed = webhooks.sign(self.secret, body) if signature == "right" else signature
            headers[webhooks.SIGNATURE_HEADER] = signed
        return httpx.post(url or self.url, content=body, headers=headers, trust_env=False, timeout=240).status_code

    @property
    def told(self) -> list[dict[str, Any]]:
        return [{name: event[name] for name in ("asset_id", "extra")} for event in self.airflow.events]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for server in bench.servers:
        server.shutdown()
        server.server_close()


def completed(job_id: str = JOB, **more: Any) -> dict[str, Any]:
    return {"success": True, "type": "batch_scrape.completed", "id": job_id, "data": [], **more}


def extra(job_id: str = JOB, kind: str = "batch_scrape") -> dict[str, Any]:
    return {"kind": kind, "job_id": job_id, "status": "completed", "from_rest_api": True}


def test_a_delivery_of_the_embedded_service_becomes_one_event(bench: Bench, site: GatedSite) -> None:
    """The first delivery meets an Airflow that is away; the service repeats it a minute later."""
    bench.airflow.down = True
    with (
        LocalService(config=ServiceConfig(webhook_secret=bench.secret)) as service,
        Client(base_url=service.url, api_key=service.key) as client,
    ):
        hook = {"url": bench.url, "events": ["completed"]}
        batch = client.start_batch_scrape(site.pages(2), webhook=hook)
        until(lambda: client.get_batch_scrape(str(batch.id)).status == "completed")
        until(lambda: bench.airflow.refused)
        bench.airflow.down = False
        assert bench.told == []
        until(lambda: service.advance(61) or bench.told)
        crawl = client.start_crawl(site.url, limit=1, webhook=hook)
        until(lambda: len(bench.told) == 2)
    assert bench.told == [
        {"asset_id": 7, "extra": extra(str(batch.id))},
        {"asset_id": 7, "extra": extra(str(crawl.id), "crawl")},
    ]


def test_only_bodies_signed_with_the_secret_are_accepted(bench: Bench) -> None:
    other = webhooks.sign("another secret", json.dumps(completed()).encode())
    for signature in (None, "", "sha256=00", other):
        assert bench.deliver(completed(), signature) == 401
    assert (bench.told, bench.airflow.logins) == ([], 0)
    assert bench.deliver(completed()) == 204
    assert bench.told == [{"asset_id": 7, "extra": extra()}]


def test_a_repeated_delivery_makes_no_second_event_also_after_a_restart(bench: Bench) -> None:
    assert bench.deliver(completed(webhookId="one")) == 204
    assert bench.deliver(completed(webhookId="one")) == 204
    assert bench.deliver(completed(JOB.upper(), webhookId="two")) == 204
    again = bench.receiver()
    assert bench.deliver(completed(webhookId="three"), url=again) == 204
    assert len(bench.told) == 1


def test_the_same_delivery_twice_at_the_same_time_makes_one_event(bench: Bench) -> None:
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(bench.deliver(completed()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert answers == [204] * 8
    assert len(bench.told) == 1


def test_an_event_that_airflow_refused_gets_503(bench: Bench) -> None:
    bench.airflow.assets = []
    assert bench.deliver(completed()) == 503
    bench.airflow.assets = [{"id": 9, "name": "jobs_done", "uri": "s3://b/k"}]
    assert bench.deliver(completed()) == 204
    # The asset was removed and came back under another id, and the token is too old.
    bench.airflow.assets = [{"id": 10, "name": "jobs_done", "uri": "s3://b/k"}]
    bench.airflow.token = secrets.token_hex(8)
    second = JOB.replace("0001", "0002")
    assert bench.deliver(completed(second)) == 204
    assert bench.told == [{"asset_id": 9, "extra": extra()}, {"asset_id": 10, "extra": extra(second)}]
    assert bench.airflow.logins == 2


def test_an_asset_may_be_named_by_its_uri(bench: Bench) -> None:
    assert bench.deliver(completed(), url=bench.receiver("s3://b/too")) == 204
    assert bench.told[0]["asset_id"] == 6


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ({"type": "crawl.page", "id": JOB}, 204),
        ({"type": "batch_scrape.started", "id": JOB}, 204),
        ({"type": "batch_scrape.completed", "id": "../../dags"}, 400),
        ({"type": "batch_scrape.completed"}, 400),
        ({"id": JOB, "type": "batch_scrape.completed", "data": ["x" * (1 << 20)]}, 413),
    ],
)
def test_other_bodies_make_no_event(bench: Bench, event: dict[str, Any], answer: int) -> None:
    assert bench.deliver(event) == answer
    assert bench.told == []


def test_the_page_shows_the_tested_code() -> None:
    text = (DOCS / "webhooks-to-assets.md").read_text()
    snippet = text.split("## 1. The DAG")[1].split("```python\n")[1].split("```")[0]
    assert snippet in (DOCS / "land_announced_jobs.py").read_text()
    for status in {"204", "401", "400", "411", "413", "503"}:
        assert status in (DOCS / "webhook_receiver.py").read_text()


def test_an_event_that_names_no_job_does_not_keep_the_others_from_landing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that a person has created in Airflow's user interface."""
    monkeypatch.setenv("WEBLAKE_ROOT", "/lake")
    program = load(DOCS / "land_announced_jobs.py")
    monkeypatch.setattr(program, "Variable", SimpleNamespace(get=lambda *_, **__: None))
    job, now = {"kind": "batch_scrape", "job_id": JOB}, datetime.now(timezone.utc)
    extras: list[dict[str, Any]] = [
        {"from_rest_api": True},
        {},
        {**job, "status": "completed"},
        {"from_trigger": True, "payload": {**job, "status": "completed"}},
    ]
    events = [SimpleNamespace(extra=extra, timestamp=now) for extra in extras]
    announced = program.land_announced_jobs().get_task("announced").python_callable
    ti = SimpleNamespace(xcom_push=lambda *_: None)
    assert announced(ti=ti, inlet_events={program.BATCHES: events}) == [job]

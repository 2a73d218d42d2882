"""Makes an asset event in Airflow or Dagster of each signed webhook of a completed job. See assets-and-webhooks.md.

python webhook_receiver.py airflow https://airflow.example.com 8088
python webhook_receiver.py dagster https://dagster.example.com 8088
"""

from __future__ import annotations

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from weblake import webhooks
from weblake.errors import WeblakeError

MAX_BODY = 1 << 20
#: One request at a time: on SQLite, two events at once block Airflow's API server.
ONE_AT_A_TIME = threading.Lock()
COMPLETED = {"batch_scrape.completed": "batch_scrape", "crawl.completed": "crawl"}


def to_airflow(http: httpx.Client, job: dict[str, str]) -> None:
    """Make an event of the asset that `weblake_jobs_asset(kind)` returns."""
    login = {"username": os.environ["AIRFLOW_USERNAME"], "password": os.environ["AIRFLOW_PASSWORD"]}
    token = http.post("/auth/token", json=login).raise_for_status().json()["access_token"]
    headers, uri = {"Authorization": f"Bearer {token}"}, f"x-weblake://jobs/weblake_default/{job['kind']}"
    found = http.get("/api/v2/assets", params={"uri_pattern": uri}, headers=headers).raise_for_status().json()
    event = {"asset_id": next(each["id"] for each in found["assets"] if each["uri"] == uri), "extra": job}
    http.post("/api/v2/assets/events", json=event, headers=headers).raise_for_status()


def to_dagster(http: httpx.Client, job: dict[str, str]) -> None:
    """Make a materialization of the asset `batch_scrape_jobs` or `crawl_jobs`."""
    event = {"asset_key": f"{job['kind']}_jobs", "metadata": job}
    http.post("/report_asset_materialization/", json=event).raise_for_status()


class Delivery(BaseHTTPRequestHandler):
    """A request of the service, which sends a delivery again if the answer is an error."""

    timeout = 5.0  # seconds for which the connection may be silent; the service waits 10 for the answer

    def do_POST(self) -> None:
        """Answer one delivery."""
        length = self.headers.get("Content-Length", "")
        status = self.receive(int(length)) if length.isdecimal() and int(length) <= MAX_BODY else 413
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def receive(self, length: int) -> int:
        """Pass the delivery on and return the status of the answer."""
        signature = self.headers.get(webhooks.SIGNATURE_HEADER)
        try:
            event = webhooks.receive(self.rfile.read(length), signature, os.environ["WEBHOOK_SECRET"])
        except WeblakeError:
            return 401
        if event.type not in COMPLETED or not event.id:
            return 204
        try:
            with ONE_AT_A_TIME, httpx.Client(base_url=sys.argv[2], timeout=2.5) as http:
                SEND[sys.argv[1]](http, {"kind": COMPLETED[event.type], "job_id": event.id, "status": "completed"})
        except (httpx.HTTPError, StopIteration) as error:
            self.log_error("The service has to send job %s again: %r", event.id, error)
            return 503
        return 204


SEND = {"airflow": to_airflow, "dagster": to_dagster}
if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Delivery).serve_forever()

"""Turns signed webhook deliveries of finished jobs into events of an Airflow asset. See webhooks-to-assets.md.

    WEBHOOK_SECRET=… AIRFLOW_USERNAME=… AIRFLOW_PASSWORD=… \
        python webhook_receiver.py --airflow https://airflow.example.com --port 8088 \
        --asset x-weblake://jobs/weblake_default/batch_scrape

A delivery is checked on its raw bytes, answered 2xx only when Airflow has the event, and passed on once: the service
sends it again where the answer was no 2xx or was lost. Needs `weblake` (and its httpx) and the standard library.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from weblake import webhooks
from weblake.errors import WeblakeError

LOG = logging.getLogger("webhook_receiver")
#: The deliveries that are passed on; any other one is answered and dropped.
EVENTS = {"batch_scrape.completed": "batch_scrape", "crawl.completed": "crawl"}
#: Bytes of a delivery at most, and seconds for its reading and for each call of Airflow: the service waits 10 seconds.
MAX_BODY, READ_S, CALL_S = 1 << 20, 5.0, 2.5
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Refused(Exception):
    """What to answer in place of 204."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Passed:
    """The jobs that Airflow already has, in a SQLite file that outlives the receiver."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._open()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS passed (type TEXT, job TEXT, PRIMARY KEY (type, job))")

    def __contains__(self, event: tuple[str, str]) -> bool:
        with closing(self._open()) as db:
            return db.execute("SELECT 1 FROM passed WHERE type = ? AND job = ?", event).fetchone() is not None

    def add(self, event: tuple[str, str]) -> None:
        """Notes one."""
        with closing(self._open()) as db, db:
            db.execute("INSERT OR IGNORE INTO passed VALUES (?, ?)", event)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=CALL_S)


class Airflow:
    """The part of Airflow's REST API that is needed: a token, an asset's id, an event."""

    def __init__(self, url: str, username: str | None, password: str | None) -> None:
        self._http = httpx.Client(base_url=url.rstrip("/"), timeout=CALL_S)
        self._login = {"username": username, "password": password} if username else None
        self._token: str | None = None
        self._assets: dict[str, int] = {}

    def tell(self, asset: str, extra: dict[str, str]) -> None:
        """Makes an event of the asset; raises httpx.HTTPError or LookupError where Airflow does not have it."""
        body = {"asset_id": self._asset_id(asset), "extra": extra}
        reply = self._call("POST", "/api/v2/assets/events", json=body)
        if reply.status_code == 404:  # the asset was removed and made anew, under another id
            self._assets.pop(asset, None)
            body["asset_id"] = self._asset_id(asset)
            reply = self._call("POST", "/api/v2/assets/events", json=body)
        reply.raise_for_status()

    def _asset_id(self, asset: str) -> int:
        if asset not in self._assets:
            field = "uri" if "://" in asset else "name"
            reply = self._call("GET", "/api/v2/assets", params={f"{field}_pattern": asset, "limit": 100})
            # The pattern finds every asset that contains the text.
            found = [each["id"] for each in reply.raise_for_status().json()["assets"] if each[field] == asset]
            if not found:
                raise LookupError(f"Airflow has no asset with the {field} {asset!r}: is its DAG parsed?")
            self._assets[asset] = found[0]
        return self._assets[asset]

    def _call(self, method: str, path: str, **request: object) -> httpx.Response:
        for fresh in (False, True):
            headers = {"Authorization": f"Bearer {self._bearer(fresh)}"}
            reply = self._http.request(method, path, headers=headers, **request)  # type: ignore[arg-type]
            if reply.status_code != 401:
                break  # a token lives for a day; a new one is asked for when the old one is refused
        return reply

    def _bearer(self, fresh: bool) -> str:
        if self._token is None or fresh:
            # Without a password only an Airflow in which everybody is an admin gives a token: one on a laptop.
            login = self._login
            reply = self._http.post("/auth/token", json=login) if login else self._http.get("/auth/token")
            self._token = str(reply.raise_for_status().json()["access_token"])
        return self._token


class Receiver:
    """What happens to one delivery."""

    def __init__(self, airflow: Airflow, asset: str, secret: str, passed: Passed) -> None:
        self._airflow, self._asset, self._secret, self._passed = airflow, asset, secret, passed
        # One after the other: the same delivery may arrive twice at the same time.
        self._turn = threading.Lock()

    def receive(self, body: bytes, signature: str | None) -> None:
        """Passes a delivery on; raises Refused with the status to answer."""
        try:
            event = webhooks.receive(body, signature, self._secret)
        except webhooks.SignatureMismatch as error:
            raise Refused(401, str(error)) from error
        except WeblakeError as error:
            raise Refused(400, str(error)) from error
        kind, job_id = EVENTS.get(event.type or ""), event.id or ""
        if kind is None:
            return
        if not _UUID.fullmatch(job_id):
            raise Refused(400, "The delivery's id is no job id.")
        known = (str(event.type), job_id.lower())
        with self._turn:
            if known in self._passed:
                LOG.info("%s %s came again and is dropped.", *known)
                return
            try:
                self._airflow.tell(self._asset, {"kind": kind, "job_id": job_id, "status": "completed"})
            except (httpx.HTTPError, LookupError, KeyError, ValueError) as error:
                raise Refused(503, f"Airflow did not take the event, it is to be sent again: {error}") from error
            self._passed.add(known)
        LOG.info("%s %s is an event of %s.", *known, self._asset)


def server(receiver: Receiver, host: str, port: int) -> ThreadingHTTPServer:
    """The HTTP server; `serve_forever` runs it."""

    class Delivery(BaseHTTPRequestHandler):
        timeout = READ_S

        def do_POST(self) -> None:
            try:
                receiver.receive(self._body(), self.headers.get(webhooks.SIGNATURE_HEADER))
                status = 204
            except Refused as refused:
                LOG.warning("Answered %d: %s", refused.status, refused)
                status = refused.status
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _body(self) -> bytes:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit():
                raise Refused(411, "A delivery has a Content-Length.")
            if int(length) > MAX_BODY:
                raise Refused(413, "The delivery is too large: subscribe to `completed` only.")
            return self.rfile.read(int(length))

        def log_message(self, format: str, *args: object) -> None:
            LOG.debug(format, *args)

    return ThreadingHTTPServer((host, port), Delivery)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description="Webhook deliveries to Airflow asset events.")
    parser.add_argument("--airflow", required=True, metavar="URL", help="the API server's address")
    parser.add_argument("--asset", required=True, metavar="NAME_OR_URI")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8088)
    parser.add_argument("--passed", type=Path, default=Path("webhook_receiver.db"), metavar="FILE")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    secret = os.environ.get("WEBHOOK_SECRET") or parser.error("WEBHOOK_SECRET is not set.")
    airflow = Airflow(given.airflow, os.environ.get("AIRFLOW_USERNAME"), os.environ.get("AIRFLOW_PASSWORD"))
    with server(Receiver(airflow, given.asset, secret, Passed(given.passed)), given.host, given.port) as serving:
        LOG.info("Listening on http://%s:%d", *serving.server_address[:2])
        serving.serve_forever()


if __name__ == "__main__":
    main()

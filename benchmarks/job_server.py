"""A service that serves one job as fast as the socket takes it, so that a benchmark measures who reads it.

    python benchmarks/job_server.py JOB [--latency MS] [--rate MB/S] [--gzip] [--running]

It prints its port. `--latency` passes before each reply, `--rate` holds for each connection, `--gzip` serves bodies
that were compressed beforehand to those who accept them, `--running` serves a job that never ends. `/_tally` tells the
requests, the bytes sent and its own CPU.
"""

from __future__ import annotations

import argparse
import gzip
import json
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

JOB_ID = "0199d0c2-7f1e-4abc-8def-000000000001"
PATH = f"/v2/batch/scrape/{JOB_ID}"


class Job:
    """The bodies of one job, ready to be sent."""

    def __init__(self, directory: Path, given: argparse.Namespace) -> None:
        told = json.loads((directory / "job.json").read_text())
        self.given = given
        self.documents, self.chunks = told["documents"], told["chunks"]
        self.errors = json.dumps({"errors": told["errors"], "robotsBlocked": []}).encode()
        self.data = [(directory / f"chunk-{n}.json").read_bytes() for n in range(self.chunks)]
        self.total = self.documents + len(told["errors"])
        self.port = 0
        self.squeezed: dict[int, bytes] = {}
        self.requests = self.sent = 0
        self.lock = threading.Lock()

    def chunk(self, number: int) -> list[bytes]:
        """One status reply, in parts that need not be copied together."""
        running = self.given.running
        head: dict[str, Any] = {
            "success": True,
            "status": "scraping" if running else "completed",
            "completed": self.documents,
            "total": self.total + running,
            "creditsUsed": self.documents,
            "expiresAt": "2099-01-01T00:00:00.000Z",
        }
        if number + 1 < self.chunks or running:
            head["next"] = f"http://127.0.0.1:{self.port}{PATH}?skip={min(number + 1, self.chunks)}"
        data = self.data[number] if number < self.chunks else b"[]"
        return [json.dumps(head).encode()[:-1], b', "data": ', data, b"}"]

    def reply(self, method: str, path: str, *, accepts_gzip: bool) -> tuple[list[bytes], bool]:
        """A body in parts, and whether it is compressed."""
        if path == "/_tally":
            tally = {"requests": self.requests, "sent": self.sent, "cpu": time.process_time()}
            return [json.dumps(tally).encode()], False
        if path.startswith("/v2/team/activity"):
            return [b'{"success": true, "data": [], "cursor": null, "has_more": false}'], False
        if path.startswith(f"{PATH}/errors"):
            return [self.errors], False
        if not path.startswith(PATH):
            return [json.dumps({"success": True, "id": JOB_ID, "url": "", "asked": method}).encode()], False
        number = int(path.rpartition("skip=")[2]) if "skip=" in path else 0
        if self.given.gzip and accepts_gzip:
            if number not in self.squeezed:
                self.squeezed[number] = gzip.compress(b"".join(self.chunk(number)), 6)
            return [self.squeezed[number]], True
        return self.chunk(number), False


class Connection(socketserver.StreamRequestHandler):
    """One connection, kept open."""

    disable_nagle_algorithm = True
    server: Server

    def handle(self) -> None:
        job = self.server.job
        while line := self.rfile.readline():
            method, path, _ = line.decode().split(" ", 2)
            headers = {}
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            self.rfile.read(int(headers.get("content-length", 0)))
            parts, squeezed = job.reply(method, path, accepts_gzip="gzip" in headers.get("accept-encoding", ""))
            length = sum(map(len, parts))
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
            head += "Content-Encoding: gzip\r\n\r\n" if squeezed else "\r\n"
            if job.given.latency:
                time.sleep(job.given.latency / 1000)
            try:
                self.connection.sendall(head.encode())
                for part in parts:
                    self._send(part)
            except OSError:
                return
            finally:
                with job.lock:
                    job.requests += not path.startswith("/_")
                    job.sent += length if not path.startswith("/_") else 0

    def _send(self, part: bytes) -> None:
        rate = self.server.job.given.rate
        if not rate:
            self.connection.sendall(part)
            return
        began, view = time.perf_counter(), memoryview(part)
        for start in range(0, len(view), 1 << 18):
            self.connection.sendall(view[start : start + (1 << 18)])
            time.sleep(max(0.0, began + start / (rate * 1e6) - time.perf_counter()))


class Server(socketserver.ThreadingTCPServer):
    """Threads with blocking sockets: `sendall` of what lies in memory is as fast as loopback gets."""

    daemon_threads = allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, job: Job) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.job = job
        job.port = self.server_address[1]


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("job", type=Path)
    asked.add_argument("--latency", type=float, default=0.0)
    asked.add_argument("--rate", type=float, default=0.0)
    asked.add_argument("--gzip", action="store_true")
    asked.add_argument("--running", action="store_true")
    given = asked.parse_args()
    job = Job(given.job, given)
    if given.gzip:
        for number in range(job.chunks):
            job.reply("GET", f"{PATH}?skip={number}" if number else PATH, accepts_gzip=True)
    with Server(job) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()

"""A transport that returns scripted responses, with a clock that only the flow itself advances."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from weblake.api import operations
from weblake.api.steps import Flow, NoResponse, Request, Response, run
from weblake.jobs.retry import Retry

OK = {"success": True, "id": "11111111-2222-4333-8444-555555555555"}

READ = operations.credit_usage()
CANCEL = operations.cancel_crawl("11111111-2222-4333-8444-555555555555")
START = operations.start_batch_scrape(["http://a.test/"])
SCRAPE = operations.scrape("http://a.test/")


@dataclass
class ScriptedTransport:
    """Returns each response of the script once and the last one for ever."""

    script: list[Response | NoResponse]
    sent: list[Request] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    at: float = 1000.0
    #: Requests after which the call counts as endless.
    most: int = 10_000
    #: Seconds by which the wall clock of the process has been set back.
    set_back: float = 0.0

    def send(self, request: Request) -> Response | NoResponse:
        self.sent.append(request)
        assert len(self.sent) <= self.most, "requests without end"
        self.at += 0.01
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds

    def run(self, flow: Flow[object]) -> object:
        return run(flow, self, sleep=self.sleep, clock=lambda: self.at, wall=lambda: self.at - self.set_back)


def reply(
    status: int = 200, body: object = OK, headers: Mapping[str, str] | None = None, received_at: float = 0.0
) -> Response:
    return Response(
        status,
        dict(headers or {}),
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        received_at=received_at,
    )


def retry(jitter: Callable[[], float] = lambda: 0.5) -> Retry:
    return Retry(jitter=jitter)

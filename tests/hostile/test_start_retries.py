"""How often a landing sends its start, and for how long on a virtual clock, for each class of responses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from catalogue import proves
from landing_commands import KEY
from scripted_job import ACTIVITY, url_of
from scripted_service import Play, ScriptedService, close, reply, reset

from weblake import Client
from weblake.api import operation, steps
from weblake.api.steps import Flow, NoResponse, Request, Response
from weblake.dataset.root import open_dataset
from weblake.errors import WeblakeError
from weblake.loads import intents, load_request, starts
from weblake.loads.load_request import Naming

START = "POST /v2/batch/scrape"
URLS = [url_of(0)]
NO = {"success": False, "error": "no"}
PAGE = {"content_type": "text/html"}

#: The response; how often a landing sends the start, within how many seconds, and what it raises.
RESPONSES: dict[str, tuple[Play | None, int, float, str]] = {
    **{
        str(status): (reply("", status, location="http://127.0.0.1:9/"), 1, 1, "MalformedReply")
        for status in (300, 301, 302, 304, 307, 308)
    },
    "303": (reply("", 303), 1, 1, "MalformedReply"),
    "a login page": (reply("<html>", 200, **PAGE), 1, 1, "MalformedReply"),
    "400": (reply(NO, 400), 1, 1, "RequestRejected"),
    "401": (reply(NO, 401), 1, 1, "AuthenticationFailed"),
    "404": (reply("<html>", 404, **PAGE), 1, 1, "RequestRejected"),
    "405": (reply("", 405), 1, 1, "RequestRejected"),
    "501": (reply("", 501), 1, 1, "ServiceUnavailable"),
    "511": (reply("<html>", 511, **PAGE), 1, 1, "ServiceUnavailable"),
    "204": (reply(b"", 204), 3, 140, "MalformedReply"),
    "malformed JSON": (reply(b'{"success": tru'), 3, 140, "MalformedReply"),
    "429": (reply(NO, 429), 15, 20, "RateLimited"),
    "no connection": (None, 15, 20, "ServiceUnreachable"),
    **{
        str(status): (reply("<html>", status, **PAGE), 10, 430, "ServiceUnavailable")
        for status in (408, 500, 502, 503, 504)
    },
    "409": (reply(NO, 409), 10, 430, "RequestRejected"),
    "cut off": (reply(b'{"success"', length=99), 10, 430, "ServiceUnreachable"),
    "reset": (reset(), 10, 430, "ServiceUnreachable"),
    "closed": (close(), 10, 430, "ServiceUnreachable"),
}


@dataclass
class CountingTransport:
    """Sends the requests of a client and counts its starts; with `refused` they get no connection."""

    inner: steps.Transport
    refused: bool
    sent: int = 0

    def send(self, request: Request) -> Response | NoResponse:
        self.sent += request.method == "POST"
        if self.refused and request.method == "POST":
            return NoResponse("connection refused", sent=False)
        return self.inner.send(request)


class VirtualClient(Client):
    """Make a client whose pauses only advance its clock."""

    passed = 0.0

    def run(self, flow: Flow[object]) -> object:  # type: ignore[override]
        self.carrier = getattr(self, "carrier", None) or CountingTransport(self.transport, refused=False)
        return steps.run(
            flow,
            self.carrier,
            sleep=self._sleep,
            clock=lambda: time.monotonic() + self.passed,
            wall=lambda: time.time() + self.passed,
        )

    def _sleep(self, seconds: float) -> None:
        self.passed += seconds


@pytest.fixture(autouse=True)
def real_waits(monkeypatch: pytest.MonkeyPatch, short_waits: None) -> None:
    """Use the real waits of a lost start: the clock is virtual here."""
    monkeypatch.setattr(starts, "MARGIN_S", 5.0)
    monkeypatch.setattr(starts, "BETWEEN_S", 2.0)
    monkeypatch.setattr(operation, "START_DEADLINE_S", 30.0)


@proves(
    "H15",
    at="src/weblake/loads/starts.py",
    line="        if state.verdict is Verdict.STOPPED and state.error is not None:",
    becomes="        if False:",
    case="a login page",
)
@pytest.mark.parametrize("case", RESPONSES)
def test_h15_a_landing_sends_its_start_as_often_as_expected(
    service: ScriptedService, case: str, tmp_path: Path
) -> None:
    play, sends, seconds, kind = RESPONSES[case]
    service.on(ACTIVITY, reply({"success": True, "data": []}))
    if play is not None:
        service.on(START, play)
    with VirtualClient(service.url, KEY) as client:
        client.carrier = CountingTransport(client.transport, refused=play is None)
        with pytest.raises(WeblakeError) as caught:
            intents.start_load(client, open_dataset(tmp_path), load_request.batch(URLS, Naming()))
        assert type(caught.value).__name__ == kind
        assert client.carrier.sent == sends
        assert client.passed < seconds

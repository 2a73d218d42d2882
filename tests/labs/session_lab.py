"""Browser sessions from the user's side: the calls of the API, and the protocol at the address that the API returns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
from browser_lab import BrowserLab
from contract_validation import load, validate
from websockets.sync.client import ClientConnection, connect

CLICKS = (
    b"<title>Start</title><main><h1>Counter</h1><button onclick=\"document.title = 'clicked ' + ++n\">Add</button>"
    b"<input id=name aria-label=Name></main><script>let n = 0</script>"
)
TARGET_EVENTS = ("Target.targetCreated", "Target.targetInfoChanged")


@cache
def _api() -> dict[str, Any]:
    return load()


class Sessions:
    """The calls of one team; every response is validated against the contract."""

    def __init__(self, lab: BrowserLab, key: str = "red-key") -> None:
        self.lab = lab
        self._headers = {"Authorization": f"Bearer {key}"}

    def call(self, method: str, path: str, body: dict[str, object] | None = None, **more: Any) -> httpx.Response:
        headers = self._headers | more.pop("headers", {})
        reply = self.lab.http.request(method, path, json=body, headers=headers, **more)
        validate(_api(), method, path.partition("?")[0], reply.status_code, reply.json())
        return reply

    def ok(self, method: str, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        reply = self.call(method, path, body)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def create(self, **options: object) -> dict[str, Any]:
        return self.ok("POST", "/v2/browser", {"ttl": 300, **options})

    def execute(self, session: dict[str, Any], code: str, **options: object) -> dict[str, Any]:
        return self.ok("POST", f"/v2/browser/{session['id']}/execute", {"code": code, **options})

    def close(self, session: dict[str, Any]) -> dict[str, Any]:
        return self.ok("DELETE", f"/v2/browser/{session['id']}")

    def listed(self, status: str | None = None) -> list[dict[str, Any]]:
        query = f"?status={status}" if status else ""
        return list(self.ok("GET", f"/v2/browser{query}")["sessions"])

    def status(self, session: dict[str, Any]) -> str:
        return str(next(one["status"] for one in self.listed() if one["id"] == session["id"]))

    def credits_used(self) -> int:
        """Return the credits used this month."""
        return sum(one["totalCredits"] for one in self.ok("GET", "/v2/team/credit-usage/historical")["periods"])

    def scrape(self, url: str, **options: object) -> str:
        """Scrape a page and return the scrape's id."""
        found = self.ok("POST", "/v2/scrape", {"url": url, "maxAge": 0, **options})
        return str(found["data"]["metadata"]["scrapeId"])

    def interact(self, scrape_id: str, code: str, **options: object) -> dict[str, Any]:
        return self.ok("POST", f"/v2/scrape/{scrape_id}/interact", {"code": code, **options})

    def stop(self, scrape_id: str) -> dict[str, Any]:
        return self.ok("DELETE", f"/v2/scrape/{scrape_id}/interact")


class Wire:
    """A client of the protocol that can send arbitrary commands."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self._events: list[dict[str, Any]] = []

    def say(self, method: str, params: dict[str, object] | None = None, session: str | None = None) -> dict[str, Any]:
        """Send a command and return its whole response; events are kept for `arrived`."""
        self.tell(method, params, session)
        while (reply := json.loads(self._socket.recv(30))).get("id") != self._last:
            self._events.append(reply)
        return dict(reply)

    def tell(self, method: str, params: dict[str, object] | None = None, session: str | None = None) -> None:
        """Send a command without reading anything."""
        self._last += 1
        said = {"id": self._last, "method": method, "params": params or {}}
        self._socket.send(json.dumps(said | ({"sessionId": session} if session else {})))

    def arrived(self, url: str) -> str:
        """Wait until a target has a URL that begins with this, and return its id."""
        while True:
            while self._events:
                told = self._events.pop(0)
                target = told["params"].get("targetInfo", {})
                if told["method"] in TARGET_EVENTS and target["url"].startswith(url):
                    return str(target["targetId"])
            self._events.append(json.loads(self._socket.recv(30)))

    def press(self, session: str, key: str, code: int, modifiers: int = 0) -> None:
        """Press a key, with modifiers as a bit mask: Alt 1, Ctrl 2, Meta 4, Shift 8."""
        how: dict[str, object] = {"key": key, "code": key, "modifiers": modifiers}
        how |= {"windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
        assert "error" not in self.say("Input.dispatchKeyEvent", how | {"type": "rawKeyDown"}, session)
        # The key may have turned the page into one that takes no commands.
        self.say("Input.dispatchKeyEvent", how | {"type": "keyUp"}, session)

    def attach(self, target: str) -> str:
        """Return a new protocol session of a target."""
        return str(self.say("Target.attachToTarget", {"targetId": target, "flatten": True})["result"]["sessionId"])

    def page(self) -> str:
        """Return the protocol session of the first page."""
        return self.attach(self.target())

    def target(self) -> str:
        """Return the id of the first page."""
        targets = self.say("Target.getTargets")["result"]["targetInfos"]
        return str(next(one["targetId"] for one in targets if one["type"] == "page"))

    def title(self, session: str) -> str:
        found = self.say("Runtime.evaluate", {"expression": "document.title"}, session)
        return str(found["result"]["result"]["value"])


@contextmanager
def wire(url: str, **how: Any) -> Iterator[Wire]:
    with connect(url, max_size=None, proxy=None, **how) as socket:
        yield Wire(socket)

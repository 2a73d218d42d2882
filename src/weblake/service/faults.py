"""The fault menu: what a test wants to go wrong, and the door through which it does. Imports: answers.

A rule says which requests it is about, how often it strikes, and what happens then:

    {"match": {"method": "POST", "path": "/v2/batch/scrape$", "nth": 1}, "times": 1, "effect": {"drop_after": true}}

`path` is a regular expression searched in path and query, `nth` counts the matching requests from 1, `times` is 1 where
it is not given and null for ever. The effects, each of which may be combined with `latency_ms`:

    latency_ms    waits before anything else
    status        answers this without handling the request; with body, headers and retry_after (seconds)
    drop_before   closes the connection; the request is not handled
    drop_after    handles the request, commits, and closes the connection without a reply
    truncate      handles the request and closes the connection after so many bytes of the body
    garbage       handles the request and replaces the body with bytes that are no JSON
    stall         keeps the connection open and never answers
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weblake.service.answers import encode

_GARBAGE = b"\x00\xff<html>\xfe{ this is no JSON \x80"


class Match(msgspec.Struct, forbid_unknown_fields=True):
    """Which requests a rule is about."""

    method: str | None = None
    path: str = ""
    nth: int = 1


class Effect(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What happens to them."""

    status: int | None = None
    body: object = msgspec.UNSET
    headers: dict[str, str] = {}
    retry_after: int | None = None
    latency_ms: float = 0
    drop_before: bool = False
    drop_after: bool = False
    truncate: int | None = None
    garbage: bool = False
    stall: bool = False


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """One fault."""

    effect: Effect
    match: Match = msgspec.field(default_factory=Match)
    times: int | None = 1
    #: Matching requests so far, and how many of them were hit.
    seen: int = 0
    hit: int = 0

    def strikes(self, method: str, target: str) -> bool:
        """Counts a request and says whether the fault happens to it."""
        if self.match.method is not None and self.match.method.upper() != method:
            return False
        if re.search(self.match.path, target) is None:
            return False
        self.seen += 1
        if self.seen < self.match.nth or (self.times is not None and self.hit >= self.times):
            return False
        self.hit += 1
        return True


def read_rules(value: object) -> list[Rule]:
    """Rules from decoded JSON: a list, or an object with the list under `rules`.

    Raises:
        ValueError: A rule is not as described above.
    """
    if isinstance(value, Mapping):
        value = value.get("rules")
    rules = msgspec.convert(value, list[Rule])
    for rule in rules:
        rule.seen = rule.hit = 0
        try:
            re.compile(rule.match.path)
        except re.error as error:
            raise ValueError(f"path is no regular expression: {error}") from None
        if rule.match.nth < 1 or rule.effect.latency_ms < 0 or (rule.effect.truncate or 0) < 0:
            raise ValueError("nth counts from 1; latency_ms and truncate are not negative")
    return rules


class Faults:
    """The rules that hold now. The first one that strikes decides; every matching one counts the request."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        #: Set when the service stops, so that no stalled request holds it up.
        self.over = asyncio.Event()

    def replace(self, rules: Sequence[Rule]) -> None:
        """Puts these rules in the place of all others."""
        self.rules = list(rules)

    def for_request(self, method: str, target: str) -> Effect | None:
        """What is to happen to this request."""
        struck = [rule for rule in self.rules if rule.strikes(method, target)]
        for late in struck[1:]:
            late.hit -= 1
        return struck[0].effect if struck else None


class FaultDoor:
    """Wraps the application and lets the faults happen, on the connection itself where need be."""

    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["path"].startswith("/_weblake/"):
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        effect = self._faults.for_request(scope["method"], scope["path"] + (f"?{query}" if query else ""))
        if effect is None:
            await self._app(scope, receive, send)
            return
        if effect.latency_ms:
            await asyncio.sleep(effect.latency_ms / 1000)
        if effect.drop_before:
            await _hang_up(scope, receive)
        elif effect.stall:
            await self._stall(scope, receive)
        elif effect.status is not None:
            await _reply(effect, send)
        else:
            await self._after(effect, scope, receive, send)

    async def _stall(self, scope: Scope, receive: Receive) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        over = asyncio.create_task(self._faults.over.wait())
        try:
            await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        if not gone.done():
            _close(scope)
        await gone

    async def _after(self, effect: Effect, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the request be handled and then spoils the reply."""
        spoilt = _Spoilt(effect, send)
        await self._app(scope, receive, spoilt.send)
        if effect.drop_after:
            await _hang_up(scope, receive)
        elif spoilt.cut:
            _close(scope)
            await _disconnected(receive)


class _Spoilt:
    """A reply on its way out, made shorter, senseless, or nothing."""

    def __init__(self, effect: Effect, send: Send) -> None:
        self._effect = effect
        self._send = send
        self._sent = 0
        self.cut = False

    async def send(self, message: Message) -> None:
        if self._effect.drop_after:
            return
        if self._effect.garbage:
            await self._garble(message)
        elif self._effect.truncate is not None and message["type"] == "http.response.body":
            await self._shorten(message, self._effect.truncate)
        else:
            await self._send(message)

    async def _garble(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            length = (b"content-length", str(len(_GARBAGE)).encode())
            kept = [pair for pair in message["headers"] if pair[0].lower() != b"content-length"]
            await self._send({**message, "headers": [*kept, length]})
        elif not message.get("more_body"):
            await self._send({"type": "http.response.body", "body": _GARBAGE})

    async def _shorten(self, message: Message, most: int) -> None:
        body = message.get("body", b"")
        left = most - self._sent
        self._sent += len(body)
        if len(body) <= left:
            await self._send(message)
        elif not self.cut:
            self.cut = True
            await self._send({"type": "http.response.body", "body": body[:left], "more_body": True})


async def _reply(effect: Effect, send: Send) -> None:
    if effect.body is msgspec.UNSET:
        body = encode({"success": False, "error": f"Injected fault: status {effect.status}."})
    else:
        body = effect.body.encode() if isinstance(effect.body, str) else encode(effect.body)
    headers = {"content-type": "application/json", **{name.lower(): value for name, value in effect.headers.items()}}
    if effect.retry_after is not None:
        headers["retry-after"] = str(effect.retry_after)
    headers["content-length"] = str(len(body))
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": effect.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


async def _hang_up(scope: Scope, receive: Receive) -> None:
    """Closes the connection without a byte of reply; returning before it is closed would send a 500."""
    _close(scope, at_once=True)
    await _disconnected(receive)


def _close(scope: Scope, *, at_once: bool = False) -> None:
    # server.py puts the transport there; without a socket there is nothing that could be closed.
    transport: asyncio.Transport | None = scope.get("state", {}).get("transport")
    if transport is None:
        raise RuntimeError("This fault closes a connection, and this request came over none.")
    if at_once:
        transport.abort()
    else:
        transport.close()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue

"""Responses that a fault replaces, truncates or corrupts."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from starlette.types import Message, Scope, Send

from weblake_service.faults.rules import Effect
from weblake_service.responses import ErrorResponse, encode

_GARBAGE = b"\x00\xff<html>\xfe{ this is no JSON \x80"
#: Offset that is added to the cursor of an empty chunk of an endless status.
_CURSOR_OFFSET = 100
_RUNNING_STATUS = "scraping"
#: Statuses whose responses have no body.
_STATUSES_WITHOUT_BODY = (204, 304)


async def send_fault_response(effect: Effect, send: Send) -> None:
    """Send the response of a fault instead of the service's response."""
    if effect.not_found:
        status, body = 404, encode(ErrorResponse(404, "Job not found").body())
    else:
        status = effect.status if effect.status is not None else 500
        body = _json_body(effect, status)
    headers = {"content-type": "application/json", **{name.lower(): value for name, value in effect.headers.items()}}
    if effect.retry_after is not None:
        headers["retry-after"] = str(effect.retry_after)
    if status in _STATUSES_WITHOUT_BODY:
        body = b""
    else:
        headers["content-length"] = str(len(body))
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def altered_request(effect: Effect, scope: Scope) -> Scope:
    """Return the request with the chunk parameters that the effect sets."""
    if effect.chunk_documents is None and not effect.duplicate_document:
        return scope
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    if effect.chunk_documents is not None:
        query.setdefault("limit", str(effect.chunk_documents))
    if effect.duplicate_document and _number(query, "skip") > 0:
        query["skip"] = str(_number(query, "skip") - 1)
    return {**scope, "query_string": urlencode(query).encode("latin-1")}


class AlteredResponse:
    """A response that is shortened, corrupted, replaced or dropped while it is sent."""

    def __init__(self, effect: Effect, scope: Scope, send: Send) -> None:
        self._effect = effect
        self._scope = scope
        self._send = send
        self._sent = 0
        self._start: Message | None = None
        self._parts: list[bytes] = []
        #: Whether the connection must be closed in the middle of the body.
        self.cut = False

    async def send(self, message: Message) -> None:
        """Receive a message of the application and send the altered one."""
        if self._effect.drop_after:
            return
        if self._effect.garbage:
            await self._garble(message)
        elif _is_rewritten(self._effect):
            await self._rewrite(message)
        else:
            await self._pass(message)

    async def _pass(self, message: Message) -> None:
        if self._effect.truncate is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        body = message.get("body", b"")
        left = self._effect.truncate - self._sent
        self._sent += len(body)
        if len(body) <= left:
            await self._send(message)
        elif not self.cut:
            self.cut = True
            await self._send({"type": "http.response.body", "body": body[:left], "more_body": True})

    async def _garble(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send({**message, "headers": _with_length(message, _GARBAGE)})
        elif not message.get("more_body"):
            await self._send({"type": "http.response.body", "body": _GARBAGE})

    async def _rewrite(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._parts.append(message.get("body", b""))
        if message.get("more_body") or self._start is None:
            return
        body = b"".join(self._parts)
        if self._start["status"] == 200:
            body = _altered_status(self._effect, self._scope, body)
        await self._pass({**self._start, "headers": _with_length(self._start, body)})
        await self._pass({"type": "http.response.body", "body": body})


def _is_rewritten(effect: Effect) -> bool:
    return bool(
        effect.empty_chunk or effect.lost_chunk or effect.duplicate_document or effect.foreign_next
        or effect.endless_next or effect.status_word is not None or effect.late_credits
    )  # fmt: skip


def _altered_status(effect: Effect, scope: Scope, body: bytes) -> bytes:
    """Return a status response with the effect applied."""
    head: dict[str, Any] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    data: list[msgspec.Raw] = msgspec.json.decode(head.pop("data", msgspec.Raw(b"[]")), type=list[msgspec.Raw])
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    here = f"{scope.get('scheme', 'http')}://{host}{scope['path']}"
    if effect.endless_next:
        head["next"] = f"{here}?{urlencode(query | {'skip': _number(query, 'skip') + (len(data) or _CURSOR_OFFSET)})}"
    if effect.empty_chunk:
        data, head["status"], head["next"] = [], _RUNNING_STATUS, here + (f"?{urlencode(query)}" if query else "")
        head.pop("completedAt", None), head.pop("duration", None)
    if effect.lost_chunk:
        data = []
    if effect.duplicate_document and data and not _number(query, "skip"):
        data.append(data[-1])
    if effect.next_origin and isinstance(link := msgspec.json.decode(encode(head.get("next"))), str):
        parts, foreign = urlsplit(link), urlsplit(effect.next_origin)
        head["next"] = urlunsplit((foreign.scheme, foreign.netloc, parts.path, parts.query, ""))
    if effect.status_word is not None:
        head["status"], head["success"] = effect.status_word, effect.status_word != "failed"
    if effect.late_credits:
        head["creditsUsed"] = 0
    return encode(head | {"data": data})


def _number(query: dict[str, str], name: str) -> int:
    """Return a number from the query; 0 if it is absent or invalid, which the application then reports."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _with_length(start: Message, body: bytes) -> list[tuple[bytes, bytes]]:
    kept = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
    return [*kept, (b"content-length", str(len(body)).encode())]


def _json_body(effect: Effect, status: int) -> bytes:
    if effect.body is msgspec.UNSET:
        return encode(ErrorResponse(status, f"Injected fault: status {status}.", code=effect.code).body())
    return effect.body.encode() if isinstance(effect.body, str) else encode(effect.body)

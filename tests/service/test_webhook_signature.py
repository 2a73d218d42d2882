"""The receiver's side of a webhook: its signature and the parsing of events."""

from __future__ import annotations

import ast
import hashlib
import hmac
import inspect
import json

import pytest
from catalogue import proves
from hypothesis import given
from hypothesis import strategies as st

from weblake.api import webhooks
from weblake.errors import FixRequest, InvalidOption

SECRET = "test-secret"


def test_the_signature_is_the_documented_one() -> None:
    body = b'{"a": 1}'
    expected = hmac.new(b"test-secret", body, hashlib.sha256).hexdigest()
    assert webhooks.sign("test-secret", body) == f"sha256={expected}"
    webhooks.verify(body, f"sha256={expected}", b"test-secret")


@proves(
    "S4",
    at="src/weblake/api/webhooks.py",
    line="if not hmac.compare_digest(expected.encode(), given):",
    becomes="if given and not hmac.compare_digest(expected.encode(), given):",
)
@proves(
    "S4",
    at="src/weblake/api/webhooks.py",
    line='given = (signature or "").encode("utf-8", "surrogateescape")',
    becomes='given = (signature or "").strip().lower().encode("utf-8", "surrogateescape")',
)
@given(st.binary(max_size=200), st.text(max_size=80) | st.none())
def test_s4_only_the_documented_signature_is_accepted(body: bytes, signature: str | None) -> None:
    right = webhooks.sign(SECRET, body)
    digest = right[7:]
    if signature != right:
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(body, signature, SECRET)
    spellings = [right.upper(), f"sha256={digest.upper()}", digest, f" {right}", f"{right}\n", right[:-1], f"{right}0"]
    others = [f"sha1={hashlib.sha1(body).hexdigest()}", f"sha512={digest}", f"sha256:{digest}", f"none={digest}"]
    twice = [f"{right}, {right}", f"{right},{webhooks.sign('other', body)}", f"{webhooks.sign('other', body)}, {right}"]
    nothing = [None, "", "sha256=", "sha256", "=", "ä" * 71, "sha256=" + "٠" * 64, f"{right}\udc80", f"{right}\0"]
    for wrong in (*spellings, *others, *twice, *nothing, webhooks.sign("test-secret ", body)):
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(body, wrong, SECRET)
    webhooks.verify(body, right, SECRET)


@proves(
    "S4",
    at="src/weblake/api/webhooks.py",
    line="hmac.new(key, body, hashlib.sha256)",
    becomes='hmac.new(key, b"".join(body.split()), hashlib.sha256)',
)
@given(st.lists(st.integers() | st.text(max_size=5), min_size=2, max_size=5))
def test_s4_a_reserialised_body_is_not_verified(event: list[object]) -> None:
    body = json.dumps(event).encode()
    right = webhooks.sign(SECRET, body)
    compact = json.dumps(event, separators=(",", ":")).encode()
    for other in (compact, body + b" ", body + b"\n", body[:-1], b"\xef\xbb\xbf" + body, b""):
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(other, right, SECRET)


@proves(
    "S4",
    at="src/weblake/api/webhooks.py",
    line="    verify(body, signature, secret)",
    becomes="    verify(body, signature, secret) if parse(body) else None",
)
def test_s4_unsigned_bodies_are_not_parsed() -> None:
    for body in (b"{", b"[" * 100_000, b"", b'{"type": "crawl.completed", "id": "j"}'):
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.receive(body, "sha256=00", SECRET)


@proves("S4", at="src/weblake/api/webhooks.py", line="if not key:", becomes="if False:")
def test_s4_an_empty_secret_verifies_nothing() -> None:
    for secret in ("", b""):
        for signature in (None, "", "sha256=" + hmac.new(b"", b"", hashlib.sha256).hexdigest()):
            with pytest.raises(InvalidOption, match="secret is empty"):
                webhooks.verify(b"", signature, secret)
        with pytest.raises(InvalidOption, match="secret is empty"):
            webhooks.sign(secret, b"")


@proves(
    "S4",
    at="src/weblake/api/webhooks.py",
    line="if not hmac.compare_digest(expected.encode(), given):",
    becomes="if expected.encode() != given:",
)
def test_s4_signatures_are_compared_in_constant_time() -> None:
    """Timing is not measurable on a busy machine, so the test asserts that this comparison is the only one."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(webhooks.verify))))
    assert not [ast.unparse(node) for node in nodes if isinstance(node, ast.Compare | ast.Match | ast.Subscript)]
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assert called == {"sign", "hmac.compare_digest", "SignatureMismatch", "expected.encode", "(signature or '').encode"}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"type": 1, "id": "x"}', b'{"type": "x"}', b"\xff", b"[" * 5000])
def test_a_body_that_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(FixRequest, match="not an event"):
        webhooks.parse(body)


def test_unknown_and_malformed_fields_are_tolerated() -> None:
    event = webhooks.parse(b'{"type":"crawl.page","id":"j","new":[1],"data":"x","metadata":3,"webhookId":5,"error":1}')
    assert (event.type, event.data, event.metadata, event.webhook_id, event.error) == ("crawl.page", [], {}, None, None)


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ({"id": "4D8B", "webhookId": "w"}, "crawl.page 4d8b w"),
        ({"id": "4d8b", "webhookId": "w", "data": [{"metadata": {"scrapeId": "s"}}]}, "crawl.page 4d8b w"),
        ({"id": "4d8b", "data": [{"metadata": {"scrapeId": "s", "sourceURL": "u"}}]}, "crawl.page 4d8b s"),
        ({"id": "4d8b", "data": [{"metadata": {"sourceURL": "u"}}]}, "crawl.page 4d8b u"),
        ({"id": "4d8b", "data": []}, "crawl.page 4d8b "),
    ],
)
def test_the_key_of_a_delivery_is_made_of_signed_fields(event: dict[str, object], key: str) -> None:
    assert webhooks.delivery_key(webhooks.parse(json.dumps({"type": "crawl.page"} | event).encode())) == key

"""The receiver's side of a webhook: its signature, and what an event may look like."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake import webhooks
from weblake.errors import FixRequest, InvalidOption

SECRET = "test-secret"


def test_the_signature_is_the_documented_one() -> None:
    body = b'{"a": 1}'
    expected = hmac.new(b"test-secret", body, hashlib.sha256).hexdigest()
    assert webhooks.sign("test-secret", body) == f"sha256={expected}"
    webhooks.verify(body, f"sha256={expected}", b"test-secret")


@given(st.binary(max_size=200), st.text(max_size=80) | st.none())
def test_nothing_but_the_signature_is_taken(body: bytes, signature: str | None) -> None:
    right = webhooks.sign(SECRET, body)
    if signature != right:
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(body, signature, SECRET)
    for wrong in (right.upper(), right[7:], f" {right}", f"{right}\n", right.replace("sha256", "sha1"), right[:-1]):
        with pytest.raises(webhooks.SignatureMismatch):
            webhooks.verify(body, wrong, SECRET)
    with pytest.raises(webhooks.SignatureMismatch):
        webhooks.verify(body + b" ", right, SECRET)
    webhooks.verify(body, right, SECRET)


def test_an_empty_secret_verifies_nothing() -> None:
    for secret in ("", b""):
        with pytest.raises(InvalidOption):
            webhooks.verify(b"", hmac.new(b"", b"", hashlib.sha256).hexdigest(), secret)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"type": 1, "id": "x"}', b'{"type": "x"}', b"\xff", b"[" * 5000])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(FixRequest, match="no event"):
        webhooks.parse(body)


def test_unknown_fields_and_odd_ones_break_nothing() -> None:
    event = webhooks.parse(b'{"type":"crawl.page","id":"j","new":[1],"data":"x","metadata":3,"webhookId":5,"error":1}')
    assert (event.type, event.data, event.metadata, event.webhook_id, event.error) == ("crawl.page", [], {}, None, None)

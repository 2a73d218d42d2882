"""Verifies the signature of webhook deliveries on the raw bytes, and parses them afterwards.

    event = webhooks.receive(body, headers.get("X-Service-Signature"), secret)
    if event.type == "batch_scrape.completed":
        weblake.land("batch", event.id, to=root)

A delivery is a hint to read the job, not its result. It may arrive twice, late, or not at all, and an intercepted
delivery can be replayed, because the signature does not cover a time: store the `delivery_key` of processed deliveries
and ignore repeated ones.
"""

from __future__ import annotations

import hashlib
import hmac

from weblake.api import response_json
from weblake.api.models import WebhookEvent
from weblake.errors import AskPerson, FixRequest, InvalidOption, MalformedReply

#: The header that carries the signature.
SIGNATURE_HEADER = "X-Service-Signature"
_PREFIX = "sha256="


class SignatureMismatch(AskPerson):
    """A webhook delivery is not signed with this secret: it was altered, forged, or signed with another one."""


def sign(secret: str | bytes, body: bytes) -> str:
    """Return the signature of a raw body: `sha256=` and 64 lower-case hex digits.

    Raises:
        InvalidOption: The secret is empty.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    if not key:
        raise InvalidOption("The webhook secret is empty.", hint="Set the secret that the service signs with.")
    return _PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest()


def verify(body: bytes, signature: str | None, secret: str | bytes) -> None:
    """Verify the signature of a delivery in constant time, on the raw bytes.

    Args:
        body: The raw request body, before any parsing.
        signature: The value of the `X-Service-Signature` header; None if absent.
        secret: The shared secret.

    Raises:
        SignatureMismatch: The signature is absent, malformed (only `sha256=` and lower-case hex is accepted) or wrong.
        InvalidOption: The secret is empty.
    """
    expected = sign(secret, body)
    given = (signature or "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(expected.encode(), given):
        raise SignatureMismatch(
            "The webhook carries no signature."
            if not signature
            else "The webhook's signature does not match its body and the secret.",
            hint="Discard the delivery. If it should be genuine, compare the secrets, and pass the body's raw bytes.",
        )


def parse(body: bytes) -> WebhookEvent:
    """Return the event of a delivery; unknown fields are ignored, so that new ones cause no error.

    Raises:
        FixRequest: The body is not a JSON object with the texts `type` and `id`.
    """
    try:
        event = WebhookEvent.decode(response_json.loads(body))
    except MalformedReply:
        event = WebhookEvent()
    if not event.type or not event.id:
        raise FixRequest(
            "The webhook's body is not an event: a JSON object with `type` and `id` was expected.",
            hint="Pass the raw request body.",
        )
    return event


def delivery_key(event: WebhookEvent) -> str:
    """Return a key that is equal for all repeats of a delivery and differs between deliveries.

    It is built from fields that the signature covers: the event type, the job id, and `webhookId`; if the service sends
    no `webhookId`, the scrape id or source URL of a page event.
    """
    page = event.data[0].metadata if event.data else None
    delivery = event.webhook_id or (page and (page.scrape_id or page.source_url)) or ""
    return f"{event.type} {(event.id or '').lower()} {delivery}"


def receive(body: bytes, signature: str | None, secret: str | bytes) -> WebhookEvent:
    """Verify a delivery with `verify` and return its event from `parse`; raises what these raise."""
    verify(body, signature, secret)
    return parse(body)

"""Webhook deliveries: the signature is checked on the raw bytes first, and only then are they read.

    event = webhooks.receive(body, headers.get("X-Service-Signature"), secret)
    if event.type == "batch_scrape.completed":
        weblake.land("batch", event.id, to=root)

A delivery is a hint to read the job, not the result. It may come twice, late, or not at all, and one that was caught
on its way can be sent again, for its signature knows no time: keep the `delivery_key` of what was acted on, and drop
what comes with it again.
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
    """The signature of a raw body: `sha256=` and 64 lower-case hex digits.

    Raises:
        InvalidOption: The secret is empty.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    if not key:
        raise InvalidOption("The webhook secret is empty.", hint="Set the secret that the service signs with.")
    return _PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest()


def verify(body: bytes, signature: str | None, secret: str | bytes) -> None:
    """Checks the signature of a delivery, in constant time, on the bytes as they came.

    Args:
        body: The raw request body, before any parsing.
        signature: The value of the `X-Service-Signature` header; None where it is absent.
        secret: What both sides share.

    Raises:
        SignatureMismatch: The signature is absent, malformed (only `sha256=` and lower-case hex is taken) or wrong.
        InvalidOption: The secret is empty.
    """
    expected = sign(secret, body)
    given = (signature or "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(expected.encode(), given):
        raise SignatureMismatch(
            "The webhook carries no signature."
            if not signature
            else "The webhook's signature does not match its body and the secret.",
            hint="Do not act on it. Where it should be genuine, compare the secrets, and pass the body's raw bytes.",
        )


def parse(body: bytes) -> WebhookEvent:
    """Reads a delivery; unknown fields are ignored, so that new ones break nobody.

    Raises:
        FixRequest: It is no JSON object with the texts `type` and `id`.
    """
    try:
        event = WebhookEvent.decode(response_json.loads(body))
    except MalformedReply:
        event = WebhookEvent()
    if not event.type or not event.id:
        raise FixRequest(
            "The webhook's body is no event: a JSON object with `type` and `id` was expected.",
            hint="Pass the raw request body.",
        )
    return event


def delivery_key(event: WebhookEvent) -> str:
    """What every repeat of a delivery has in common, and no two deliveries have.

    It is made of what the signature covers: the event's type, the job, and `webhookId`; where the service sends none,
    what a page's event tells of its page.
    """
    page = event.data[0].metadata if event.data else None
    told = event.webhook_id or (page and (page.scrape_id or page.source_url)) or ""
    return f"{event.type} {(event.id or '').lower()} {told}"


def receive(body: bytes, signature: str | None, secret: str | bytes) -> WebhookEvent:
    """Checks a delivery with `verify` and reads it with `parse`; it raises what they raise."""
    verify(body, signature, secret)
    return parse(body)

"""The public module `weblake.webhooks`: verify and parse webhook deliveries. The code is in api/webhooks.py."""

from __future__ import annotations

from weblake.api.models import WebhookEvent
from weblake.api.webhooks import SIGNATURE_HEADER, SignatureMismatch, delivery_key, parse, receive, sign, verify

__all__ = [
    "SIGNATURE_HEADER",
    "SignatureMismatch",
    "WebhookEvent",
    "delivery_key",
    "parse",
    "receive",
    "sign",
    "verify",
]

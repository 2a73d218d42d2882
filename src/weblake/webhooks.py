"""The public module `weblake.webhooks`: verify and parse webhook deliveries. The code is in api/webhooks.py."""

from weblake.api.models import WebhookEvent as WebhookEvent
from weblake.api.webhooks import SIGNATURE_HEADER as SIGNATURE_HEADER
from weblake.api.webhooks import SignatureMismatch as SignatureMismatch
from weblake.api.webhooks import delivery_key as delivery_key
from weblake.api.webhooks import parse as parse
from weblake.api.webhooks import receive as receive
from weblake.api.webhooks import sign as sign
from weblake.api.webhooks import verify as verify

"""Applies faults to webhooks: lost, duplicated, delayed or wrongly signed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from weblake.api.webhooks import SIGNATURE_HEADER, sign
from weblake_service.faults.active_rules import ActiveFaults

#: Posts a body to a URL and returns the status of the response; raises network errors.
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]

_OTHER_SIGNING_KEY = "not the secret that both sides share"
_ACCEPTED_STATUS = 204


class FaultyWebhookSender:
    """Wraps the function that posts webhooks."""

    def __init__(self, post: Post, faults: ActiveFaults) -> None:
        self._post = post
        self._faults = faults

    async def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post a webhook, with the effect of a matching rule; return the receiver's last status."""
        said = msgspec.json.decode(body, type=dict[str, object])
        effect = self._faults.for_delivery(url, str(said.get("type")), str(said.get("id")))
        if effect is None:
            return await self._post(url, body, headers)
        if effect.latency_ms:
            await asyncio.sleep(effect.latency_ms / 1000)
        if effect.lose_webhook:
            return _ACCEPTED_STATUS
        if effect.bad_signature:
            headers = {**headers, SIGNATURE_HEADER: sign(_OTHER_SIGNING_KEY, body)}
        if effect.duplicate_webhook:
            await self._post(url, body, headers)
        return await self._post(url, body, headers)

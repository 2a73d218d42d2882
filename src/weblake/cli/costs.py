"""Confirmation of what a crawl without a limit may cost."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs
from rich.markup import escape

from weblake import output
from weblake.api.operations import credit_usage
from weblake.errors import FixRequest, InvalidOption, WeblakeError
from weblake.orchestration import Dataset, LoadRequest, RetryPolicy

if TYPE_CHECKING:
    from weblake.client import Client

#: Limits of reading the remaining credits, which the question can do without.
_DEADLINE_S, _MAX_TRIES, _WAIT_S = 15.0, 2, 5.0
_LIMITS = "Give --limit N or --max-credits N"


def confirm(client: Client, dataset: Dataset, request: LoadRequest, *, yes: bool) -> LoadRequest:
    """Return the request, after a crawl without a limit is confirmed; any other request is returned unchanged.

    Raises:
        InvalidOption: There is no terminal to ask on, and no --yes.
        FixRequest: The answer was no.
    """
    from weblake.loads.intents import find_possible_cost

    cost = find_possible_cost(client, dataset, request)
    if cost is None:
        return request
    if not yes and not (sys.stdin.isatty() and output.err.is_terminal):
        raise InvalidOption(f"{cost} Nothing was started.", hint=f"{_LIMITS}, or --yes to crawl without a limit.")
    output.note(escape(f"weblake: {cost} {_credits_left(client)}"))
    if not yes and not output.ask("Crawl without a limit?"):
        raise FixRequest("Nothing was started.", hint=f"{_LIMITS}.")
    return replace(request, unlimited_pages=0)


def _credits_left(client: Client) -> str:
    operation = credit_usage()
    operation = structs.replace(operation, request=structs.replace(operation.request, deadline_s=_DEADLINE_S))
    try:
        usage = client.run(client.retry.call(operation, RetryPolicy(tries=_MAX_TRIES, wait_s=_WAIT_S)))
    except WeblakeError as error:
        return f"How many credits are left could not be read: {error.message}"
    left = usage.data.remaining_credits
    return "The service does not say how many credits are left." if left is None else f"{left:,.10g} credits are left."

"""The cost that a crawl without a limit may reach, computed before its start so that the user can be warned."""

from __future__ import annotations

from dataclasses import dataclass

from weblake.dataset.root import Dataset
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest

#: The ledger's name of the embedded service, which costs nothing.
_EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class PossibleCost:
    """The most pages and credits that a crawl without a limit may reach."""

    pages: int
    #: Known maximum cost of one page, in credits.
    price: float

    @property
    def credits(self) -> float:
        """Cost of all pages, in credits."""
        return self.pages * self.price

    def __str__(self) -> str:
        return (
            f"This crawl has no limit: it may reach {self.pages:,} pages and cost up to {self.credits:,.10g} credits."
        )


def find_possible_cost(client: FlowRunner, dataset: Dataset, request: LoadRequest) -> PossibleCost | None:
    """Return the possible cost of a crawl without a limit, or None if the crawl has a limit or starts no paid job.

    It starts no paid job if the load has landed or was started before, or if the service is the embedded one.
    """
    if not request.unlimited_pages or client.service == _EMBEDDED:
        return None
    last = dataset.ledger.last_start(request.load_id)
    if (last is not None and not last.void) or dataset.ledger.done(request.load_id) is not None:
        return None
    return PossibleCost(request.unlimited_pages, request.price)

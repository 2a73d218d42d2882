"""What a crawl without a limit may cost, to be told before it is started."""

from __future__ import annotations

from dataclasses import dataclass

from weblake.dataset.root import Dataset
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest

#: The service that costs nothing: the embedded one, as the ledger names it.
_EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class PossibleCost:
    """The most that a crawl may come to because nothing limits it."""

    pages: int
    #: Credits that one page is known to cost at most.
    price: float

    @property
    def credits(self) -> float:
        """Credits for all pages."""
        return self.pages * self.price

    def __str__(self) -> str:
        return (
            f"This crawl has no limit: it may come to up to {self.pages:,} pages, which cost up to "
            f"{self.credits:,.10g} credits."
        )


def find_possible_cost(client: FlowRunner, dataset: Dataset, request: LoadRequest) -> PossibleCost | None:
    """Return what starting a crawl without a limit may cost, or None where nothing is bought or a limit holds.

    Nothing is bought where the load has landed or was started before, and from the embedded service.
    """
    if not request.unlimited_pages or client.service == _EMBEDDED:
        return None
    last = dataset.ledger.last_start(request.load_id)
    if (last is not None and not last.void) or dataset.ledger.done_record(request.load_id) is not None:
        return None
    return PossibleCost(request.unlimited_pages, request.price)

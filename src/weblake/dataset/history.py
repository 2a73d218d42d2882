"""The history of a dataset: what has landed and what was retired, for programs that ask what is new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weblake.dataset import ledger_listing
from weblake.dataset.root import Dataset
from weblake.errors import Remedy, StorageRefused
from weblake.receipt import Receipt

_LOG = logging.getLogger("weblake.landing")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A landed load in the history of a dataset."""

    receipt: Receipt
    at: str
    #: The load that has replaced it, or None.
    replaced_by: str | None
    #: Older loads that it has replaced: a program that copies new loads has to remove these.
    replaces: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready dict: the receipt, when it landed, what it replaces, and what has replaced it."""
        more = {"landed_at": self.at, "replaces": list(self.replaces), "replaced_by": self.replaced_by}
        return self.receipt.to_dict() | more


def history(
    dataset: Dataset, since: str | None = None, *, unreadable: Callable[[str, str], None] | None = None
) -> Iterator[HistoryEntry]:
    """Yield the landed loads, oldest first; with `since`, only those that landed after that load.

    The order is that of the writers' clocks, so a caller that must not miss a load compares load ids. The whole
    ledger is read before the first load is yielded; memory holds a few numbers of each load.

    Args:
        dataset: The dataset.
        since: A load id.
        unreadable: Called with the id of each load that cannot be read and with the reason, which names the file; such
            a load is left out. By default a warning is logged.

    Raises:
        StorageRefused: The ledger cannot be listed; or load `since` has not landed, so the later loads are unknown.
    """
    replaced: dict[str, list[str]] = {}
    passed = since is None
    for load in ledger_listing.loads(dataset.ledger):
        if load.unreadable is not None:
            (unreadable or _warn)(load.load_id, load.unreadable)
        if load.done is None:
            continue
        by = load.retired.by if load.retired else None
        if by is not None:  # the done record of `by` lacks a load that landed while that record was written
            replaced.setdefault(by, []).append(load.load_id)
        older = dict.fromkeys([*load.done.retired, *replaced.pop(load.load_id, ())])
        if passed:
            yield HistoryEntry(Receipt.from_dict(load.done.receipt), load.done.at, by, tuple(older))
        passed = passed or load.load_id == since
    if not passed:
        raise StorageRefused(
            f"Load {str(since)[:40]} has not landed here.", hint=Remedy("Leave {since} out to see all loads.")
        )


def _warn(load_id: str, why: str) -> None:
    _LOG.warning("Load %s is left out: %s", load_id, why)

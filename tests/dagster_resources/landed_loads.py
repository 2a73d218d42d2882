"""Real loads, landed through the core and the embedded service, for tests of their metadata in Dagster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weblake import orchestration
from weblake.loads.load_request import Slot
from weblake.testing import WeblakeService

#: A page of the discard port, on which nothing listens. A port that a test has left may be used by another test.
REFUSED_URL = "http://127.0.0.1:9/"


def landed(
    service: WeblakeService,
    root: str,
    urls: Sequence[str],
    *,
    key: str | None = None,
    slot: str | None = None,
    fail_ratio: float = 1.0,
) -> tuple[orchestration.Dataset, orchestration.LandedLoad]:
    """Scrapes the URLs as one job and lands it; loads of one `slot` retire each other."""
    dataset = orchestration.open_dataset(root)
    load_request = orchestration.batch_request(list(urls), orchestration.Naming(key))
    if slot is not None:
        load_request = replace(load_request, slot=Slot(slot, has_partition=True))
    with service.client() as client:
        terms = orchestration.Terms(fail_ratio=fail_ratio, poll_s=0.1)
        return dataset, orchestration.land(client, dataset, load_request, terms)

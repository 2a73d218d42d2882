"""Real loads, landed through the core and the embedded service, for tests of their metadata in Dagster."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace

from weblake import orchestration
from weblake.loads.load_request import Slot
from weblake.testing import WeblakeService


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


def refusing_url() -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/"

"""An embedded service with a fake web, a client of it, and a root to land in, for tests of landed files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import fake_web

from weblake import Client
from weblake.dataset.root import Dataset, open_dataset
from weblake_service.server import LocalService


@dataclass
class LandingLab:
    service: LocalService
    client: Client
    web: Any
    root: str | Path

    @property
    def dataset(self) -> Dataset:
        """Return the dataset, opened anew each time, as another process would."""
        return open_dataset(self.root)


Lab = TypeVar("Lab", bound=LandingLab)


@contextmanager
def landing_lab(kind: type[Lab], root: str | Path) -> Iterator[Lab]:
    """Yield a lab of this kind, with its service running."""
    web = fake_web.FakeWeb()
    with LocalService(web=lambda config: web) as service, Client(service.url, service.key) as client:
        yield kind(service, client, web, root)

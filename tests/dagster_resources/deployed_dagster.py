"""Dagster as a deployment has it, with the service, a site that holds pages back, and a bucket."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dagster_lab import DagsterLab
from gated_site import GatedSite

import weblake
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

#: Pages of the asset `held`.
PAGES = 3
Lab = TypeVar("Lab", bound=DagsterLab)


@dataclass
class Environment(Generic[Lab]):
    """Dagster, the service, the site and the dataset."""

    dagster: Lab
    service: LocalService
    site: GatedSite
    root: str

    def launch(self, tags: Mapping[str, str] = {}) -> str:
        """Launches the asset `held` and returns its run when its step waits for the job."""
        before = self.started
        self.site.held(1)
        run = self.dagster.launch(["held"], tags=tags)
        self.dagster.wait_event(run, lambda event: " is scraping" in event["message"])
        assert self.started - before == 1
        return run

    def landed(self, run: str) -> dict[str, Any]:
        """The metadata of the run's only materialization."""
        (found,) = [each for each in self.dagster.materializations("held") if each.run_id == run]
        return found.metadata

    def rows(self, load_id: str) -> int:
        table = weblake.read(self.root, columns=["load_id"]).to_table()
        return table["load_id"].to_pylist().count(load_id)

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    @property
    def billed(self) -> int:
        return self.service.counts().get("pages_billed", 0)


@contextmanager
def deployed(root: str, lab: Callable[[dict[str, str]], Lab]) -> Iterator[Environment[Lab]]:
    """Start all, with the lab that a function makes of its variables, and look for the key in what Dagster wrote."""
    key, site = f"canary-{secrets.token_hex(16)}", GatedSite()
    try:
        with LocalService(keys=[ServiceKey(key)], allow_private=True) as service:
            env = {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": key, "WEBLAKE_ROOT": root, "E2E_SITE": site.url}
            env |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
            with lab(env) as dagster:
                yield Environment(dagster, service, site, root)
                site.release()
                assert dagster.grep(key) == []
    finally:
        site.close()

"""Runs that are held, killed or made to overlap, for tests of the effects on their loads.

Two concurrent runs are nested: the outer one is held at the point at which it would lose. Threads are not possible:
Dagster sets up the process's logging for each run, and two of them deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from gated_site import GatedSite
from in_process import Run

from dagster_weblake import BatchScrapeRequest, build_weblake_assets, identity
from weblake import orchestration

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])
NOW = dg.RetryPolicy(max_retries=2, delay=0)
IN_ONE = dg.BackfillPolicy.single_run()
START = {"method": "POST", "path": "/v2/batch/scrape$"}

Assets = list[dg.AssetsDefinition]


class Killed(BaseException):
    """A process that ends here."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def inside(monkeypatch: pytest.MonkeyPatch, module: object, name: str, work: Callable[[], object]) -> list[object]:
    """Does the work once, when a function is called for the first time and has done its own."""
    real, done = getattr(module, name), list[object]()

    def held(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        if not done:
            done.append(None)
            done.append(work())
        return found

    monkeypatch.setattr(module, name, held)
    return done


def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every run be a retry of one and the same, as after a crash of its worker."""

    def task(_: object, __: object, key: dg.AssetKey, partition: str | None, ___: object) -> orchestration.Task:
        return orchestration.Task(("dagster", key.to_user_string()), "root", "root", partition)

    monkeypatch.setattr(identity.Lineage, "task", task)


def batches(site: GatedSite, name: str = "parts", **how: Any) -> Assets:
    how = {"partitions_def": LETTERS, "retry_policy": None} | how
    return build_weblake_assets(name, BatchScrapeRequest(urls=site.pages(2), poll_interval=0.2), **how)


def load_of(run: Run, asset: str, partition: str | None = None) -> str:
    return str(run.metadata(asset, partition)["weblake/load_id"])


def survived(work: Callable[[], Run]) -> bool:
    try:
        return work().success
    except BaseException:  # noqa: BLE001 - whatever Dagster makes of a process that ends
        return False

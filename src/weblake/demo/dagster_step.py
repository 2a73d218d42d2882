"""The Dagster step of the demo: materializes the assets of the integration's example project in a real Dagster."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from weblake.demo import guest_process
from weblake.demo.guest_process import GuestFailed, Lake
from weblake.receipt import Receipt

#: The required modules, and the packages that install them; two assets of the example need pandas.
NEEDED, PACKAGE = ("dagster", "dagster_weblake", "pandas"), "dagster-weblake 'weblake[pandas]'"
_MODULE = "dagster_weblake.run_example"
#: Timeout of Dagster in seconds.
TIMEOUT_S = 300.0


class DagsterFailed(GuestFailed):
    """Dagster's runs of the example's assets did not succeed."""

    def __init__(self, message: str, log: Sequence[str]) -> None:
        super().__init__(message, log, "dagster-weblake")


@dataclass(frozen=True, slots=True)
class Materialized:
    """The result of the Dagster step: receipts by asset, and the numbers of assets and passed checks."""

    loads: Mapping[str, Receipt]
    assets: int
    checks: int


def missing() -> list[str]:
    """Return the modules that this step needs and that are not installed."""
    return guest_process.missing(NEEDED)


def dagster_version() -> str:
    """Return the installed Dagster's version."""
    return version("dagster")


def run(lake: Lake, other_site: str) -> Materialized:
    """Materialize the example's assets, with the other site as the partition of the assets that are partitioned by
    site.

    Raises:
        DagsterFailed: A run or a check failed, or all of it took longer than five minutes.
    """
    command = [sys.executable, "-m", _MODULE, "--site", other_site]
    try:
        ended = guest_process.run(command, _environment(lake), key=lake.key, timeout_s=TIMEOUT_S)
    except TimeoutError as late:
        raise DagsterFailed(f"Dagster took {late.args[0]}.", late.args[1]) from None
    try:
        told = json.loads(ended.out)
        failed = [*told["failed"], *told["checks"]["failed"]]
        loads = {name: Receipt.from_dict(receipt) for name, receipt in told["loads"].items()}
        made = Materialized(loads, len(told["partitions"]), told["checks"]["passed"])
    except (ValueError, LookupError, TypeError):
        raise DagsterFailed(f"Dagster ended with exit code {ended.code} and no result.", ended.log) from None
    if failed or ended.code:
        raise DagsterFailed(f"In Dagster failed: {', '.join(failed)}.", ended.log)
    return made


def _environment(lake: Lake) -> dict[str, str]:
    """Return this process's environment without Dagster settings, so that Dagster creates its own home."""
    return guest_process.own_environment("DAGSTER") | {
        "WEBLAKE_BASE_URL": lake.service,
        "WEBLAKE_API_KEY": lake.key,
        "WEBLAKE_ROOT": str(lake.root.resolve()),
        "EXAMPLE_SITE": lake.site,
    }

"""The Airflow step of the demo: runs an example DAG of the provider in a real Airflow."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from weblake.demo import guest_process
from weblake.demo.guest_process import GuestFailed, Lake
from weblake.receipt import Receipt

#: The example DAG, and its only task.
EXAMPLE, TASK = "site_crawl_by_day", "crawl"
#: The required modules, and the packages that install them.
NEEDED, PACKAGE = ("airflow", "airflow_provider_weblake"), "airflow-provider-weblake"
_MODULE = "airflow_provider_weblake.run_example"
#: Timeout of Airflow in seconds.
TIMEOUT_S = 300.0


class AirflowFailed(GuestFailed):
    """Airflow's run of the example DAG did not succeed."""

    def __init__(self, message: str, log: Sequence[str]) -> None:
        super().__init__(message, log, PACKAGE)


def missing() -> list[str]:
    """Return the modules that this step needs and that are not installed."""
    return guest_process.missing(NEEDED)


def airflow_version() -> str:
    """Return the installed Airflow's version."""
    try:
        return version("apache-airflow")
    except PackageNotFoundError:
        return version("apache-airflow-core")


def run(lake: Lake, max_credits: int) -> Receipt:
    """Run the DAG to its end and return the receipt of its load; `max_credits` limits its crawl.

    Raises:
        AirflowFailed: The run failed, or took longer than five minutes.
    """
    try:
        ended = guest_process.run(_command(lake, max_credits), _environment(lake), key=lake.key, timeout_s=TIMEOUT_S)
    except TimeoutError as late:
        raise AirflowFailed(f"Airflow took {late.args[0]}.", late.args[1]) from None
    try:
        told = json.loads(ended.out)
        if ended.code == 0:
            return Receipt.from_dict(told["returned"][TASK])
        state = told["state"]
    except (ValueError, LookupError, TypeError):
        raise AirflowFailed(f"Airflow ended with exit code {ended.code} and no result.", ended.log) from None
    raise AirflowFailed(f"The DAG {EXAMPLE} ended as {state}.", ended.log)


def _command(lake: Lake, max_credits: int) -> list[str]:
    params = json.dumps({"site": lake.site, "max_credits": max_credits})
    return [sys.executable, "-m", _MODULE, EXAMPLE, "--params", params]


def _environment(lake: Lake) -> dict[str, str]:
    """Return this process's environment without Airflow settings, so that Airflow creates its own home."""
    connection = {"conn_type": "weblake", "host": lake.service, "password": lake.key}
    return guest_process.own_environment("AIRFLOW", "_AIRFLOW") | {
        "AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection),
        "WEBLAKE_ROOT": str(lake.root.resolve()),
    }

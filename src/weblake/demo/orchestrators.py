"""The Airflow and the Dagster step of the demo: each runs an example of its integration in a process of its own.

The core imports neither: it starts a program by its module's name, which ends with the demo. The API key is only in the
environment of that program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weblake.errors import GiveUp
from weblake.receipt import Receipt

#: The example DAG, and its task that lands a load.
EXAMPLE_DAG, _TASK = "site_crawl_by_day", "crawl"
#: Timeout of a program in seconds, and the seconds that it has to end after it was asked to.
TIMEOUT_S, _GRACE_S = 300.0, 5.0
#: Maximum number of log lines that are shown of a failed run.
_MAX_LOG_LINES = 20


class OrchestratorFailed(GiveUp):
    """A run in Airflow or Dagster did not succeed; `log` has its last lines, without the key."""

    def __init__(self, message: str, log: Sequence[str], package: str) -> None:
        super().__init__(
            message,
            hint="Its last lines are above. The earlier steps are complete. Without the package "
            f"{package} the demo leaves this step out.",
        )
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class Lake:
    """The site to scrape, and the dataset to land in."""

    root: Path
    site: str
    service: str
    key: str


@dataclass(frozen=True, slots=True)
class Materialized:
    """The result of the Dagster step: receipts by asset, and the numbers of assets and passed checks."""

    loads: Mapping[str, Receipt]
    assets: int
    checks: int


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """An orchestrator and the program that runs an example in it."""

    name: str
    distribution: str
    #: The program, which prints one JSON object on standard output.
    program: str
    #: The modules that the program needs, and the packages that install them.
    needed: tuple[str, ...]
    package: str
    #: Prefixes of environment variables of another installation, which the program does not get.
    prefixes: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name and installed version."""
        return f"{self.name} {version(self.distribution)}"

    def missing(self) -> str:
        """Return what is not installed and how to install it; empty if nothing is missing."""
        names = [name for name in self.needed if find_spec(name) is None]
        return f"left out: {' and '.join(names)} not installed; pip install {self.package}" if names else ""

    def failed(self, message: str, log: Sequence[str]) -> OrchestratorFailed:
        """Return the error of a failed run."""
        return OrchestratorFailed(message, log, self.package)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, key: str
    ) -> tuple[dict[str, Any], int, list[str]]:
        """Run the program to its end, in a scratch directory that is deleted afterwards.

        Args:
            arguments: The program's arguments.
            environment: Variables to add to those of this process.
            key: The secret to remove from the log.

        Returns:
            What the program printed, decoded; its exit code; the last lines of its log.

        Raises:
            OrchestratorFailed: It took longer than five minutes, and was ended; or it printed no JSON object.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith(self.prefixes)}
        # The program's home is inside it, too, and is deleted even if the process is killed.
        with tempfile.TemporaryDirectory(prefix="weblake-demo-", ignore_cleanup_errors=True) as scratch:
            process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-m", self.program, *arguments],
                env={**own, **environment, "TMPDIR": scratch, "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=scratch,
                # Ctrl-C must reach only this process, which then ends the program: it must not get two signals.
                start_new_session=True,
            )
            try:
                out, errors = process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired as late:
                raise self.failed(f"{self.name} took longer than {TIMEOUT_S:g} s.", _lines(late.stderr, key)) from None
            finally:
                _terminate(process)
        log = _lines(errors, key)
        with suppress(ValueError):
            printed = json.loads(out)
            if isinstance(printed, dict):
                return printed, process.returncode, log
        raise self.without_result(process.returncode, log)

    def without_result(self, code: int, log: Sequence[str]) -> OrchestratorFailed:
        """Return the error of a run that printed nothing usable."""
        return self.failed(f"{self.name} ended with exit code {code} and no result.", log)


AIRFLOW = Orchestrator(
    "Airflow",
    "apache-airflow-core",
    "airflow_provider_weblake.run_example",
    ("airflow", "airflow_provider_weblake"),
    "airflow-provider-weblake",
    ("AIRFLOW", "_AIRFLOW"),
)
DAGSTER = Orchestrator(
    "Dagster",
    "dagster",
    "dagster_weblake.run_example",
    ("dagster", "dagster_weblake", "pandas"),  # two assets of the example need pandas
    "dagster-weblake 'weblake[pandas]'",
    ("DAGSTER",),
)


def run_airflow(lake: Lake, max_credits: int) -> Receipt:
    """Run the example DAG and return the receipt of its load; `max_credits` limits its crawl.

    Raises:
        OrchestratorFailed: The run failed, or took longer than five minutes.
    """
    connection = {"conn_type": "weblake", "host": lake.service, "password": lake.key}
    environment = {
        "AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection),
        "WEBLAKE_ROOT": str(lake.root.resolve()),
    }
    params = json.dumps({"site": lake.site, "max_credits": max_credits})
    printed, code, log = AIRFLOW.run([EXAMPLE_DAG, "--params", params], environment, key=lake.key)
    try:
        if code == 0:
            return Receipt.from_dict(printed["returned"][_TASK])
        state = printed["state"]
    except (LookupError, TypeError):
        raise AIRFLOW.without_result(code, log) from None
    raise AIRFLOW.failed(f"The DAG {EXAMPLE_DAG} ended as {state}.", log)


def run_dagster(lake: Lake, other_site: str) -> Materialized:
    """Materialize the example's assets; `other_site` is the partition of those that are partitioned by site.

    Raises:
        OrchestratorFailed: A run or a check failed, or all of it took longer than five minutes.
    """
    environment = {
        "WEBLAKE_BASE_URL": lake.service,
        "WEBLAKE_API_KEY": lake.key,
        "WEBLAKE_ROOT": str(lake.root.resolve()),
        "EXAMPLE_SITE": lake.site,
    }
    printed, code, log = DAGSTER.run(["--site", other_site], environment, key=lake.key)
    try:
        failed = [*printed["failed"], *printed["checks"]["failed"]]
        loads = {name: Receipt.from_dict(receipt) for name, receipt in printed["loads"].items()}
        materialized = Materialized(loads, len(printed["partitions"]), printed["checks"]["passed"])
    except (LookupError, TypeError):
        raise DAGSTER.without_result(code, log) from None
    if failed or code:
        raise DAGSTER.failed(f"In Dagster failed: {', '.join(failed)}.", log)
    return materialized


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children; do nothing if it has already ended."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_GRACE_S)
            return


def _lines(errors: bytes | None, key: str) -> list[str]:
    text = (errors or b"").decode(errors="replace").replace(key, "***")
    return [line[:500] for line in text.splitlines() if line.strip()][-_MAX_LOG_LINES:]

"""A real Airflow for one step of the demo: an example DAG of the provider, in a process of its own that ends with it.

The core knows no Airflow: it starts a program by its module's name. The API key stands in that program's environment
and nowhere else. Imports: errors, receipt.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from weblake.errors import GiveUp
from weblake.receipt import Receipt

#: The example that runs, and its one task.
EXAMPLE, TASK = "site_crawl_by_day", "crawl"
#: What has to be there, and how it gets there.
NEEDED, PACKAGE = ("airflow", "airflow_provider_weblake"), "airflow-provider-weblake"
_MODULE = "airflow_provider_weblake.run_example"
#: Seconds that Airflow may take, and that it has to end by itself when it is not wanted any more.
TIMEOUT_S, _GRACE_S = 300.0, 5.0
#: Lines that are shown of a run that failed.
_LAST_LINES = 20


class AirflowFailed(GiveUp):
    """Airflow's run of the example DAG did not succeed; `log` has the last lines of what it said."""

    def __init__(self, message: str, log: Sequence[str]) -> None:
        super().__init__(
            message,
            hint="Its last lines stand above. What had landed before is whole, and the demo leaves this step out "
            f"where {PACKAGE} is not installed.",
        )
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class Lake:
    """Where the DAG scrapes, and where it lands."""

    root: Path
    site: str
    service: str
    key: str
    max_credits: int


def missing() -> list[str]:
    """The modules that this step needs and that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def airflow_version() -> str:
    """The installed Airflow's version."""
    try:
        return version("apache-airflow")
    except PackageNotFoundError:
        return version("apache-airflow-core")


def run(lake: Lake) -> Receipt:
    """Runs the DAG to its end and returns the receipt of what it landed.

    Raises:
        AirflowFailed: The run failed, or took longer than five minutes.
    """
    # Airflow's own home lies in it, too, and is gone with it however the process ends.
    with tempfile.TemporaryDirectory(prefix="weblake-demo-airflow-", ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(  # noqa: S603  # our own module
            _command(lake),
            env=_environment(lake, scratch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=scratch,
            # Ctrl-C reaches this process alone, which then ends that one: it must not be told twice.
            start_new_session=True,
        )
        try:
            out, said = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            raise AirflowFailed(f"Airflow took longer than {TIMEOUT_S:g} s.", _lines(late.stderr, lake)) from None
        finally:
            _end(process)
    log = _lines(said, lake)
    try:
        told = json.loads(out)
        if process.returncode == 0:
            return Receipt.from_dict(told["returned"][TASK])
    except (ValueError, LookupError, TypeError):
        raise AirflowFailed(f"Airflow ended with exit code {process.returncode} and no result.", log) from None
    raise AirflowFailed(f"The DAG {EXAMPLE} ended as {told.get('state')}.", log)


def _command(lake: Lake) -> list[str]:
    params = json.dumps({"site": lake.site, "max_credits": lake.max_credits})
    return [sys.executable, "-m", _MODULE, EXAMPLE, "--params", params]


def _environment(lake: Lake, scratch: str) -> dict[str, str]:
    """Ours without any Airflow's settings: it must be the one that it makes for itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    connection = {"conn_type": "weblake", "host": lake.service, "password": lake.key}
    return kept | {
        "AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection),
        "WEBLAKE_ROOT": str(lake.root.resolve()),
        "TMPDIR": scratch,
        "NO_COLOR": "1",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and what it may have started; does nothing where it has ended."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_GRACE_S)
            return


def _lines(said: bytes | None, lake: Lake) -> list[str]:
    text = (said or b"").decode(errors="replace").replace(lake.key, "***")
    return [line[:500] for line in text.splitlines() if line.strip()][-_LAST_LINES:]


def told_missing(names: Sequence[str]) -> str:
    """One line: what is not there, and how to get it."""
    return f"left out: {' and '.join(names)} not installed; pip install {PACKAGE}"

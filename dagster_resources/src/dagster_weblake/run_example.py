"""Materializes the example project's assets against a real service, without a Dagster installation that is set up.

    WEBLAKE_BASE_URL=http://127.0.0.1:8080 WEBLAKE_API_KEY=… WEBLAKE_ROOT=$PWD/lake EXAMPLE_SITE=https://example.org/ \
        python -m dagster_weblake.run_example

Dagster gets a temporary home with its databases, which is removed at the end, and sends no telemetry. Its log goes to
standard error; standard output gets one JSON object, `{"state", "failed", "loads": {asset: receipt}, "partitions":
{asset: how many}, "checks": {"passed", "failed": [name]}}`. The exit code is 0 if all has succeeded.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg

PROJECT = Path(__file__).with_name("example_project")
#: Required environment variables; their values are used by the example and the resource.
SETTINGS = ("WEBLAKE_BASE_URL", "WEBLAKE_API_KEY", "WEBLAKE_ROOT", "EXAMPLE_SITE")
#: The assets of each run: without partitions, for one site, and for all months.
SITE, SITES, ACCOUNT = (
    ("site_pages", "watch_list", "watched_pages", "page_report", "sites"),
    ("site_documents_job", "site_documents"),
    ("usage", "activity"),
)
#: Assets that not every service can land: one needs a browser, the other permission to run code in it.
BROWSER = {"pictures": ("page_pictures",), "visit": ("page_visit",)}
#: The tag that Dagster puts on a run of several partitions.
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
#: Settings without telemetry, and a log that has only the events.
_INSTANCE = "telemetry: {enabled: false}\nnux: {enabled: false}\npython_logs: {python_log_level: INFO}\n"
#: Settings without durability: a database that lives for a minute need not survive a power failure.
_FAST_SQLITE = "PRAGMA synchronous = OFF"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dagster_weblake.run_example", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--site", metavar="URL", action="append", help="a site that is a partition; EXAMPLE_SITE where none is given"
    )
    parser.add_argument(
        "--browser",
        choices=[*BROWSER],
        action="append",
        default=[],
        help="materializes page_pictures or page_visit, too: the service needs a browser, and for a visit "
        "--allow-code-execution",
    )
    given = parser.parse_args(arguments)
    sites: list[str] | None = given.site
    unset = [name for name in SETTINGS if not os.environ.get(name)]
    if unset:
        parser.error(f"{', '.join(unset)} must be set in the environment")
    # Dagster creates many long-lived objects at start; repeated collections of them take a tenth of the start.
    gc.set_threshold(200_000, 20, 50)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the home is removed on SIGTERM, too
    with tempfile.TemporaryDirectory(prefix="weblake-dagster-", ignore_cleanup_errors=True) as home:
        (Path(home) / "dagster.yaml").write_text(_INSTANCE)
        os.environ["DAGSTER_HOME"] = home
        with redirect_stdout(sys.stderr):
            outcome = run(sites or [os.environ["EXAMPLE_SITE"]], given.browser)
    print(json.dumps(outcome, default=str))  # noqa: T201
    return 0 if outcome["state"] == "success" else 1


def run(sites: Sequence[str], browser: Sequence[str] = ()) -> dict[str, object]:
    """Materialize everything in the environment's instance, with the sites as partitions; return the summary.

    Args:
        sites: Start URLs of crawls.
        browser: Keys of BROWSER, whose assets are materialized as well.
    """
    import dagster as dg

    sys.path.insert(0, str(PROJECT))
    definitions = dg.load_from_defs_folder(path_within_project=PROJECT)
    _without_sync()
    months = _keys(definitions, "usage")
    with dg.DagsterInstance.get() as instance:
        ran = _Ran(definitions, instance)
        ran.materialize(SITE, config={"ops": {"sites": {"config": {"sites": [*sites]}}}})
        for site in sites:
            ran.materialize(SITES, partition=site)
        for name in browser:
            ran.materialize(BROWSER[name])
        ran.materialize(ACCOUNT, tags={_RANGE[0]: months[0], _RANGE[1]: months[-1]})
    return ran.to_dict()


@dataclass
class _Ran:
    """The runs of the example, and their results."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    failed: list[str] = field(default_factory=list)
    loads: dict[str, object] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)

    def materialize(
        self,
        assets: Sequence[str],
        *,
        partition: str | None = None,
        config: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Run these assets and their checks, unless an earlier run has failed."""
        import dagster as dg

        if self.failed:
            return
        result = self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(name) for name in assets],
            partition_key=partition,
            run_config=dict(config or {}),
            tags=dict(tags or {}),
            raise_on_error=False,
        )
        for failure in result.get_step_failure_events():
            said = failure.step_failure_data
            why = said.user_failure_data.description if said.user_failure_data else said.error_display_string
            # Repeated at the end, because the log shows it above a long traceback.
            print(f"{failure.step_key}: {why}", file=sys.stderr)  # noqa: T201
            self.failed.append(failure.step_key or "")
        if not result.success and not self.failed:
            self.failed.append(", ".join(assets))
        for event in result.get_asset_materialization_events():
            made = event.materialization
            name = made.asset_key.to_user_string()
            self.partitions[name] = self.partitions.get(name, 0) + 1
            receipt = _receipt_of(made.metadata)
            if receipt is not None:
                self.loads[name] = receipt
        for check in result.get_asset_check_evaluations():
            self.checks[f"{check.asset_key.to_user_string()}:{check.check_name}"] = check.passed

    def to_dict(self) -> dict[str, object]:
        """Return the summary that is printed."""
        bad = [name for name, passed in self.checks.items() if not passed]
        return {
            "state": "failure" if self.failed else "success",
            "failed": self.failed,
            "loads": self.loads,
            "partitions": self.partitions,
            "checks": {"passed": len(self.checks) - len(bad), "failed": bad},
        }


def _receipt_of(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, object] | None:
    """Return the receipt of the load that was landed; None for other materializations, such as of started jobs."""
    from weblake import orchestration

    load_id, root = metadata.get("weblake/load_id"), metadata.get("weblake/root")
    if load_id is None or root is None or "weblake/stored" not in metadata:
        return None
    landing = orchestration.LoadState(orchestration.open_dataset(str(root.value)), str(load_id.value)).landed
    return None if landing is None else landing.receipt.to_dict()


def _keys(definitions: dg.Definitions, asset: str) -> Sequence[str]:
    """Return the partitions of an asset."""
    (spec,) = (spec for spec in definitions.resolve_all_asset_specs() if spec.key.to_user_string() == asset)
    if spec.partitions_def is None:
        raise RuntimeError(f"{asset} has no partitions.")
    return spec.partitions_def.get_partition_keys()


def _without_sync() -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    @event.listens_for(Engine, "connect")
    def quick(connection: object, _: object) -> None:
        connection.execute(_FAST_SQLITE)  # type: ignore[attr-defined]


if __name__ == "__main__":
    raise SystemExit(main())

"""Materializes the example project's assets against a real service, without a Dagster installation that is set up.

    WEBLAKE_BASE_URL=http://127.0.0.1:8900 WEBLAKE_API_KEY=… WEBLAKE_ROOT=$PWD/lake EXAMPLE_SITE=https://example.org/ \
        python -m dagster_weblake.run_example

Dagster gets a temporary home with its databases, which is removed at the end, and sends no telemetry. Its log goes to
standard error; standard output gets one JSON object, `{"state", "failed", "loads": {asset: receipt}, "partitions":
{asset: how many}, "checks": {"passed", "failed": [name]}}`. The exit code is 0 if all has succeeded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dagster as dg

PROJECT = Path(__file__).with_name("example_project")
#: Required environment variables; their values are used by the example and the resource.
SETTINGS = ("WEBLAKE_BASE_URL", "WEBLAKE_API_KEY", "WEBLAKE_ROOT", "EXAMPLE_SITE")
#: The assets of each run: without partitions, for one site, and for all months.
SITE, SITES, ACCOUNT = (
    ("site_pages", "watch_list", "watched_pages", "page_report", "site_map", "new_pages", "sites"),
    ("site_documents_job", "site_documents"),
    ("usage", "activity"),
)
#: Assets that not every service can land: one needs a browser, the other permission to run code in it.
BROWSER = {"pictures": ("page_pictures",), "visit": ("page_visit",)}
#: The tags that Dagster puts on a run of several partitions.
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
#: Settings without telemetry, and a log that has only the events.
_INSTANCE = "telemetry: {enabled: false}\nnux: {enabled: false}\npython_logs: {python_log_level: INFO}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dagster_weblake.run_example", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--site", metavar="URL", action="append", help="a site that is a partition; default: EXAMPLE_SITE"
    )
    parser.add_argument(
        "--browser",
        choices=[*BROWSER],
        action="append",
        default=[],
        help="also materializes page_pictures or page_visit, which need a browser, and page_visit "
        "--allow-code-execution",
    )
    given = parser.parse_args(arguments)
    sites: list[str] | None = given.site
    unset = [name for name in SETTINGS if not os.environ.get(name)]
    if unset:
        parser.error(f"{', '.join(unset)} must be set in the environment")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the home is removed on SIGTERM, too
    with tempfile.TemporaryDirectory(prefix="weblake-dagster-", ignore_cleanup_errors=True) as home:
        (Path(home) / "dagster.yaml").write_text(_INSTANCE)
        os.environ["DAGSTER_HOME"] = home
        with redirect_stdout(sys.stderr):
            outcome = run(sites or [os.environ["EXAMPLE_SITE"]], given.browser)
    print(json.dumps(outcome, default=str))  # noqa: T201
    return 0 if outcome["state"] == "success" else 1


def run(sites: Sequence[str], browser: Sequence[str] = ()) -> dict[str, Any]:
    """Materialize everything in the environment's instance, with the sites as partitions; return the summary.

    Args:
        sites: Start URLs of crawls.
        browser: Keys of BROWSER, whose assets are materialized as well.
    """
    import dagster as dg

    sys.path.insert(0, str(PROJECT))
    definitions = dg.load_from_defs_folder(path_within_project=PROJECT)
    job = definitions.resolve_implicit_global_asset_job_def()
    usage = definitions.resolve_asset_graph().get(dg.AssetKey("usage")).partitions_def
    months = [] if usage is None else usage.get_partition_keys()
    chosen = {"ops": {"sites": {"config": {"sites": [*sites]}}}}
    runs: list[tuple[Sequence[str], dict[str, Any]]] = [
        (SITE, {"run_config": chosen}),
        *((SITES, {"partition_key": site}) for site in sites),
        *((BROWSER[name], {}) for name in browser),
        (ACCOUNT, {"tags": {_RANGE[0]: months[0], _RANGE[1]: months[-1]}}),
    ]
    outcome: dict[str, Any] = {"state": "success", "failed": [], "loads": {}, "partitions": {}}
    checks: dict[str, bool] = {}
    with dg.DagsterInstance.get() as instance:
        for assets, how in runs:
            keys = [dg.AssetKey(name) for name in assets]
            result = job.execute_in_process(instance=instance, asset_selection=keys, raise_on_error=False, **how)
            _add(outcome, result)
            checks |= {
                f"{each.asset_key.to_user_string()}:{each.check_name}": each.passed
                for each in result.get_asset_check_evaluations()
            }
            if not result.success:
                outcome["state"] = "failure"
                outcome["failed"] = outcome["failed"] or [", ".join(assets)]
                break
    failed = [name for name, passed in checks.items() if not passed]
    return {**outcome, "checks": {"passed": len(checks) - len(failed), "failed": failed}}


def _add(outcome: dict[str, Any], result: dg.ExecuteInProcessResult) -> None:
    """Add the failures and the materializations of a run to the summary, with the receipts of loads that landed."""
    from dagster_weblake import WeblakeMetadataSet
    from weblake import Receipt, orchestration

    for failure in result.get_step_failure_events():
        data = failure.step_failure_data
        why = data.user_failure_data.description if data.user_failure_data else data.error_display_string
        # Repeated at the end, because the log shows it above a long traceback.
        print(f"{failure.step_key}: {why}", file=sys.stderr)  # noqa: T201
        outcome["failed"].append(failure.step_key)
    for event in result.get_asset_materialization_events():
        name = event.materialization.asset_key.to_user_string()
        outcome["partitions"][name] = outcome["partitions"].get(name, 0) + 1
        load = WeblakeMetadataSet.extract(event.materialization.metadata)
        if load.stored is not None:  # not of a job that was only started, or of a report
            receipt = Receipt("", str(load.kind), complete=True, fresh=load.fresh or 0)
            if load.load_id is not None:  # a materialization with nothing due names no load
                state = orchestration.LoadState(orchestration.open_dataset(str(load.root)), load.load_id)
                assert state.landed is not None
                receipt = state.landed.receipt
            outcome["loads"][name] = receipt.to_dict()


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs the alert rules and the dashboard's queries in promtool, on series as processes make them.

promtool is part of the Debian package `prometheus`.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
#: The label by which a process has series of its own, if its resource has a `service.instance.id`.
A, B = 'instance="a"', 'instance="b"'


def promtool(tmp_path: Path, series: dict[str, str], interval: str = "1m", **checks: object) -> None:
    """Fail if the series do not lead to the expected alerts or values; the checks are in promtool's own format."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": interval, "input_series": given, **checks}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts(tmp_path: Path, alert: str, series: dict[str, str], at: dict[str, str | None], interval: str = "1m") -> None:
    """Check whether an alert fires at some times: with which summary, or None for no alert."""
    annotations, labels = RULES[alert]["annotations"], RULES[alert]["labels"]
    group = re.search(r'(kind|report|root)="(\w+)"', next(iter(series)))
    assert group is not None

    def expected(summary: str) -> dict[str, Any]:
        return {
            "exp_labels": {**labels, group[1]: group[2]},
            "exp_annotations": {**annotations, "summary": summary},
        }

    checks = [
        {"eval_time": time, "alertname": alert, "exp_alerts": [expected(summary)] if summary else []}
        for time, summary in at.items()
    ]
    promtool(tmp_path, series, interval, alert_rule_test=checks)


REFUSED = "A load of kind crawl was read and not published, because it is not complete or all of its pages failed."


@pytest.mark.parametrize(
    ("values", "at"),
    [
        # A process that ends soon: its series is there for some minutes.
        ("_x30 1x9 _x200", {"29m": None, "32m": REFUSED, "80m": REFUSED, "115m": None}),
        # The same each hour, without a `service.instance.id`: the series are one, with gaps.
        ("1x9 _x49 1x9 _x49 1x9 _x200", {"5m": REFUSED, "63m": REFUSED, "123m": REFUSED, "215m": None}),
        # A process that goes on.
        ("1x200 2x300", {"5m": REFUSED, "190m": None, "203m": REFUSED, "290m": None}),
        ("0x100", {"5m": None, "90m": None}),
    ],
)
def test_a_refused_load_is_alerted_for_an_hour(tmp_path: Path, values: str, at: dict[str, str | None]) -> None:
    alerts(tmp_path, "WeblakeLoadRefused", {f'weblake_loads_total{{outcome="refused",kind="crawl",{A}}}': values}, at)


def test_loads_that_land_give_no_alert(tmp_path: Path) -> None:
    series = {f'weblake_loads_total{{outcome="landed",kind="crawl",{A}}}': "1x9 2x9"}
    alerts(tmp_path, "WeblakeLoadRefused", series, {"5m": None, "15m": None})


def test_a_budget_that_is_nearly_spent_is_alerted_until_the_next_report(tmp_path: Path) -> None:
    series = {f'weblake_usage{{report="credits",{A}}}': "80 _x23 95 _x60"}
    budget = {f'weblake_usage_budget{{report="credits",{B}}}': "100 _x23 100 _x60"}
    summary = "More than 90 % of the month's budget of credits is used (95)."
    at = {"1h": None, "25h": summary, "49h": summary, "52h": None}
    alerts(tmp_path, "WeblakeBudgetNearlySpent", {**series, **budget}, at, "1h")


def test_an_orphan_of_more_than_a_day_is_alerted_until_the_next_listing(tmp_path: Path) -> None:
    series = {f'weblake_orphans_oldest_seconds{{root="lake",{A}}}': "40000 _x23 126400 _x23 0 _x40"}
    summary = "A load of lake was started more than a day ago and has not landed."
    at = {"1h": None, "25h": summary, "47h": summary, "49h": None}
    alerts(tmp_path, "WeblakeOrphanOlderThanADay", series, at, "1h")


def queries() -> list[str]:
    """The queries of the dashboard that plot counters, for an interval of five minutes."""
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query.replace("$__rate_interval", "5m") for query in found if "$__rate_interval" in query]


@pytest.mark.parametrize("query", queries())
def test_the_dashboard_shows_what_processes_that_end_soon_have_counted(tmp_path: Path, query: str) -> None:
    """Each of two processes is read once or twice; a third one was there before."""
    name = re.search(r"weblake_\w+", query)
    group = re.search(r"by \((\w+)\)", query)
    assert name is not None
    label = "" if group is None else f'{group[1]}="{2 if group[1] == "le" else "x"}",'
    series = {f"{name[0]}{{{label}{A}}}": "_x10 3x1 _x60", f"{name[0]}{{{label}{B}}}": "_x11 1 4 _x60"}
    series[f'{name[0]}{{{label}instance="c"}}'] = "7x70"
    value, labels = 7.0, "{}" if group is None else f'{{{group[1]}="x"}}'
    if group is not None and group[1] == "le":  # seven waits of 2 to 5 s
        series |= {
            each.replace('le="2"', f'le="{bound}"'): values for each, values in series.items() for bound in (5, "+Inf")
        }
        series |= {each: re.sub(r"[1-9]+(?=x| |$)", "0", values) for each, values in series.items() if 'le="2"' in each}
        share = float(query.split("(")[1].split(",")[0])
        value, labels = 2 + 3 * share, "{}"
    sample = {"labels": labels, "value": value}
    promtool(tmp_path, series, promql_expr_test=[{"expr": query, "eval_time": "14m", "exp_samples": [sample]}])

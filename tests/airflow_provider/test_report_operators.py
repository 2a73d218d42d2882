"""Tests of usage and activity, run by Airflow itself with `dag.test()` on the embedded service, read with DuckDB."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from airflow.sdk import AssetAlias, BaseOperator
from dag_runs import Run, returned, run_one, task_logs

from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

if TYPE_CHECKING:
    from gated_site import GatedSite

USAGE = "/v2/team/(credit|token)-usage/historical"


def events(run: Any) -> dict[str, dict[str, Any]]:
    """The asset events of a run: their extra by the asset's address."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = (
            select(AssetModel.uri, AssetEvent.extra)
            .join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
            .where(AssetEvent.source_dag_id == run.dag_id)
        )
        return {row.uri: row.extra for row in session.execute(found)}


def paid(service: WeblakeService, site: GatedSite, pages: int) -> None:
    with service.client() as client:
        for url in site.pages(pages):
            client.scrape(url)


def reported(service: WeblakeService, *periods: dict[str, object]) -> None:
    """Set the usage that the service reports from now on."""
    body = {"success": True, "periods": list(periods)}
    service.faults({"match": {"path": USAGE}, "times": None, "effect": {"status": 200, "body": body}})


def month(back: int = 0) -> str:
    now = datetime.now(timezone.utc)
    count = now.year * 12 + now.month - 1 - back
    return f"{count // 12}-{count % 12 + 1:02}"


def period(back: int, total: float, **more: object) -> dict[str, object]:
    end = f"{month(back - 1)}-01T00:00:00.000Z"
    return {"startDate": f"{month(back)}-01T00:00:00.000Z", "endDate": end, "totalCredits": total, **more}


@pytest.mark.parametrize(("report", "factor"), [("credits", 1), ("tokens", 15)])
def test_usage_lands_one_file_a_month_and_updates_its_asset(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, report: str, factor: int
) -> None:
    from airflow_provider_weblake.assets.weblake import weblake_asset
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    paid(weblake_connection, site, 3)
    asset = weblake_asset(tmp_path, "usage_periods", name=f"usage-{uuid.uuid4().hex}")

    def make() -> BaseOperator:
        return WeblakeUsageOperator(
            task_id="usage", report="{{ params.what }}", params={"what": report}, to=str(tmp_path), outlets=[asset]
        )

    run = run_one(run_dag, make)
    assert run.state == "success"
    told = returned(run, "usage")
    path = f"usage_periods/report={report}/period={month()}/usage.parquet"
    assert told == {
        "report": report,
        "periods": [{"period": month(), "total": 3.0 * factor, "rows": 1}],
        **{"total_current": 3.0 * factor, "over_budget": False, "split": True},
        "files": [{"path": path, "rows": 1, "bytes": (tmp_path / path).stat().st_size}],
    }
    assert events(run) == {asset.uri: told}
    paid(weblake_connection, site, 2)
    again = returned(run_one(run_dag, make), "usage")
    assert again["total_current"] == 5.0 * factor
    column = f"total_{report}"
    rows = duckdb.sql(f"select {column}, report, period from '{tmp_path}/usage_periods/**/*.parquet'").fetchall()
    assert [(row[0], row[1], str(row[2])[:7]) for row in rows] == [(5.0 * factor, report, month())]


@pytest.mark.parametrize(("budget", "over"), [(3, False), ("{{ params.most }}", True), (0, True)])
def test_an_exceeded_budget_warns_and_fails_on_request_only(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    budget: float | str | None,
    over: bool,
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    paid(weblake_connection, site, 3)

    def make(fail: bool) -> BaseOperator:
        return WeblakeUsageOperator(
            task_id="usage",
            to=str(tmp_path),
            budget=budget,
            params={"most": 2.5},
            fail_over_budget=fail,
            retries=2,
            retry_delay=timedelta(0),
        )

    run = run_one(run_dag, lambda: make(fail=False))
    assert run.state == "success"
    assert returned(run, "usage")["over_budget"] is over
    assert ("over the budget" in task_logs(capfd)) is over
    asked = len(weblake_connection.requests())
    run = run_one(run_dag, lambda: make(fail=True))
    assert run.state == ("failed" if over else "success")
    assert len(weblake_connection.requests()) == asked + 1
    if over:
        assert "3 credits are used in the running month" in task_logs(capfd)
    assert len(list(tmp_path.glob("usage_periods/**/*.parquet"))) == 1


@pytest.mark.parametrize(
    ("given", "total", "over"),
    [
        ("{{ macros.ds_add(params.next ~ '-01', -1) }}", 30, True),
        (month(2), 20, False),
    ],
)
def test_the_budget_is_compared_with_the_period_of_the_run(
    run_dag: Run,
    weblake_connection: WeblakeService,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    given: str,
    total: float,
    over: bool,
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    reported(weblake_connection, period(0, 4), period(1, 10), period(1, 20, apiKey="web"), period(2, 20))
    run = run_one(
        run_dag,
        lambda: WeblakeUsageOperator(
            task_id="usage",
            period=given,
            budget=25,
            to=str(tmp_path),
            params={"next": month(0)},
        ),
    )
    told = returned(run, "usage")
    assert (told["total"], told["over_budget"], told["total_current"]) == (total, over, 4.0)
    assert (f"30 credits are used in {month(1)}, over the budget of 25" in task_logs(capfd)) is over


def test_activity_lands_by_day_and_is_merged(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeActivityOperator

    alias = AssetAlias(f"activity-{uuid.uuid4().hex}")

    def make(**more: Any) -> BaseOperator:
        return WeblakeActivityOperator(
            task_id="activity", to=str(tmp_path / "{{ dag.owner }}"), outlets=[alias], **more
        )

    root = tmp_path / "airflow"
    assert returned(run_one(run_dag, make), "activity") == {"entries": 0, "files": []}
    paid(weblake_connection, site, 3)
    with weblake_connection.client() as client:
        client.map_site(f"{site.url}/")
    run = run_one(run_dag, lambda: make(endpoint="{{ params.kind }}", params={"kind": "scrape"}))
    told = returned(run, "activity")
    assert told["entries"] == 3
    assert [file["rows"] for file in told["files"]] == [3]
    (address,) = events(run)
    assert address.startswith("weblake://file/")
    assert address.endswith("/airflow/activity")
    assert events(run)[address] == told
    told = returned(run_one(run_dag, make), "activity")
    assert told["entries"] == 4
    rows = duckdb.sql(f"select endpoint, count(*) from '{root}/activity/**/*.parquet' group by 1 order by 1").fetchall()
    assert rows == [("map", 1), ("scrape", 3)]
    assert {path.name for path in (root / "activity").rglob("*") if path.is_file()} == {"activity.parquet"}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", report="pages", to=root), "no report of 'pages'"),
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", budget="much", to=root), "budget is 'much'"),
        (lambda ops, root: ops.WeblakeActivityOperator(task_id="it", endpoint="nothing", to=root), "endpoint"),
        (lambda ops, root: ops.WeblakeActivityOperator(task_id="it", to=""), "`to` is empty"),
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", period="October"), "period is 'October'"),
    ],
)
def test_invalid_parameters_are_refused_before_any_request(
    run_dag: Run,
    weblake_connection: WeblakeService,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    make: Callable[[Any, str], BaseOperator],
    told: str,
) -> None:
    from airflow_provider_weblake.operators import weblake as operators

    run = run_one(run_dag, lambda: make(operators, str(tmp_path)))
    assert run.state == "failed"
    assert told in task_logs(capfd)
    assert weblake_connection.requests() == []

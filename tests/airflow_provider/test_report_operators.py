"""Tests of usage and activity, run by Airflow itself with `dag.test()` on the embedded service, read with DuckDB."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from airflow.sdk import Asset, AssetAlias, BaseOperator
from dag_runs import Run, returned, run_one, task_logs

from weblake.testing import WeblakeService

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


def test_by_key_many_months_and_two_keys_of_one_name(
    run_dag: Run, weblake_connection: WeblakeService, tmp_path: Path
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    months = [period(back, back, apiKey=key) for back in range(1, 15) for key in ("etl", "web")]
    reported(
        weblake_connection, *months, period(0, 1, apiKey="etl"), period(0, 2, apiKey="etl"), period(0, 3, apiKey="web")
    )
    run = run_one(run_dag, lambda: WeblakeUsageOperator(task_id="usage", by_api_key=True, to=str(tmp_path)))
    told = returned(run, "usage")
    assert told["report"] == "credits_by_key"
    assert told["total_current"] == 6.0
    assert told["periods"] == [
        {"period": month(), "total": 6.0, "rows": 2},
        *({"period": month(back), "total": 2.0 * back, "rows": 2} for back in range(1, 12)),
    ]
    assert [file["path"].split("/")[2] for file in told["files"]] == [f"period={month(back)}" for back in range(12)]
    rows = duckdb.sql(f"select count(*), count(distinct period) from '{tmp_path}/usage_periods/**/*.parquet'")
    assert rows.fetchall() == [(30, 15)]


def test_a_service_that_does_not_split_by_key_is_reported(
    run_dag: Run, weblake_connection: WeblakeService, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    reported(weblake_connection, period(0, 4))
    run = run_one(run_dag, lambda: WeblakeUsageOperator(task_id="usage", by_api_key=True))
    assert returned(run, "usage")["split"] is False
    assert returned(run, "usage")["files"] == []
    assert "did not split the report by API key" in task_logs(capfd)


def test_the_running_period_need_not_be_a_month(run_dag: Run, weblake_connection: WeblakeService) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    def day(days: int) -> str:
        return (datetime.now(timezone.utc) + timedelta(days=days)).isoformat()

    reported(
        weblake_connection,
        {"startDate": day(-80), "endDate": day(-45), "totalCredits": 100},
        {"startDate": day(-45), "endDate": day(+2), "totalCredits": 7},
    )
    run = run_one(run_dag, lambda: WeblakeUsageOperator(task_id="usage"))
    assert returned(run, "usage")["total_current"] == 7.0
    reported(weblake_connection, period(1, 50), period(2, 60))
    run = run_one(run_dag, lambda: WeblakeUsageOperator(task_id="usage", budget=1))
    told = returned(run, "usage")
    assert (told["total_current"], told["over_budget"]) == (0.0, False)


@pytest.mark.parametrize(
    ("budget", "over"), [(2, True), (3, False), ("{{ params.most }}", True), (None, False), (0, True)]
)
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
        ("{{ params.month }}", 30, True),
        ("{{ params.month }}-28", 30, True),
        ("{{ params.month }}-01T00:00:00+00:00", 30, True),
        ("{{ macros.ds_add(params.next ~ '-01', -1) }}", 30, True),
        (month(2), 20, False),
        (month(7), 0, False),
        (month(0), 4, False),
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
            params={"month": month(1), "next": month(0)},
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
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", budget="nan", to=root), "budget is 'nan'"),
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", to="ftp://host/lake"), "not a storage that weblake"),
        (lambda ops, root: ops.WeblakeActivityOperator(task_id="it", endpoint="nothing", to=root), "endpoint"),
        (lambda ops, root: ops.WeblakeActivityOperator(task_id="it", to=""), "`to` is empty"),
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", period="October"), "period is 'October'"),
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", period="2026-13"), "period is '2026-13'"),
        (lambda ops, root: ops.WeblakeUsageOperator(task_id="it", period="None"), "period is 'None'"),
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


def test_openlineage_gets_the_landed_files(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeUsageOperator

    paid(weblake_connection, site, 1)
    facets: list[Any] = []

    class Told(WeblakeUsageOperator):
        def execute(self, context: Any) -> dict[str, object]:
            assert self.get_openlineage_facets_on_complete(None) is None
            done = super().execute(context)
            facets.append(self.get_openlineage_facets_on_complete(None))
            return done

    run = run_one(run_dag, lambda: Told(task_id="usage", to=str(tmp_path), outlets=[Asset(f"a-{uuid.uuid4().hex}")]))
    assert run.state == "success"
    (output,) = facets[0].outputs
    assert (output.namespace, output.name) == ("file", f"{tmp_path}/usage_periods")
    assert output.outputFacets["outputStatistics"].rowCount == 1
    assert "total_credits" in [field.name for field in output.facets["schema"].fields]

"""Tests of map and interact, run by Airflow itself with `dag.test()` on the embedded service.

The service has no browser and answers 503. Responses of a browser are injected as faults, so that they pass through a
real socket and the real client.
"""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator
from catalogue import proves
from dag_runs import Run, returned, run_one, task_logs
from held_requests import held_requests
from polling import until

from weblake import orchestration
from weblake.errors import GiveUp, OutcomeUnknown, RateLimited
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    from gated_site import GatedSite

__all__ = ["held_requests"]

SCRAPE = "0198a7c0-1111-7000-8000-000000000001"


def sent(service: WeblakeService, path: str) -> list[str]:
    return [str(each["method"]) for each in service.requests() if str(each["path"]).endswith(path)]


def interacting(
    service: WeblakeService, reply: dict[str, object], *, after_ms: int = 0, stop: dict[str, object] | None = None
) -> None:
    """A browser that answers this, and another way of ending it than well."""
    ended: dict[str, object] = {"body": {"success": True, "sessionDurationMs": 90_500, "creditsBilled": 3}}
    run = reply if "drop_after" in reply else {"status": 200, "latency_ms": after_ms, **reply}
    service.faults(
        {"match": {"method": "POST", "path": "/interact$"}, "times": None, "effect": run},
        {
            "match": {"method": "DELETE", "path": "/interact$"},
            "times": None,
            "effect": {"status": 200, **(stop or ended)},
        },
    )


def mapped(service: WeblakeService, links: list[object], **more: object) -> None:
    # As text, for a lone surrogate is an escape that no encoder of bytes would write.
    body = json.dumps({"success": True, "links": links, **more})
    service.faults({"match": {"method": "POST", "path": "/v2/map$"}, "effect": {"status": 200, "body": body}})


def test_a_map_of_a_site_is_a_list_in_xcom(run_dag: Run, weblake_connection: WeblakeService, site: GatedSite) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeMapOperator

    options = {"sitemap": "skip", "limit": 4}
    run = run_one(run_dag, lambda: WeblakeMapOperator(task_id="map", url=f"{site.url}/", options=options))
    assert run.state == "success"
    urls = returned(run, "map")
    assert len(urls) == 4
    assert set(urls) <= {f"{site.url}/", *site.pages(5)}


def test_a_map_in_a_file_is_what_the_batch_operator_reads(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator, WeblakeMapOperator

    def make() -> BaseOperator:
        lists = f"{tmp_path}/{{{{ dag.dag_id }}}}/list.txt"
        found = WeblakeMapOperator(task_id="map", url="{{ params.site }}", params={"site": site.url}, to=lists)
        land = WeblakeBatchScrapeOperator(
            task_id="land", urls="{{ ti.xcom_pull('map')['file'] }}", to=str(tmp_path / "lake"), poll_interval=0.5
        )
        found >> land
        return land

    run = run_one(run_dag, make)
    assert run.state == "success"
    told = returned(run, "map")
    assert told["file"] == str(tmp_path / run.dag_id / "list.txt")
    urls = orchestration.read_urls(told["file"])
    assert len(urls) == told["count"] == returned(run, "land")["submitted"] >= 5
    assert set(site.pages(5)) <= set(urls)


def test_hostile_links_stay_one_a_line(
    run_dag: Run, weblake_connection: WeblakeService, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeMapOperator

    links = [
        {"url": "https://a.example/1\n# not mine\r\nhttps://b.example/", "title": 'One, "two"\nthree'},
        {"url": " https://a.example/\u2028x\u0085y z "},
        *({"url": "# a comment"}, {"title": "no address"}, {"url": ""}, "no object"),
        {"url": "https://a.example/ü?q=1#part", "description": "\ud800"},
    ]
    expected = [
        "https://a.example/1%0A#%20not%20mine%0D%0Ahttps://b.example/",
        "https://a.example/%E2%80%A8x%C2%85y%20z",
        "https://a.example/ü?q=1#part",
    ]
    mapped(weblake_connection, links, warning="Only the first ones.")
    file = tmp_path / "list.txt"
    run = run_one(run_dag, lambda: WeblakeMapOperator(task_id="map", url="a.example", to=str(file)))
    assert returned(run, "map") == {"count": 3, "file": str(file)}
    assert orchestration.read_urls(str(file)) == expected
    assert "Only the first ones." in task_logs(capfd)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"options": {"limit": 0}}, "limit"),
        ({"options": {"limit": "{{ params.get('no_such') }}"}}, "`limit` is None, not an integer"),
        ({"to": "s3://no_such@bucket/list.txt"}, "no Airflow connection"),
        ({"to": "/tmp/list.csv"}, "Name the file with .txt"),
        ({"to": "{{ dag_run.conf.get('file') }}"}, "`to` is 'None'"),
    ],
)
def test_invalid_parameters_are_refused_before_a_payment(
    run_dag: Run,
    weblake_connection: WeblakeService,
    capfd: pytest.CaptureFixture[str],
    given: dict[str, Any],
    told: str,
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeMapOperator

    run = run_one(run_dag, lambda: WeblakeMapOperator(task_id="map", url="a.example", **given))
    assert run.state == "failed"
    assert told in task_logs(capfd)
    assert sent(weblake_connection, "/v2/map") == []


def test_a_response_is_returned_and_the_browser_is_closed(run_dag: Run, weblake_connection: WeblakeService) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    body = {"success": True, "output": "42 pages", "result": "<p>", "exitCode": 0, "killed": False, "stderr": None}
    doors = {"liveViewUrl": "https://live", "interactiveLiveViewUrl": "https://in", "cdpUrl": "wss://cdp"}
    interacting(weblake_connection, {"body": body | doors})
    run = run_one(
        run_dag,
        lambda: WeblakeInteractOperator(
            task_id="do",
            scrape_id="{{ params.id }}",
            params={"id": SCRAPE, "seconds": 60},
            prompt="Count",
            timeout="{{ params.seconds }}",
        ),
    )
    assert run.state == "success"
    assert returned(run, "do") == {
        "scrape_id": SCRAPE,
        **{"success": True, "output": "42 pages", "result": "<p>", "exit_code": 0, "killed": False},
        **{"stopped": True, "session_seconds": 90.5, "credits_billed": 3},
    }
    assert sent(weblake_connection, f"/{SCRAPE}/interact") == ["POST", "DELETE"]


def test_a_long_response_needs_a_file(
    run_dag: Run, weblake_connection: WeblakeService, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    body = {"success": True, "result": "ü" * 40_000, "exitCode": 0, "liveViewUrl": "https://live"}
    interacting(weblake_connection, {"body": body})
    run = run_one(run_dag, lambda: WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1"))
    assert run.state == "failed"
    assert "Set `to` to a file" in task_logs(capfd)
    assert sent(weblake_connection, "/interact") == ["POST", "DELETE"]

    file = tmp_path / "reply.json"
    run = run_one(run_dag, lambda: WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1", to=str(file)))
    told = returned(run, "do")
    assert json.loads(file.read_text()) == {name: body[name] for name in ("success", "result", "exitCode")}
    assert (told["file"], told["bytes"]) == (str(file), file.stat().st_size)
    assert "result" not in told


def interact_once(*, retries: int = 0, **more: Any) -> dict[str, object]:
    """Execute the operator in this process, so that its error can be read before Airflow masks it."""
    from airflow.sdk.bases.operator import ExecutorSafeguard

    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    task = WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1", **more)
    ExecutorSafeguard.tracker.set(task)
    return task.execute({"ti": SimpleNamespace(try_number=1, max_tries=retries)})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(("retries", "requests"), [(1, ["POST"]), (0, ["POST", "DELETE"])])
def test_a_refused_call_leaves_the_browser_to_a_retry(
    weblake_connection: WeblakeService, retries: int, requests: list[str]
) -> None:
    """A browser that an earlier task left would be gone for the retry, and another one cannot be had for the scrape."""
    busy = {"status": 429, "headers": {"retry-after": "3600"}, "body": {"success": False, "error": "slow down"}}
    interacting(weblake_connection, busy)
    with pytest.raises(RateLimited):
        interact_once(retries=retries)
    assert sent(weblake_connection, "/interact") == requests


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"success": True, "exitCode": 3, "stderr": "no such button"}, "exit code 3, no such button"),
        ({"success": True, "killed": True, "exitCode": None}, "its time was up"),
        ({"success": False, "error": "page closed", "stdout": ""}, "page closed"),
        ({"success": False, "error": "Invalid token: Bearer KEY", "stdout": ""}, "Invalid token: Bearer ***"),
    ],
)
def test_code_that_failed_fails_the_task(
    weblake_connection: WeblakeService, body: dict[str, object], told: str
) -> None:
    body = {name: str(v).replace("KEY", weblake_connection.key) if name == "error" else v for name, v in body.items()}
    interacting(weblake_connection, {"body": body})
    with pytest.raises(GiveUp, match=re.escape(told)):
        interact_once(retries=1)
    assert sent(weblake_connection, "/interact") == ["POST", "DELETE"]
    assert interact_once(fail_on_error=False)["success"] is body["success"]


@pytest.mark.parametrize(
    "reply",
    [
        {"drop_after": True},
        {"status": 502, "body": {"success": False, "error": "The agent failed."}},
        {"status": 500, "body": "<html>"},
        {"status": 200, "body": ["no", "object"]},
    ],
)
def test_an_unknown_outcome_ends_the_retries_and_the_browser(
    weblake_connection: WeblakeService, reply: dict[str, object]
) -> None:
    interacting(weblake_connection, reply)
    with pytest.raises(OutcomeUnknown, match="it may have run, and been paid"):
        interact_once(retries=1)
    assert sent(weblake_connection, "/interact") == ["POST", "DELETE"]


def test_a_browser_that_cannot_be_closed_does_not_lose_the_response(
    run_dag: Run, weblake_connection: WeblakeService, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    interacting(
        weblake_connection,
        {"body": {"success": True, "result": "1"}},
        stop={"status": 403, "body": {"success": False, "error": "another team"}},
    )
    run = run_one(run_dag, lambda: WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1"))
    assert returned(run, "do") == {"scrape_id": SCRAPE, "success": True, "result": "1", "stopped": False}
    assert "could not be stopped and is paid until the service ends it" in task_logs(capfd)


@pytest.mark.system
def test_a_time_limit_ends_the_browser(run_dag: Run, weblake_connection: WeblakeService) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    interacting(weblake_connection, {"body": {"success": True}}, after_ms=120_000)
    began = time.monotonic()
    run = run_one(
        run_dag,
        lambda: WeblakeInteractOperator(
            task_id="do", scrape_id=SCRAPE, code="1", execution_timeout=timedelta(seconds=4)
        ),
    )
    assert run.state == "failed"
    assert time.monotonic() - began < 60
    assert "DELETE" in sent(weblake_connection, "/interact")


def test_on_kill_closes_the_browser_during_the_call(
    weblake_connection: WeblakeService, held_requests: threading.Event
) -> None:
    from airflow.sdk.bases.operator import ExecutorSafeguard

    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    interacting(weblake_connection, {"body": {"success": True, "result": "late"}}, after_ms=1)
    task = WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1")
    task.on_kill()  # nothing is under way yet
    results: list[dict[str, object]] = []

    def execute() -> None:
        ExecutorSafeguard.tracker.set(task)
        results.append(task.execute({}))

    running = threading.Thread(target=execute)
    running.start()
    until(lambda: "POST" in sent(weblake_connection, "/interact"))
    assert running.is_alive()
    task.on_kill()
    assert sent(weblake_connection, "/interact") == ["POST", "DELETE"]
    assert not results
    held_requests.set()
    running.join(120)
    assert results[0]["result"] == "late"
    assert sent(weblake_connection, "/interact") == ["POST", "DELETE", "DELETE"]


@proves(
    "H26",
    at="airflow_provider/src/airflow_provider_weblake/operators/discovery.py",
    line='return value.replace("\\0", "\\ufffd")',
    becomes="return value",
)
def test_h26_output_of_a_page_reaches_xcom_without_nul(run_dag: Run, weblake_connection: WeblakeService) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeInteractOperator

    printed = {"success": True, "stdout": "a\0b", "result": {"k\0": ["\0", {"deep": "\0\\u0000"}]}, "exitCode": 0}
    weblake_connection.faults(
        {
            "match": {"method": "POST", "path": "/interact$"},
            "effect": {"status": 200, "body": json.dumps(printed).replace('"a', r'"\ud800a')},
        },
        {"match": {"method": "DELETE", "path": "/interact$"}, "effect": {"status": 200, "body": {"success": True}}},
    )
    run = run_one(run_dag, lambda: WeblakeInteractOperator(task_id="do", scrape_id=SCRAPE, code="1"))
    told = returned(run, "do")
    assert told["stdout"] == "\ufffda\ufffdb"
    assert told["result"] == {"k\ufffd": ["\ufffd", {"deep": "\ufffd\\u0000"}]}

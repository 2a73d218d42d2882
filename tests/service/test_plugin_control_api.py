"""The control API under /_weblake/, as any program may use it."""

from __future__ import annotations

from typing import Any

import pytest

A = "http://site.test/a"


@pytest.mark.parametrize(
    ("method", "name", "body", "said"),
    [
        ("POST", "clock/advance", {"second": 5}, "`seconds` alone; it has `second`"),
        ("POST", "clock/advance", {}, "it has nothing"),
        ("POST", "clock/advance", {"seconds": "5"}, "Expected `float`"),
        ("POST", "clock/advance", {"seconds": -5}, ">= 0"),
        ("PUT", "faults", {"rules": [], "more": 1}, "`rules` alone"),
        ("PUT", "faults", {"rules": {}}, "a list of rules"),
        ("POST", "faults", {}, "effect"),
        ("POST", "faults", [], "object"),
    ],
)
def test_an_invalid_call_is_refused_with_the_reason(
    bench: Any, method: str, name: str, body: object, said: str
) -> None:
    reply = bench.http.request(method, f"/_weblake/{name}", json=body)
    assert reply.status_code == 400
    assert said in reply.json()["error"]


@pytest.mark.parametrize("name", ["1", "x", "-1", "9" * 40, "٣"])
def test_deleting_an_unknown_rule_is_404(bench: Any, name: str) -> None:
    reply = bench.http.delete(f"/_weblake/faults/{name}")
    assert (reply.status_code, reply.json()["success"]) == (404, False)


def test_unknown_paths_and_methods_are_refused(bench: Any) -> None:
    assert bench.http.get("/_weblake/fautls").status_code == 404
    assert bench.http.put("/_weblake/reset").status_code == 405


def test_rules_are_added_removed_one_by_one_and_sent_back_unchanged(bench: Any) -> None:
    first = bench.http.post("/_weblake/faults", json={"effect": {"status": 500}}).json()["id"]
    second = bench.http.post("/_weblake/faults", json={"effect": {"status": 501}}).json()["id"]
    assert bench.http.get("/v2/crawl/active").status_code == 500
    left = bench.http.delete(f"/_weblake/faults/{first}").json()["rules"]
    assert [rule["id"] for rule in left] == [second]
    back = bench.http.put("/_weblake/faults", json={"rules": left}).json()["rules"]
    assert (back[0]["effect"], back[0]["hit"]) == ({"status": 501}, 0)
    assert bench.http.get("/v2/crawl/active").status_code == 501


def test_a_reset_deletes_data_and_stops_jobs(bench: Any) -> None:
    bench.web.held.add(A)
    job = bench.batch(A, webhook="http://127.0.0.1:9/nobody")
    bench.until(lambda: bench.web.asked)
    bench.http.post("/_weblake/faults", json={"effect": {"status": 500}})
    assert bench.http.post("/_weblake/reset").json() == {"success": True}
    for name, empty in (("requests", []), ("counts", {}), ("deliveries", [])):
        assert bench.http.get(f"/_weblake/{name}").json() == {name: empty}
    assert bench.http.get(f"/v2/batch/scrape/{job}").status_code == 404
    bench.web.held.clear()
    assert bench.wait_until_ended(bench.batch(A))["completed"] == 1

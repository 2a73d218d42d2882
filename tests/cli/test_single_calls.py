"""Tests of the commands that send one request and print its response: request, output and exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_in_process import run_command
from rich.console import Console

import weblake.loads.intents  # noqa: F401 - loaded before a test patches what it imports
from weblake import Client, Terms, output
from weblake.api.operation import Operation
from weblake.api.steps import Request, Response
from weblake.cli import landing
from weblake.cli.app import TermsOptions
from weblake.dataset.root import LandedLoad
from weblake.loads import load_request
from weblake.orchestration import open_dataset
from weblake.receipt import Receipt
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

JOB = "4d8b6c1e-0000-4000-8000-000000000001"


class Service:
    """A service whose next responses a test sets; `seen` has each request as method, target and body."""

    def __init__(self) -> None:
        self.bodies: list[object] = []
        self.seen: list[tuple[str, str, Any]] = []
        self.server = LoopbackServer(self._respond)

    def _respond(self, request: LoopbackRequest) -> LoopbackResponse:
        self.seen.append((request.method, request.target, json.loads(request.body) if request.body else None))
        body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        headers = {"content-type": "application/json"}
        if isinstance(body, LoopbackResponse):
            return body
        return LoopbackResponse(200, json.dumps(body).encode(), headers)

    def run(self, *args: str, code: int = 0) -> tuple[str, str]:
        """Run a command and return its standard output and standard error."""
        found, out, err = run_command(args, {"WEBLAKE_BASE_URL": self.server.url, "WEBLAKE_API_KEY": "test-key"})
        assert found == code, f"{out}\n{err}"
        return out, err

    def prints_raw(self, *args: str) -> None:
        """Assert that `--json` prints the response as it came."""
        assert json.loads(self.run(*args, "--json")[0]) == self.bodies[0]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(output, "out", Console(width=200, soft_wrap=True, highlight=False, emoji=False))
    found = Service()
    with found.server:
        yield found


def cells(text: str) -> list[list[str]]:
    """Return the words of each line that has any, without rules."""
    return [line.split() for line in text.splitlines() if line.strip(" \u2500")]


def test_map_prints_one_url_per_line_and_the_warning_on_standard_error(service: Service) -> None:
    links = [{"url": "https://a.test/1"}, {"url": "https://a.test/2", "title": "Two"}]
    service.bodies = [{"success": True, "links": links, "warning": "only a [part]\nof it"}]
    out, err = service.run("map", "https://a.test/", "--search", "tides", "--limit", "2", "-o", "sitemap=skip")
    assert out.splitlines() == ["https://a.test/1", "https://a.test/2"]
    assert err.splitlines() == ["only a [part] of it"]
    method, target, body = service.seen[0]
    assert (method, target) == ("POST", "/v2/map")
    assert body == {"url": "https://a.test/", "search": "tides", "limit": 2, "sitemap": "skip"}
    service.prints_raw("map", "https://a.test/")


def test_search_lists_hits_of_all_kinds(service: Service) -> None:
    data = {
        "web": [{"title": "W", "url": "https://w.test/", "description": "of-web"}],
        "news": [{"title": "N", "url": "https://n.test/", "snippet": "of-news"}],
        "images": [{"title": "I", "url": "https://i.test/", "imageUrl": "https://i.test/i.png"}],
    }
    service.bodies = [{"success": True, "data": data, "warning": "slow"}]
    out, err = service.run("search", "tides", "--limit", "3")
    assert cells(out)[-3:] == [
        ["W", "https://w.test/", "of-web"],
        ["N", "https://n.test/", "of-news"],
        ["I", "https://i.test/", "https://i.test/i.png"],
    ]
    assert err == "slow\n"
    assert service.seen[0][2] == {"query": "tides", "limit": 3}
    service.prints_raw("search", "tides")
    service.bodies = [{"success": True, "data": {"web": []}}]
    assert service.run("search", "tides") == ("", "Nothing was found.\n")


def test_crawls_lists_ids_whole(service: Service) -> None:
    crawl = {"id": JOB, "teamId": "t", "url": "https://a.test/", "created_at": "2026-11-21T06:00:00Z"}
    service.bodies = [{"success": True, "crawls": [crawl]}]
    assert cells(service.run("crawls")[0])[-1] == [JOB, "https://a.test/", "2026-11-21T06:00:00Z"]
    service.prints_raw("crawls")


def test_preview_lists_the_options(service: Service) -> None:
    service.bodies = [{"success": True, "data": {"limit": 7, "includePaths": ["blog/.*"]}}]
    out = service.run("preview", "https://a.test/", "the blog")[0]
    assert cells(out)[-2:] == [["limit", "7"], ["includePaths", "['blog/.*']"]]
    assert service.seen[0][2] == {"url": "https://a.test/", "prompt": "the blog"}
    service.prints_raw("preview", "https://a.test/", "the blog")


def test_status_shows_what_is_known(service: Service) -> None:
    head = {"status": "scraping", "total": 5, "completed": 0, "creditsUsed": None, "expiresAt": "2026-11-22"}
    service.bodies = [head | {"data": []}]
    out = service.run("status", "crawl", JOB)[0]
    assert cells(out) == [
        ["crawl", JOB],
        ["status", "scraping"],
        ["total", "5"],
        ["completed", "0"],
        ["expiresAt", "2026-11-22"],
    ]
    shown = json.loads(service.run("status", "batch", JOB, "--json")[0])
    assert shown == {"id": JOB, "kind": "batch_scrape"} | head
    assert [target for _, target, _ in service.seen] == [f"/v2/crawl/{JOB}", f"/v2/batch/scrape/{JOB}"]


def test_cancel_shows_the_status_of_the_response(service: Service) -> None:
    service.bodies = [{"status": "completed"}]
    assert service.run("cancel", "crawl", JOB)[0] == f"crawl {JOB} is completed\n"
    assert service.seen[0][:2] == ("DELETE", f"/v2/crawl/{JOB}")
    service.prints_raw("cancel", "crawl", JOB)
    service.bodies = [{"success": True}]
    assert service.run("cancel", "batch", JOB)[0] == f"batch {JOB} is cancelled\n"


def test_errors_lists_failed_and_blocked_pages(service: Service) -> None:
    failed = {"id": "1", "url": "https://a.test/1", "code": "GONE", "error": "gone"}
    service.bodies = [{"errors": [failed], "robotsBlocked": ["https://a.test/2"]}]
    out = service.run("errors", "batch", JOB)[0]
    assert cells(out)[-2:] == [
        ["failed", "https://a.test/1", "GONE", "gone"],
        ["robots", "blocked", "https://a.test/2"],
    ]
    service.prints_raw("errors", "batch", JOB)


def test_usage_shows_amounts_and_bars_by_month(service: Service) -> None:
    months = [("2026-10", 40.0), ("2026-09", 0.0), ("2026-08", 1.0)]
    service.bodies = [
        {
            "success": True,
            "periods": [
                {"startDate": f"{month}-01T00:00:00Z", "endDate": f"{month}-28T00:00:00Z", "totalCredits": amount}
                for month, amount in months
            ],
        }
    ]
    out = service.run("usage", "credits")[0]
    assert [line for line in cells(out) if line[0].startswith("2026")] == [
        ["2026-08-01", "2026-08-28", "1"],
        ["2026-09-01", "2026-09-28", "0"],
        ["2026-10-01", "2026-10-28", "40"],
        ["2026-08", "█", "1", "credits"],
        ["2026-09", "0", "credits"],
        ["2026-10", "█" * 40, "40", "credits"],
    ]
    shown = json.loads(service.run("usage", "credits", "--json")[0])
    assert [each["totalCredits"] for each in shown["periods"]] == [1.0, 0.0, 40.0]


def test_a_report_that_was_not_split_is_mentioned(service: Service) -> None:
    service.bodies = [{"success": True, "periods": [{"startDate": "2026-10-01T00:00:00Z", "totalCredits": 5}]}]
    assert "did not split the report by API key" in service.run("usage", "credits", "--by-api-key")[1]
    assert service.run("usage", "credits")[1] == ""


def test_activity_is_listed_or_landed(service: Service, tmp_path: Path) -> None:
    entry = {"id": JOB, "endpoint": "crawl", "created_at": "2026-11-21T06:00:00.123Z", "target": "https://a.test/"}
    service.bodies = [{"success": True, "data": [entry], "has_more": False}]
    out = service.run("activity", "--endpoint", "crawl")[0]
    assert cells(out)[-1] == ["2026-11-21", "06:00:00", "crawl", JOB, "https://a.test/"]
    assert "endpoint=crawl" in service.seen[0][1]
    assert json.loads(service.run("activity", "--json")[0]) == {"data": [entry]}
    landed = json.loads(service.run("activity", "--to", str(tmp_path / "lake"), "--json")[0])
    assert (landed["entries"], [file["rows"] for file in landed["files"]]) == (1, [1])
    assert landed["files"][0]["path"] in service.run("activity", "--to", str(tmp_path / "lake"))[0]


def test_browser_sessions_are_created_listed_and_closed(service: Service) -> None:
    made = {"success": True, "id": JOB, "cdpUrl": "wss://b.test/1", "liveViewUrl": "https://b.test/2"}
    service.bodies = [made]
    out = service.run("browser", "create", "--ttl", "60")[0]
    assert out.splitlines()[:3] == [f"id: {JOB}", "cdpUrl: wss://b.test/1", "liveViewUrl: https://b.test/2"]
    assert service.seen[0] == ("POST", "/v2/browser", {"ttl": 60})
    service.prints_raw("browser", "create")
    session = {"id": JOB, "status": "active", "createdAt": "2026-11-21", "lastActivity": "2026-11-22"}
    service.bodies = [{"success": True, "sessions": [session]}]
    assert cells(service.run("browser", "list", "--status", "active")[0])[-1] == list(session.values())
    assert service.seen[-1][1] == "/v2/browser?status=active"
    service.prints_raw("browser", "list")
    service.bodies = [{"success": True}]
    assert service.run("browser", "close", JOB)[0] == f"Session {JOB} is closed.\n"
    assert service.seen[-1][:2] == ("DELETE", f"/v2/browser/{JOB}")
    service.prints_raw("browser", "close", JOB)


@pytest.mark.parametrize(
    ("result", "out", "err", "code"),
    [
        ({"stdout": "one", "result": "one", "exitCode": 0}, "one\n", "", 0),
        ({"stdout": "one", "result": "two"}, "one\ntwo\n", "", 0),
        ({"output": "said", "stderr": "odd [x]"}, "said\n", "odd [x]\n", 0),
        ({"error": "no", "exitCode": 0}, "", "no\n", 0),
        ({"exitCode": 3}, "", "", 1),
        ({"killed": True, "exitCode": 0}, "", "", 1),
    ],
)
def test_the_result_of_code_is_printed_and_its_failure_is_an_exit_code(
    service: Service, tmp_path: Path, result: dict[str, Any], out: str, err: str, code: int
) -> None:
    service.bodies = [{"success": True} | result]
    program = tmp_path / "program.py"
    program.write_text("print('ä')", encoding="utf-8")
    given = ("--language", "python", "--timeout", "5")
    assert service.run("browser", "execute", JOB, "--code", f"@{program}", *given, code=code) == (out, err)
    assert service.seen[0][1:] == (
        f"/v2/browser/{JOB}/execute",
        {"code": "print('ä')", "language": "python", "timeout": 5},
    )
    assert service.run("interact", JOB, "--code", "print(1)", *given, code=code) == (out, err)
    assert service.seen[1][1:] == (
        f"/v2/scrape/{JOB}/interact",
        {"code": "print(1)", "language": "python", "timeout": 5},
    )
    shown, _ = service.run("interact", JOB, "--prompt", "Scroll down", "--json", code=code)
    assert json.loads(shown) == service.bodies[0]
    assert service.seen[2][2] == {"prompt": "Scroll down"}


def test_a_file_of_code_that_cannot_be_read_is_bad_usage(service: Service, tmp_path: Path) -> None:
    service.bodies = [{}]
    _, err = service.run("browser", "execute", JOB, "--code", f"@{tmp_path / 'none.py'}", code=2)
    assert "none.py cannot be read" in err
    assert service.seen == []


def test_stop_shows_the_cost(service: Service) -> None:
    service.bodies = [{"success": True, "sessionDurationMs": 90500, "creditsBilled": 4}]
    assert service.run("stop", JOB)[0] == "Stopped after 90.5 s; 4 credits billed.\n"
    assert service.seen[0][:2] == ("DELETE", f"/v2/scrape/{JOB}/interact")
    service.prints_raw("stop", JOB)


def test_one_page_that_fails_does_not_prevent_the_others(service: Service, tmp_path: Path) -> None:
    page = {"success": True, "data": {"markdown": "# One", "metadata": {"sourceURL": "https://a.test/1"}}}
    failure = LoopbackResponse(
        400, b'{"success": false, "error": "no such page"}', {"content-type": "application/json"}
    )
    urls = ("https://a.test/0", "https://a.test/1")
    service.bodies = [failure, page]
    out, err = service.run("scrape", *urls, code=1)
    assert out == "# One\n"
    assert "no such page" in err
    assert len(err.splitlines()) == 1
    service.bodies = [failure, page]
    shown = json.loads(service.run("scrape", *urls, "--json", code=1)[0])["loads"]
    assert ([*shown[0]], shown[1]) == (["error"], page)
    service.bodies = [page]
    service.prints_raw("scrape", urls[1])
    service.bodies = [page | {"data": {"html": "<p>"}}]
    out, err = service.run("scrape", urls[1], "-f", "html")
    assert out == "\n", "there is no markdown"
    assert err == "The response has no markdown. --json prints all formats; --to ROOT stores them.\n"
    assert service.seen[-1][2] == {"url": urls[1], "formats": ["html"]}
    service.seen.clear()
    _, err = service.run("scrape", *urls, "--max-credits", "1", code=1)
    assert ("max-credits" in err, service.seen) == (True, [])
    service.run("scrape", *urls, "-o", "formats=[3]", code=2)
    assert service.seen == []


def test_nothing_is_sent_if_a_later_page_or_file_cannot_be(service: Service, tmp_path: Path) -> None:
    service.bodies = [{"success": True, "data": {"markdown": "# One"}}]
    (tmp_path / "one.pdf").write_bytes(b"%PDF-1.7")
    for command in (
        ["scrape", "https://a.test/1", "https://a.test/\udcff"],
        ["parse", str(tmp_path / "one.pdf"), str(tmp_path / "two.pdf")],
    ):
        out, _ = service.run(*command, "--json", code=2)
        assert json.loads(out)["error"]["type"] == "InvalidOption"
        assert service.seen == [], command[0]


def test_an_interrupt_does_not_lose_the_pages_before_it(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    page = {"success": True, "data": {"markdown": "# One"}}
    call = Client.call

    def interrupted(self: Client, operation: Operation[Any]) -> Any:
        if service.seen:
            raise KeyboardInterrupt
        return call(self, operation)

    monkeypatch.setattr(Client, "call", interrupted)
    service.bodies = [page]
    out, err = service.run("scrape", "https://a.test/1", "https://a.test/2", "https://a.test/3", "--json", code=130)
    shown = json.loads(out)["loads"]
    assert (shown[0], [*shown[1]], len(shown)) == (page, ["error"], 2)
    assert "1 of 3 calls" in err


def test_one_landed_page_is_a_receipt_and_several_are_a_list(service: Service, tmp_path: Path) -> None:
    def page(number: int) -> dict[str, Any]:
        data = {"markdown": "# One", "metadata": {"sourceURL": f"https://a.test/{number}", "scrapeId": JOB}}
        return {"success": True, "data": data}

    root = str(tmp_path / "lake")
    activity = {"success": True, "data": [], "has_more": False}
    service.bodies = [activity, page(1)]
    receipt = json.loads(service.run("scrape", "https://a.test/1", "--to", root, "--json")[0])
    assert (receipt["kind"], receipt["stored"]) == ("scrape", 1)
    service.bodies = [activity, page(2)]
    out, err = service.run("scrape", "https://a.test/1", "https://a.test/2", "--to", root, "--json")
    assert [each["stored"] for each in json.loads(out)["loads"]] == [1, 1]
    assert "has landed already" in err
    assert "--new starts a new job" in err


def test_the_defaults_of_the_command_line_are_those_of_python() -> None:
    assert TermsOptions().terms() == Terms()
    assert Terms().timeout_s == 24 * 3600


def test_a_load_named_by_its_job_cannot_be_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    landed = LandedLoad(Receipt("0123456789abcdef", "crawl", JOB), "2026-11-21T06:00:00+00:00")
    dataset = open_dataset(tmp_path)
    for gone in ("", ", and load fedcba9876543210 has replaced it: its rows are gone"):
        landing.show_if_old(dataset, landed, load_request.existing_job("crawl", JOB))
        assert capsys.readouterr().err == (
            f"weblake: this load has landed already, on 2026-11-21 06:00 UTC (load 0123456789abcdef){gone}; "
            "nothing was started.\n"
        )
        dataset.ledger.record_retired("0123456789abcdef", "fedcba9876543210")


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (1234, "1,234 credits are left."),
        (0, "0 credits are left."),
        (None, "The service does not say how many credits are left."),
    ],
)
def test_the_credits_that_are_left_are_asked_for_with_a_short_deadline(left: int | None, text: str) -> None:
    """A person waits for the question."""
    seen: list[Request] = []

    def send(request: Request) -> Response:
        seen.append(request)
        return Response(200, body=json.dumps({"success": True, "data": {"remainingCredits": left}}).encode())

    client = Client(transport=SimpleNamespace(send=send))  # type: ignore[arg-type]
    assert landing._credits_left(client) == text
    assert [(request.path, request.deadline_s) for request in seen] == [("/v2/team/credit-usage", 15.0)]

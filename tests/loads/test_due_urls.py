"""A list with refresh_after sends what is due, chosen once for each load; what is fresh is not paid again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from catalogue import proves
from task_lab import CLEAR, RETRY, URLS, TaskLab, task_lab
from typer.testing import CliRunner, Result

import weblake
from weblake import Terms, errors
from weblake.cli import _commands
from weblake.dataset import ledger
from weblake.dataset.records import Intent, utc_now
from weblake.dataset.root import open_dataset
from weblake.loads import generations, intents, load, load_request
from weblake.loads.load_request import LoadRequest, Naming

MORE = [*URLS, "http://pages.test/new"]
TERMS = Terms(poll_s=0.2)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        yield lab


def land(lab: TaskLab, urls: list[str], after: timedelta | str = "never", **more: Any) -> weblake.Receipt:
    terms = replace(TERMS, **more.pop("terms", {}))
    receipt = weblake.land_batch(urls, to=lab.dataset.url, client=lab.client, terms=terms, refresh_after=after, **more)
    assert receipt.requested == receipt.fresh + receipt.submitted == len(urls)
    return receipt


def placed(lab: TaskLab, occasion: str = RETRY, urls: list[str] = URLS) -> LoadRequest:
    """The load of a task of an orchestrator."""
    request = load_request.batch(urls, Naming(partition=lab.keys, refresh_after="7d"))
    return generations.place(lab.client, lab.dataset, request, lab.task(occasion), TERMS)


def land_task(lab: TaskLab, occasion: str = RETRY, urls: list[str] = URLS) -> weblake.Receipt:
    return load.land(lab.client, lab.dataset, placed(lab, occasion, urls), TERMS).receipt


@proves(
    "3.9",
    at="src/weblake/loads/due_urls.py",
    line="    due = [url for url, due in zip(request.submitted, is_due, strict=True) if due]",
    becomes="    due = list(request.submitted)",
)
def test_the_same_call_buys_only_what_is_new_or_failed(lab: TaskLab) -> None:
    """A page that answered 404 is due again, and so is one that failed; another spelling of a URL is the same page."""
    lab.web.statuses[URLS[1]] = 404
    first = land(lab, URLS)
    assert (first.fresh, first.submitted, first.stored) == (0, 3, 3)
    lab.web.statuses.clear()
    lab.web.asked.clear()
    second = land(lab, [URLS[0].upper().replace("HTTP", "https"), *URLS[1:], "http://pages.test/new"])
    assert (second.fresh, second.submitted, second.complete) == (2, 2, True)
    assert lab.web.asked == [URLS[1], "http://pages.test/new"]
    third = land(lab, MORE)
    assert (third.fresh, third.submitted, third.credits_used, third.complete, third.job_id) == (4, 0, 0.0, True, None)
    assert lab.started == 2
    assert sorted(set(lab.visible)) == sorted([first.load_id, second.load_id])


def test_a_page_is_due_when_its_load_began_before_the_window(lab: TaskLab) -> None:
    """The load's own time counts, and not the value of a path key, which the user chooses."""
    old = "2026-11-01T00:00:00+00:00"
    with mock.patch.object(intents, "utc_now", return_value=old):
        land(lab, URLS[:1], partition={"load_date": "2027-01-01"})
    land(lab, URLS[1:2], partition={"load_date": "2020-01-01"})
    assert land(lab, URLS, timedelta(days=7), partition={"load_date": "2026-11-28"}).fresh == 1
    assert land(lab, URLS).fresh == 3


@proves(
    "3.9",
    at="src/weblake/loads/intents.py",
    line="        sent_lists.keep(dataset.storage, request.load_id, request.submitted or ())",
    becomes="        pass",
    case="intent",
)
@pytest.mark.parametrize("until", ["intent", "start", "job"])
def test_a_retry_goes_on_with_the_list_that_was_chosen(lab: TaskLab, until: str) -> None:
    """Whatever has landed meanwhile, and whatever the caller's list is by now."""
    land(lab, URLS[:1])
    request = placed(lab)
    assert (request.fresh, request.submitted) == (1, tuple(URLS[1:]))
    dies = {
        "intent": mock.patch.object(intents.starts.JobStarter, "run", side_effect=MemoryError),
        "start": mock.patch.object(ledger.Ledger, "record_job", side_effect=MemoryError),
        "job": mock.patch.object(load, "_wait_for_end", side_effect=MemoryError),
    }
    with dies[until], pytest.raises(MemoryError):
        load.land(lab.client, lab.dataset, request, TERMS)
    land(lab, URLS[1:2])
    receipt = land_task(lab, urls=MORE)
    assert (receipt.load_id, receipt.fresh, receipt.submitted, receipt.stored) == (request.load_id, 1, 2, 2)
    assert land_task(lab, urls=MORE).job_id == receipt.job_id
    assert lab.dataset.storage.list("_weblake/submitted") == []


def test_two_workers_of_one_load_send_the_list_of_the_first_intent(lab: TaskLab) -> None:
    land(lab, URLS[:1])
    mine = placed(lab)
    real = ledger.Ledger.record_intent

    def other_first(self: ledger.Ledger, intent: Intent) -> Intent:
        with mock.patch.object(ledger.Ledger, "record_intent", real):
            land(lab, URLS[1:2])
            dies = mock.patch.object(intents.starts.JobStarter, "run", side_effect=MemoryError)
            with dies, pytest.raises(MemoryError):
                load.land(lab.client, lab.dataset, placed(lab), TERMS)
        return real(self, intent)

    with mock.patch.object(ledger.Ledger, "record_intent", other_first):
        receipt = load.land(lab.client, lab.dataset, mine, TERMS).receipt
    assert (receipt.fresh, receipt.submitted, receipt.requested, lab.started) == (2, 1, 3, 3)


@proves(
    "3.9",
    at="src/weblake/loads/due_urls.py",
    line="    stale = freshness.without_fresh(dataset, keys.unique(), since, without=replaced)",
    becomes="    stale = freshness.without_fresh(dataset, keys.unique(), since)",
    case="run",
)
@pytest.mark.parametrize("keys", [None, {"day": "1"}], ids=["run", "partition"])
def test_a_clear_buys_what_the_load_that_it_replaces_had(lab: TaskLab, keys: dict[str, str] | None) -> None:
    lab.keys = keys
    other = "http://pages.test/other"
    land(lab, [other], partition=keys)
    first = land_task(lab, urls=[*URLS, other])
    assert (first.fresh, first.submitted) == (1, 3)
    second = land_task(lab, CLEAR, urls=[*URLS, other])
    assert (second.fresh, second.submitted, second.stored) == (1, 3, 3)
    assert second.load_id in lab.visible
    assert first.load_id not in lab.visible
    lab.run = "run-2"
    later = land_task(lab, urls=[*URLS, other])
    # With a partition, the next run replaces the load, too; without one, it adds to it.
    assert later.fresh == (4 if keys is None else 1)


def test_a_task_with_nothing_due_leaves_no_record(lab: TaskLab) -> None:
    """A retry finds the same; a Clear after it is answered by what has landed by then."""
    lab.records_return = True
    land(lab, URLS)
    before = lab.dataset.storage.list("_weblake/ledger")
    for occasion in (RETRY, RETRY, CLEAR):
        request = placed(lab, occasion)
        assert load.land(lab.client, lab.dataset, request, TERMS).receipt.nothing_due
        generations.record_returned(lab.dataset, request)
    assert (lab.dataset.storage.list("_weblake/ledger"), lab.started) == (before, 1)
    assert land_task(lab, CLEAR, urls=MORE).submitted == 1


def test_the_limit_of_credits_counts_what_is_due(lab: TaskLab) -> None:
    land(lab, URLS)
    assert land(lab, MORE, terms={"max_credits": 1.0}).submitted == 1
    with pytest.raises(errors.CreditsExhausted, match="2 pages at 1 credits"):
        land(lab, [*MORE, "http://pages.test/a", "http://pages.test/b"], terms={"max_credits": 1.0})
    assert lab.dataset.storage.list("_weblake/submitted") == []


def test_a_failed_job_is_followed_by_a_new_load_of_what_is_due(lab: TaskLab) -> None:
    lab.hold()
    request = load_request.batch(URLS, Naming(refresh_after="7d"))
    request = generations.place_refresh(lab.client, lab.dataset, request, TERMS)
    _, job, _ = intents.start_load(lab.client, lab.dataset, request)
    lab.cancel(weblake.orchestration.JobRef(job.kind, job.job_id))
    lab.release()
    assert land(lab, URLS).job_id != job.job_id


@pytest.mark.parametrize(
    ("given", "sent"),
    [({}, {"maxAge": 0}), ({"max_age": 60_000}, {"maxAge": 60_000}), ({"min_age": 1}, {"minAge": 1})],
)
def test_a_page_that_is_due_is_not_taken_from_the_cache_of_the_service(given: Any, sent: dict[str, int]) -> None:
    request = load_request.batch(URLS, Naming(refresh_after="1d"), **given)
    assert request.start is not None
    body = json.loads(request.start(str(uuid4())).request.body or b"")
    assert {name: body[name] for name in ("maxAge", "minAge") if name in body} == sent


@pytest.mark.parametrize("count", range(10))
def test_the_newest_of_many_generations_is_found(tmp_path: Path, count: int) -> None:
    dataset, task = open_dataset(tmp_path), load_request.refresh_family("a")
    for n in range(count):
        intent = Intent(load_id=task.load_id(n), kind="crawl", endpoint="", created_at=utc_now(), request_sha256="")
        dataset.ledger.record_intent(intent)
    with mock.patch.object(generations, "_is_over", return_value=True) as is_over:
        assert generations.choose(mock.Mock(), dataset, task, TERMS) == count
    if count:
        assert is_over.call_args.args[2].load_id == task.load_id(count - 1)


@pytest.mark.parametrize("given", ["", "7", "0d", "-1d", "7 days", "1e9d", "99999999999999d", timedelta(0), 7, True])
def test_a_window_that_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(errors.InvalidOption, match="refresh_after is"):
        Naming(refresh_after=given)


@pytest.mark.parametrize(
    ("given", "seconds"), [("7d", 604800), ("1.5h", 5400), ("90m", 5400), (" 30s ", 30), (timedelta(hours=1), 3600)]
)
def test_windows(given: Any, seconds: int) -> None:
    window = load_request.refresh_window(given)
    assert window is not None
    assert window.total_seconds() == seconds


class Shell:
    """The command line with a file of URLs, or with URLs on standard input."""

    def __init__(self, lab: TaskLab, folder: Path) -> None:
        self.lab, self.file = lab, folder / "urls.txt"

    def batch(self, urls: list[str], *more: str, stdin: bool = False) -> Result:
        _commands()
        from weblake.cli.app import app

        if urls:
            self.file.write_text("\n".join(urls))
        command = ["batch", "--urls", "-" if stdin else str(self.file), "--to", self.lab.dataset.url]
        command += ["--refresh-after", "7d", *more]
        return CliRunner().invoke(app, command, input="\n".join(urls) if stdin else None)

    def receipt(self, urls: list[str], *more: str, stdin: bool = False) -> dict[str, Any]:
        result = self.batch(urls, "--json", *more, stdin=stdin)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found


@pytest.fixture
def shell(lab: TaskLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("WEBLAKE_BASE_URL", lab.service.url)
    monkeypatch.setenv("WEBLAKE_API_KEY", lab.service.key)
    return Shell(lab, tmp_path)


def test_the_same_command_every_night_is_a_new_load_each_time_something_is_due(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    nights = [URLS, URLS, MORE, MORE]
    found = [shell.receipt(urls) for urls in nights]
    assert [(each["requested"], each["fresh"], each["submitted"]) for each in found] == [
        (3, 0, 3),
        (3, 3, 0),
        (4, 3, 1),
        (4, 4, 0),
    ]
    assert shell.receipt(["http://pages.test/x", *URLS], stdin=True)["fresh"] == 3
    nothing = shell.batch(MORE)
    assert nothing.exit_code == 0
    assert "All 4 URLs are fresh: nothing is due, and nothing is started." in caplog.text
    assert "nothing due" in nothing.stdout
    from weblake.cli.app import app

    listed = CliRunner().invoke(app, ["loads", shell.lab.dataset.url, "--json"])
    assert [each["fresh"] for each in json.loads(listed.stdout)["loads"]] == [0, 3, 3]


def test_a_command_after_a_crash_lands_the_open_load_first(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    """Also if the file has changed meanwhile or is gone; with --new, the open load stays open."""
    with mock.patch.object(load, "_wait_for_end", side_effect=MemoryError):
        assert isinstance(shell.batch(URLS).exception, MemoryError)
    again = shell.batch(MORE, "--json")
    receipt = json.loads(again.stdout)
    assert (receipt["requested"], receipt["submitted"], shell.lab.started) == (3, 3, 1)
    assert "Run it again for what is due now" in caplog.text
    assert shell.receipt(MORE)["submitted"] == 1
    with mock.patch.object(load, "_wait_for_end", side_effect=MemoryError):
        shell.batch(["http://pages.test/y"])
    assert shell.receipt(["http://pages.test/y"], "--new")["submitted"] == 1
    with mock.patch.object(load, "_wait_for_end", side_effect=MemoryError):
        shell.batch(["http://pages.test/z"])
    shell.file.unlink()
    assert shell.batch([], "--json").exit_code == 0
    assert isinstance(shell.batch([]).exception, errors.FixRequest)

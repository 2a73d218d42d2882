"""The commands that land a load, without a service: what they ask of `load.land`, and what they print and exit with."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from time import monotonic

import pytest
from command_in_process import run_command
from made_loads import intent, land, load_id

import weblake.loads.load  # noqa: F401 - loaded before a test patches what it imports
from weblake import Client, events
from weblake.cli.app import ServiceOptions
from weblake.dataset.records import Job
from weblake.dataset.root import Dataset, LandedLoad, open_dataset
from weblake.errors import FixRequest
from weblake.loads import load_request
from weblake.loads.intents import StartedLoad
from weblake.loads.load_request import LoadRequest, Naming, Terms
from weblake.receipt import Receipt

JOB = "4d8b6c1e-0000-4000-8000-000000000001"
URL = "https://a.test/1"
SERVICE = {"WEBLAKE_BASE_URL": "http://127.0.0.1:1/", "WEBLAKE_API_KEY": "test-key"}


class Commands:
    """Runs commands at a root; `requests` has each request that was to be landed, with its terms."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.requests: list[tuple[LoadRequest, Terms]] = []
        #: What the next load ends with, before or after its job is known.
        self.end: BaseException | None = None
        self.is_started = True

    def land(self, client: Client, dataset: Dataset, request: LoadRequest, terms: Terms) -> LandedLoad:
        self.requests.append((request, terms))
        if self.is_started:
            client.retry.observe(events.JobStarted(kind=request.kind, job_id=JOB, seconds=1.0))
        if self.end is not None:
            job_id = JOB if self.is_started else None
            client.retry.observe(events.LoadFailed(kind=request.kind, job_id=job_id, seconds=1.0))
            raise self.end
        return LandedLoad(Receipt(request.load_id, request.kind, JOB, status="completed", complete=True))

    def run(self, *args: str, code: int = 0) -> tuple[str, str]:
        """Run a command with `--to`, and return its standard output and standard error."""
        found, out, err = run_command([*args, "--to", self.root], SERVICE)
        assert found == code, f"{out}\n{err}"
        return out, err

    def asked(self, *args: str) -> tuple[LoadRequest, Terms]:
        """Return the request and the terms of a command."""
        self.run(*args)
        return self.requests[-1]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    found = Commands(str(tmp_path / "lake"))
    monkeypatch.setattr("weblake.loads.load.land", found.land)
    return found


def test_the_flags_are_the_terms_of_the_load(commands: Commands) -> None:
    flags = (
        "--allow-partial",
        "--missing-ratio",
        "0.1",
        "--fail-ratio",
        "0.2",
        "--max-credits",
        "3",
        "--timeout",
        "60",
    )
    given = Terms(allow_partial=True, missing_ratio=0.1, fail_ratio=0.2, max_credits=3.0, timeout_s=60.0)
    assert commands.asked("batch", URL, *flags)[1] == given
    assert commands.asked("crawl", URL, "--limit", "5", *flags)[1] == given
    assert commands.asked("land", "batch", JOB, *flags)[1] == given
    assert commands.asked("batch", URL)[1] == Terms()


def test_the_flags_are_the_identity_of_the_load(commands: Commands) -> None:
    keys = ("--partition", "team=a", "--partition", "day=2026-11-21=x")
    partition = {"team": "a", "day": "2026-11-21=x"}
    named = load_request.batch([URL], Naming(key="k", partition=partition), only_main_content=True, timeout=0x7FFF)
    found, _ = commands.asked("batch", URL, "--key", "k", *keys, "-o", "only-main-content=true", "-o", "timeout=32767")
    assert (found.load_id, found.partition) == (named.load_id, partition)
    plain = commands.asked("batch", URL)[0]
    assert (plain.load_id, plain.partition) == (load_request.batch([URL], Naming()).load_id, None)
    assert commands.asked("batch", URL)[0].load_id == plain.load_id
    assert commands.asked("batch", URL, "--new")[0].load_id != plain.load_id
    assert commands.asked("land", "batch", JOB, *keys)[0] == load_request.existing_job("batch", JOB, partition)


def test_the_formats_of_a_crawl_are_added_to_its_scrape_options(commands: Commands) -> None:
    found, _ = commands.asked(
        "crawl", URL, "--limit", "5", "-f", "html", "-o", 'scrape_options={"onlyMainContent":true}'
    )
    options = {"only_main_content": True, "formats": ["html"]}
    assert found.load_id == load_request.crawl(URL, Naming(), Terms(), limit=5, scrape_options=options).load_id


def test_an_error_of_json_contains_no_value_and_says_how_to_give_a_text(commands: Commands) -> None:
    _, err = commands.run("batch", URL, "-o", 'headers={"Cookie": secret}', code=2)
    assert "at character 12. Correct it." in " ".join(err.split())
    assert "secret" not in err
    found, _ = commands.asked("crawl", URL, "--limit", "5", "-o", 'prompt="[1] shops"')
    assert found.load_id == load_request.crawl(URL, Naming(), Terms(), limit=5, prompt="[1] shops").load_id
    true = [commands.asked("batch", URL, "-o", f"mobile={text}")[0].load_id for text in ("true", "True")]
    assert true[0] == true[1] != commands.asked("batch", URL, "-o", "mobile=False")[0].load_id


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["batch"], "Give either URLs or --urls FILE."),
        (["batch", URL, "--urls", "list.txt"], "Give either URLs or --urls FILE."),
        (["batch", URL, "Shops.CSV"], "Shops.CSV is the name of a file, not the URL of a page."),
        (["batch", URL, "--column", "link"], "--column names a column of a file"),
        (["batch", URL, "--partition", "a"], "'a' is not KEY=VALUE"),
        (["batch", URL, "--partition", "a=1", "--partition", "a=2"], "names a key twice"),
        (["batch", URL, "-o", "=1"], "'=1' is not NAME=VALUE"),
        (["batch", URL, "-o", "mobile"], "'mobile' is not NAME=VALUE"),
        (["batch", URL, "-o", "location={country: DE}"], "location begins like JSON and is not valid JSON: Expecting"),
        (["batch", URL, "-o", 'actions=[{"type": "wait"'], "actions begins like JSON and is not valid JSON"),
        (["batch", URL, "-o", "idempotency-key=1"], "cannot be given with --option"),
        (["crawl", URL, "--limit", "0"], "`limit` is 0"),
        (["land", "parse", JOB], "parse"),
    ],
)
def test_bad_usage_is_exit_code_2_and_lands_nothing(commands: Commands, args: list[str], text: str) -> None:
    assert text in commands.run(*args, code=2)[1]
    out, _ = commands.run(*args, "--json", code=2)
    assert text in json.loads(out)["error"]["message"]
    assert commands.requests == []


def test_an_error_of_a_load_is_exit_code_1(commands: Commands) -> None:
    commands.end = FixRequest("The list is odd.", hint="Correct it.")
    assert "The list is odd." in commands.run("batch", URL, code=1)[1]
    out, _ = commands.run("batch", URL, "--json", code=1)
    assert json.loads(out)["error"]["message"] == "The list is odd."


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143), (SystemExit(129), 129)])
def test_an_interrupted_load_names_its_job_and_exits_with_its_signal(
    commands: Commands, end: BaseException, code: int
) -> None:
    commands.end = end
    assert f"weblake cancel batch {JOB}" in commands.run("batch", URL, code=code)[1]
    shown = json.loads(commands.run("batch", URL, "--json", code=code)[0])
    assert (shown["job_id"], shown["load_id"]) == (JOB, commands.requests[-1][0].load_id)
    assert "weblake cancel" not in commands.run("scrape", URL, code=code)[1]


def test_an_interrupted_new_load_is_resumed_with_its_key(commands: Commands) -> None:
    """The same command, with --new, would start another job."""
    commands.end = KeyboardInterrupt()
    _, err = commands.run("batch", URL, "--new", code=130)
    key = commands.requests[-1][0].new_key
    assert f"Resume with the same command, with --key {key} in place of --new, or cancel it with" in err
    _, err = commands.run("scrape", URL, "--new", code=130)
    key = commands.requests[-1][0].new_key
    assert f"Run the same command, with --key {key} in place of --new, again to resume" in err


def test_a_machine_that_lacks_something_refers_to_the_key_of_a_new_load(commands: Commands) -> None:
    commands.end = MemoryError()
    assert "In place of --new give the --key that `weblake orphans`" in commands.run("batch", URL, "--new", code=1)[1]
    assert "--key" not in commands.run("batch", URL, code=1)[1]


@pytest.mark.parametrize(
    ("lack", "text"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "cannot start another thread"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), os.strerror(errno.ENOSPC)),
    ],
)
def test_a_machine_that_lacks_something_is_one_line(commands: Commands, lack: BaseException, text: str) -> None:
    commands.end = lack
    _, err = commands.run("batch", URL, code=1)
    assert text in err
    assert "Traceback" not in err


def test_a_defect_of_weblake_is_a_traceback(commands: Commands) -> None:
    commands.end = RuntimeError("a thread is odd")
    with pytest.raises(RuntimeError, match="odd"):
        commands.run("batch", URL)


def test_without_the_flag_the_environment_allows_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBLAKE_INSECURE", "1")
    monkeypatch.setenv("WEBLAKE_API_KEY", "test-key")
    with ServiceOptions("http://service.example").connect() as client:
        assert client.service == "http://service.example"


def test_the_urls_of_a_file_are_sent_with_their_source(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_text(f"link\n{URL}\n")
    request, _ = commands.asked("batch", "--urls", str(file), "--column", "link")
    assert request.load_id == load_request.batch([URL], Naming()).load_id
    assert request.source is not None
    _, err = commands.run("batch", "--urls", str(tmp_path / "none.txt"), code=1)
    assert "none.txt cannot be read" in err
    assert "Check the path" in " ".join(err.split())


def test_a_detached_load_is_started_within_its_credits(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float | None] = []

    def start(
        client: object, dataset: Dataset, request: LoadRequest, *, max_credits: float | None, ends_at: float
    ) -> StartedLoad:
        assert 0 < ends_at - monotonic() <= 9
        seen.append(max_credits)
        job = Job(load_id=request.load_id, job_id=JOB, kind="batch_scrape", at="2026-11-21T06:00:00+00:00")
        return intent(0), job, None

    monkeypatch.setattr("weblake.loads.intents.start_load", start)
    assert commands.run("batch", URL, "--detach", "--max-credits", "3", "--timeout", "9")[0] == f"{JOB}\n"
    receipt = json.loads(commands.run("batch", URL, "--detach", "--json", "--timeout", "9")[0])
    assert (receipt["job_id"], receipt["status"]) == (JOB, "started")
    assert seen == [3.0, None]
    embedded = {"WEBLAKE_BASE_URL": "", "WEBLAKE_API_KEY": ""}
    code, _, err = run_command(["batch", URL, "--detach", "--to", commands.root], embedded)
    assert (code, "needs a service that keeps running" in err, len(seen)) == (1, True, 2)


def test_an_interrupted_detached_start_says_how_to_resume(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command, with --new, would start another job."""
    seen: list[LoadRequest] = []
    ends: list[BaseException] = []

    def start(client: object, dataset: Dataset, request: LoadRequest, **_: float | None) -> StartedLoad:
        seen.append(request)
        raise ends[-1]

    monkeypatch.setattr("weblake.loads.intents.start_load", start)
    for end, code in ((KeyboardInterrupt(), 130), (SystemExit(143), 143)):
        ends.append(end)
        out, err = commands.run("batch", URL, "--detach", "--new", "--json", code=code)
        assert f"Run the same command, with --key {seen[-1].new_key} in place of --new, again" in " ".join(err.split())
        assert json.loads(out)["load_id"] == seen[-1].load_id


def test_a_load_that_has_landed_is_not_started_by_detach(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    found = LandedLoad(Receipt(load_id(0), "batch_scrape", JOB), "2026-11-21T06:00:00+00:00")
    monkeypatch.setattr("weblake.loads.load.find_landed", lambda *_: found)
    out, err = commands.run("batch", URL, "--detach")
    assert (out, "has landed already" in err) == (f"{JOB}\n", True)


def test_loads_lists_what_landed_after_a_load(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path / "lake")
    for number in range(3):
        land(dataset, intent(number))
    for since, expected in (([], [0, 1, 2]), (["--since", load_id(0)], [1, 2])):
        code, out, _ = run_command(["loads", str(tmp_path / "lake"), *since, "--json"], {})
        shown = json.loads(out)
        assert (code, [each["load_id"] for each in shown["loads"]]) == (0, [load_id(n) for n in expected])
    code, _, err = run_command(["loads", str(tmp_path)], {})
    assert (code, str(tmp_path) in err) == (1, True)

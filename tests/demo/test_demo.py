"""Tests that `weblake demo` runs its steps within a minute and leaves a dataset that other programs can read."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import duckdb
import polars
import pyarrow.parquet as pq
import pytest
from secret_search import contains_secret, in_files

import weblake_service.serve  # noqa: F401 - loaded before a test patches what it imports
from weblake.demo import run_demo
from weblake.demo.site import BLOCKED, Page, site_pages
from weblake.demo.steps import ASSETS_PART, ASSETS_SITE, DAG_PART, DATABASE, DEFAULT_ROOT, batch_urls
from weblake.demo.summary import next_commands
from weblake.errors import InvalidOption, StorageRefused

pytestmark = pytest.mark.system

#: Seconds that a demo may take on a machine that does other work: ten times what it needs.
PATIENCE_S = 240
#: Hides the provider and the integration, as if they were not installed.
WITHOUT_GUESTS = (
    "import sys; sys.modules['airflow_provider_weblake'] = sys.modules['dagster_weblake'] = None; "
    "from weblake.cli import main; main()"
)
SILENT = "http://127.0.0.1:9/"
BASE = "http://127.0.0.1:8"


class Ran:
    """One run of the command in a process of its own."""

    def __init__(self, *arguments: str, cwd: Path, code: str = "", env: Mapping[str, str] | None = None) -> None:
        # The demo has a service of its own, whatever the environment names.
        named = {"WEBLAKE_BASE_URL": SILENT, "WEBLAKE_API_KEY": "test-canary", "XDG_STATE_HOME": str(cwd / "state")}
        # And an Airflow and a Dagster of its own, whatever else is set up here.
        named |= {"AIRFLOW_HOME": str(cwd / "mine"), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nowhere/of.db"}
        named |= {
            "DAGSTER_HOME": str(cwd / "my dagster"),
            "EXAMPLE_SITE": SILENT,
            "WEBLAKE_ROOT": str(cwd / "not here"),
        }
        done = subprocess.run(
            [sys.executable, *(["-c", code] if code else ["-m", "weblake"]), "demo", *arguments],
            cwd=cwd,
            env=os.environ | named | dict(env or {}),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
        )
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


class Expected:
    """The expected results of a crawl and a batch, computed from the description of the site only."""

    def __init__(self) -> None:
        self.pages = site_pages(BASE)
        reached = self._reached()
        self.blocked = {path for path in reached if path.startswith(BLOCKED)}
        targets = {self.pages[path].location or path for path in reached - self.blocked}
        self.crawled = {path: self.pages[path].status for path in targets if _is_text(self.pages[path])}
        self.notes = self._below(DAG_PART)
        self.stations, self.warnings = self._below(ASSETS_PART), self._below(ASSETS_SITE)
        self.watched = {path for path in self.stations if self.crawled[path] == 200}
        #: What is due after the crawl of the whole site.
        self.due = {path for path, status in self.crawled.items() if status >= 400}
        #: The documents that the example's assets pay for.
        self.assets = len(self.stations) + len(self.warnings) + len(self.watched) + len(self.due)
        self.batch: Counter[str] = Counter()
        self.batch_statuses: Counter[int] = Counter()
        self.batch["duplicates"] = len(batch_urls(BASE)) - len(set(batch_urls(BASE)))
        for url in set(batch_urls(BASE)):
            page = self.pages[url.removeprefix(BASE)] if url.startswith(f"{BASE}/") else None
            page = self.pages[page.location] if page is not None and page.location else page
            if page is not None and _is_text(page):
                self.batch["stored"] += 1
                self.batch_statuses[page.status] += 1
            else:
                self.batch["failed" if url.startswith("http:") else "rejected"] += 1

    def _below(self, part: str) -> set[str]:
        return {path for path in self.crawled if path.startswith(part)}

    def _reached(self) -> set[str]:
        """The paths that follow from the start page and the sitemap, over pages that a crawler may read."""
        waiting = ["/", *re.findall(rf"<loc>{BASE}(.*?)</loc>", self.pages["/sitemap.xml"].body.decode())]
        reached: set[str] = set()
        while waiting:
            path = waiting.pop()
            if path not in reached:
                reached.add(path)
                page = self.pages[self.pages[path].location or path]
                if page.content_type.startswith("text/html") and not path.startswith(BLOCKED):
                    waiting += links(path, page)
        return reached


def links(path: str, page: Page) -> set[str]:
    """The paths of the site that a page links to."""
    hrefs = re.findall(r'<a [^>]*?href="([^"]+)"', page.body.decode("utf-8", "replace"))
    urls = {urljoin(BASE + path, href).partition("#")[0] for href in hrefs}
    return {url.removeprefix(BASE) for url in urls if url.startswith(f"{BASE}/")}


def _is_text(page: Page) -> bool:
    return page.content_type.startswith(("text/", "application/json"))


def _path(url: str) -> str:
    return urlsplit(url).path


@pytest.fixture(scope="module")
def expected() -> Expected:
    return Expected()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def whole(home: Path) -> Ran:
    """The demo for programs, with an Airflow and a Dagster, which take most of its time."""
    return Ran("--to", "whole lake", "--json", cwd=home)


@pytest.fixture(scope="module", params=["without", "with"])
def guests(request: pytest.FixtureRequest) -> bool:
    """Whether the Airflow provider and the Dagster integration are installed."""
    return bool(request.param == "with")


@pytest.fixture(scope="module")
def root(home: Path, guests: bool) -> Path:
    return home / ("whole lake" if guests else "some lake")


@pytest.fixture(scope="module")
def first(request: pytest.FixtureRequest, home: Path, guests: bool, root: Path) -> Ran:
    """The demo for programs, into a directory that does not exist yet."""
    if guests:
        ran: Ran = request.getfixturevalue("whole")
        return ran
    return Ran("--to", root.name, "--json", cwd=home, code=WITHOUT_GUESTS)


@pytest.fixture(scope="module")
def receipts(first: Ran) -> tuple[dict[str, object], dict[str, object]]:
    crawl, batch, *_ = json.loads(first.out)["loads"]
    return crawl, batch


def test_json_is_one_object_and_the_rest_goes_to_standard_error(first: Ran, root: Path) -> None:
    assert first.code == 0, first.err
    assert first.out.count("\n") == 1
    told = json.loads(first.out)
    assert set(told) == {"root", "loads", "usage", "activity", "seconds"}
    assert told["root"] == root.name
    assert 0 < told["seconds"] < PATIENCE_S
    assert [line.split()[1] for line in first.err.splitlines()] == [
        *("dataset", "site", "service", "crawl", "batch", "again", "airflow", "dagster", "usage", "activity")
    ]
    assert "landed already, 0 requests sent" in first.err
    assert "\x1b" not in first.err + first.out
    files = [file for load in told["loads"] for file in load["files"]]
    for file in [*files, *told["usage"]["files"], *told["activity"]["files"]]:
        path = root / file["path"]
        assert (path.stat().st_size, pq.read_metadata(path).num_rows) == (file["bytes"], file["rows"])


def test_the_crawl_lands_the_pages_of_the_site(
    receipts: tuple[dict[str, object], dict[str, object]], root: Path, expected: Expected
) -> None:
    crawl, _ = receipts
    glob = str(root / "documents/**/*.parquet")
    rows = duckdb.execute(
        "SELECT url, status_code FROM read_parquet(?) WHERE load_id = ?", [glob, crawl["load_id"]]
    ).fetchall()
    assert len(rows) == crawl["stored"] == len(expected.crawled)
    assert {_path(url): status for url, status in rows} == expected.crawled
    assert crawl["complete"] is True
    assert crawl["robots_blocked"] == len(expected.blocked) > 0
    assert crawl["submitted"] == len(expected.crawled) + len(expected.blocked)
    assert crawl["missing"] == 0
    blocked = polars.read_parquet(root / "page_errors/**/*.parquet").filter(polars.col("outcome") == "robots_blocked")
    assert {_path(url) for url in blocked["url"]} == expected.blocked


def test_the_batch_lands_the_requested_pages(
    receipts: tuple[dict[str, object], dict[str, object]], root: Path, expected: Expected
) -> None:
    _, batch = receipts
    assert {name: batch[name] for name in expected.batch} == dict(expected.batch)
    assert min(expected.batch[name] for name in ("stored", "failed", "rejected", "duplicates")) > 0
    assert batch["submitted"] == expected.batch.total() == len(batch_urls(BASE))
    assert batch["complete"] is True
    documents = polars.read_parquet(root / "documents/**/*.parquet").filter(polars.col("load_id") == batch["load_id"])
    assert Counter(documents["status_code"]) == expected.batch_statuses
    sources = Counter(documents["source_url"])
    assert max(sources.values()) == 1, "the URL that stands twice in the list was sent once"
    errors = duckdb.execute(
        "SELECT outcome, count(*) FROM read_parquet(?) WHERE load_id = ? GROUP BY ALL",
        [str(root / "page_errors/**/*.parquet"), batch["load_id"]],
    ).fetchall()
    assert dict(errors) == {name: expected.batch[name] for name in ("failed", "rejected")}


def test_the_markdown_is_the_content_without_boilerplate(first: Ran, root: Path) -> None:
    assert first.code == 0
    documents = polars.read_parquet(root / "documents/**/*.parquet")
    texts = {_path(row["url"]): row for row in documents.iter_rows(named=True)}
    note = texts["/notes/the-flood-of-march"]
    assert note["title"] == "The flood of March"
    assert "| Station" in note["markdown"]
    for noise in ("cookie", "Newsletter", "Volunteers' rota", "Waders", "Skip to content"):
        assert noise not in note["markdown"]
    assert texts["/warnings/ar"]["markdown"].startswith("# عندما تسمعون")
    assert texts["/warnings/ar"]["language"] == "ar"
    assert "naïve façade and Œuvre" in texts["/archive/leaflet-1974"]["markdown"]
    assert texts["/archive/field-book"]["title"] is None
    assert note["og_locale_alternate"] == ["uk_UA", "el_GR", "ar"]


def test_the_demo_lands_usage_and_activity(first: Ran, root: Path, guests: bool, expected: Expected) -> None:
    told = json.loads(first.out)
    by_key = {
        "nightly-crawl": len(expected.crawled),
        "hourly-batch": expected.batch["stored"],
        # The map of the site, from which an asset takes what is due, costs a credit.
        **({"airflow": len(expected.notes), "dagster": expected.assets + 1} if guests else {}),
    }
    assert told["usage"]["by_api_key"] == by_key
    assert told["usage"]["credits"] == sum(by_key.values())
    rows = duckdb.execute(
        "SELECT api_key, total_credits FROM read_parquet(?)",
        [str(root / "usage_periods/*=credits_by_key/**/*.parquet")],
    ).fetchall()
    assert dict(rows) == told["usage"]["by_api_key"]
    activity = polars.read_parquet(root / "activity/**/*.parquet")
    assert set(activity["endpoint"]) == {"crawl", "batch_scrape", *(["map"] if guests else [])}
    jobs = activity.filter(polars.col("endpoint") != "map")
    assert set(jobs["id"]) == {load["job_id"] for load in told["loads"]}


def test_airflow_lands_its_part_of_the_site_beside_the_other_loads(whole: Ran, home: Path, expected: Expected) -> None:
    receipt = json.loads(whole.out)["loads"][2]
    assert re.search(r"airflow\s+the DAG site_crawl_by_day, run by Airflow 3\.\d+\.\d+: 10 documents", whole.err)
    assert (receipt["stored"], receipt["complete"]) == (len(expected.notes), True)
    rows = duckdb.execute(
        "SELECT url FROM read_parquet(?) WHERE load_id = ?",
        [str(home / "whole lake/documents/**/*.parquet"), receipt["load_id"]],
    ).fetchall()
    assert {_path(url) for (url,) in rows} == expected.notes
    assert not (home / "mine").exists(), "the Airflow that somebody has set up is not touched"


def test_dagster_lands_the_example_assets_beside_the_other_loads(whole: Ran, home: Path, expected: Expected) -> None:
    stations, due, watched, warnings = json.loads(whole.out)["loads"][3:]
    said = rf"dagster\s+\d+ assets, made by Dagster 1\.\d+\.\d+: {expected.assets} documents, \d+ checks passed"
    assert re.search(said, whole.err)
    for receipt, paths in (
        (stations, expected.stations),
        (due, expected.due),
        (watched, expected.watched),
        (warnings, expected.warnings),
    ):
        rows = duckdb.execute(
            "SELECT url FROM read_parquet(?) WHERE load_id = ?",
            [str(home / "whole lake/documents/**/*.parquet"), receipt["load_id"]],
        ).fetchall()
        assert {_path(url) for (url,) in rows} == paths
        assert (receipt["stored"], receipt["complete"]) == (len(paths), True)
    assert watched["kind"] == "batch_scrape"
    assert 0 < due["fresh"] <= len(expected.crawled) - len(expected.due), "what has landed is not bought again"
    assert 0 < len(expected.watched) < len(expected.stations), "the list was made of what the crawl had landed"
    assert not (home / "my dagster").exists(), "the Dagster that somebody has set up is not touched"
    assert not (home / "not here").exists()


def test_output_has_colours_on_a_terminal_only(home: Path) -> None:
    (home / DEFAULT_ROOT).mkdir()
    (home / DEFAULT_ROOT / "mine.txt").write_text("not to be touched")
    ran = Ran(cwd=home, code=WITHOUT_GUESTS)
    assert ran.code == 0, ran.err
    assert "left out: airflow_provider_weblake not installed; pip install airflow-provider-weblake" in ran.err
    assert "left out: dagster_weblake not installed; pip install dagster-weblake 'weblake[pandas]'" in ran.err
    assert os.listdir(home / DEFAULT_ROOT) == ["mine.txt"]
    fresh = f"{DEFAULT_ROOT}-2"
    assert f"dataset  {fresh}/" in ran.err
    assert "\x1b" not in ran.out + ran.err
    assert "\r" not in ran.out + ran.err
    for part in ("What landed", "Pages without a document", "robots.txt forbids it", "Usage", "█"):
        assert part in ran.out
    assert max(len(line) for line in ran.out.splitlines() if not line.startswith("  ")) <= 80
    for _, command in next_commands(fresh):
        assert command in ran.out


def test_the_suggested_commands_work(first: Ran, home: Path, root: Path) -> None:
    assert first.code == 0
    commands = dict(next_commands(root.name))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def output(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=home,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "crawl" in output(commands["what has landed"])
    assert {"200", "404", "500"} <= set(re.findall(r"\b\d{3}\b", output(commands["the files in DuckDB"])))


def test_s1_a_second_run_adds_its_loads_and_writes_no_key(
    whole: Ran, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = (f"test-canary-{number}" for number in range(1, 9))
    started: list[Sequence[str]] = []

    class Watched(subprocess.Popen[bytes]):
        def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **kwargs: Any) -> None:
            if given := {name: value for name, value in env.items() if "test-canary" in value}:
                number, name = (("4", "WEBLAKE_API_KEY"), ("3", "AIRFLOW_CONN_WEBLAKE_DEFAULT"))[not started]
                assert list(given) == [name]
                assert f"test-canary-{number}" in given[name]
                started.append(command)
            super().__init__(command, env=env, **kwargs)

    monkeypatch.setattr("weblake.demo.orchestrators.subprocess.Popen", Watched)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr("weblake_service.config.new_key", lambda: next(keys))
    threads = set(threading.enumerate())
    root = tmp_path / "lake"
    shutil.copytree(home / "whole lake", root)
    run_demo(root, as_json=True)
    shown = capfd.readouterr()

    assert next(keys) == "test-canary-5", "the four keys of the demo came from here"
    assert len(started) == 2
    assert "test-canary" not in " ".join([*started[0], *started[1]])
    assert os.listdir(scratch) == [], "the homes of Airflow and Dagster are gone"
    assert not contains_secret((shown.out + shown.err).encode(), "test-canary-")
    files = [path for path in root.rglob("*") if path.is_file()]
    assert root / DATABASE in files
    assert in_files([tmp_path], "test-canary-") == []
    left = set(threading.enumerate()) - threads
    assert not [thread for thread in left if thread.name in ("demo site", "weblake service")]

    assert "7 loads have landed before" in shown.err
    before, told = json.loads(whole.out), json.loads(shown.out)
    assert not {load["load_id"] for load in before["loads"]} & {load["load_id"] for load in told["loads"]}
    assert [load["stored"] for load in told["loads"]] == [load["stored"] for load in before["loads"]]
    documents = polars.read_parquet(root / "documents/**/*.parquet")
    assert told["usage"]["credits"] == 2 * before["usage"]["credits"]
    # The DAG's second load of a day takes the place of its first.
    replaced = before["loads"][2]
    assert replaced["load_id"] not in set(documents["load_id"])
    assert documents["load_id"].n_unique() == 13
    maps = 2
    assert documents.height == told["usage"]["credits"] - replaced["stored"] - maps
    assert told["activity"]["entries"] == 14 + maps


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageRefused, match="cannot write to"):
        run_demo(tmp_path / "file")
    with pytest.raises(InvalidOption, match="local directory"):
        run_demo(Path("s3://bucket/lake"))


def test_ctrl_c_ends_the_demo_with_one_line(demo: subprocess.Popen[str]) -> None:
    assert demo.stderr is not None
    for line in demo.stderr:
        if "service" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest = demo.stderr.read()
    assert demo.wait(120) == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest

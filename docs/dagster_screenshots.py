"""Makes docs/images/dagster-*.png anew: a real Dagster runs the example project, and Chromium looks at its pages.

    uv run python docs/dagster_screenshots.py [--into docs/images]

The project is used as it is shipped, with the embedded service for an API, a site on this machine to crawl, and an S3
server on this machine for the lake. The service has seen eight months: its clock starts that far back. Needs Debian's
chromium and two or three minutes; nothing leaves the machine.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import cycle, pairwise
from pathlib import Path
from sqlite3 import Connection

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "dagster_resources"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labs"))

from dagster_lab import DagsterLab
from headless_browser import WIDTH, Browser
from screenshot_program import Page, lake_server, make_pictures

import dagster_weblake
from weblake import Client
from weblake.demo.site import DemoSite
from weblake_service.components import open_store
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

IMAGES = Path(__file__).with_name("images")
PROJECT = Path(dagster_weblake.__file__).with_name("example_project")
BUCKET, ROOT = "lake", "s3://lake/web"
#: The crawl and what follows from it; the asset that a sensor has collected.
SITE, COLLECTED = ("site_pages", "watch_list", "watched_pages", "page_report"), "site_documents"
#: The first month of the example's usage; pages scraped in each month from then on, over and over.
FIRST, USED = datetime(2026, 4, 1, 12, tzinfo=timezone.utc), (38, 52, 41, 77, 64, 90, 71)
#: The code location's name, and what the plots of a partitioned asset are explained with.
LOCATION, BY_PARTITION = "web_lake.definitions", "When graphing values by partition"
#: Pixels of a window in which a whole page can be seen, and of one that is as high as most screens.
TALL, LOW = 2600, 1000

#: Where the last element with this very text begins, or the table's row that it is in; %s is the text as JSON.
_TOP = """(name => {
    const found = [...document.querySelectorAll('body *')].filter(
        each => !each.children.length && each.innerText?.trim() === name).at(-1);
    return found ? Math.floor((found.closest('tr') ?? found).getBoundingClientRect().top) : null;
})(%s)"""
#: All groups of the graph unfold.
_PRESS_ALT_E = "document.body.dispatchEvent(new KeyboardEvent('keydown', {code: 'KeyE', altKey: true, bubbles: true}))"
#: The list beside the graph; the navigation has a button of the same name.
_CLOSE_LIST = "[...document.querySelectorAll('button [aria-label=panel_show_right]')].at(-1).closest('button').click()"

#: The tags of a run over several partitions.
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dataclass(frozen=True)
class Example:
    """A running Dagster with the example in it, and what it needs to know."""

    dagster: DagsterLab
    service_url: str
    key: str
    site_url: str
    #: The partitions of `usage`, by their keys.
    months: Sequence[str]

    def run(self) -> str:
        """Materializes the whole example, and returns the run of the crawl; a sensor lands the job nobody waits for."""
        crawl = self.dagster.launch(SITE)
        part = f"{self.site_url}/warnings/"
        self._succeeded(self.dagster.launch(["sites"], run_config={"ops": {"sites": {"config": {"sites": [part]}}}}))
        self._succeeded(self.dagster.launch([f"{COLLECTED}_job"], part))
        (collected,) = self.dagster.wait_sensor_runs(f"{COLLECTED}_collect")
        self._succeeded(collected)
        self._succeeded(crawl)
        # Last, so that this month has all that was used.
        all_months = dict(zip(_RANGE, (self.months[0], self.months[-1]), strict=True))
        self._succeeded(self.dagster.launch(["usage", "activity"], tags=all_months))
        return crawl

    def _succeeded(self, run_id: str) -> None:
        self.dagster.wait_status(run_id, {"SUCCESS"}, timeout=240)


class Window(Browser):
    """A window that can be made as high as what is to be seen in it."""

    def heighten(self, pixels: int = TALL) -> None:
        """Makes it so high; the width stays."""
        self.resize(WIDTH, pixels)

    def wait_without(self, text: str) -> None:
        """Waits until this cannot be read on the page any more."""
        self._until(f"{text!r} to go from the page", lambda: text not in self.text())

    def end_above(self, name: str) -> None:
        """Makes the window end above the table's row, or whatever else, that begins with this text."""
        before: int | None = None

        def still() -> int | None:
            nonlocal before
            now, before = before, self.run(_TOP % json.dumps(name))
            return now if now == before else None

        self.heighten()
        self.heighten(self._until(f"something called {name!r}", still))


@contextmanager
def example(folder: Path) -> Iterator[Example]:
    """Dagster, the service, the site and the lake, all of them new; gone when the block is left.

    :param folder: an empty directory for all that is written.
    """
    key = f"canary-{secrets.token_hex(16)}"
    now = datetime.now(timezone.utc)
    months = _months(now)
    database = folder / "service.db"
    _set_back(database, now - months[0])
    with (
        _lake() as lake,
        DemoSite() as site,
        LocalService(database, keys=[ServiceKey(key)], allow_private=True) as service,
    ):
        _use(service, site, [*months[:-1], now])
        env = {
            **lake,
            "PYTHONPATH": str(PROJECT),
            "WEBLAKE_BASE_URL": service.url,
            "WEBLAKE_API_KEY": key,
            "WEBLAKE_ROOT": ROOT,
            "EXAMPLE_SITE": f"{site.url}/",
        }
        with DagsterLab(folder / "dagster", LOCATION, env) as dagster:
            yield Example(dagster, service.url, key, site.url, [f"{month:%Y-%m-01}" for month in months])


@dataclass(frozen=True)
class Tour:
    """Someone who looks at Dagster's pages, and keeps them by the names of their pictures."""

    url: str
    browser: Window
    images: Path
    pages: dict[str, Page] = field(default_factory=dict)

    def visit(self, path: str, *texts: str, height: int = TALL) -> None:
        """Goes to a page, and waits until all of these can be read there."""
        self.browser.heighten(height)
        self.browser.open(f"{self.url}{path}")
        self.browser.wait_for(*texts)

    def look(self, name: str, *texts: str, end_above: str = "") -> None:
        """Keeps the page once all of these can be read there, and a picture if the name is one's."""
        self.browser.wait_for(*texts)
        if name.endswith(".png"):
            self.browser.wait_without("seconds ago")  # which would be another picture every second
            if end_above:
                self.browser.end_above(end_above)
            else:
                self.browser.heighten(LOW)
            self.browser.screenshot(self.images / name)
        self.pages[name] = Page(self.browser.text(), self.browser.source())


def tour(shown: Example, browser: Window, images: Path) -> dict[str, Page]:
    """Lets the example run, and looks at it; returns the pages by the names of their pictures.

    Pages without a picture are there too, under names without `.png`.
    """
    crawl = shown.run()
    (load, *_) = shown.dagster.materializations("site_pages")
    seen = Tour(shown.dagster.url, browser, images)
    seen.visit("/assets/site_pages", "Hide navigation")
    browser.click("Hide navigation")
    _crawl(seen, load.timestamp)
    _graph(seen, len(shown.months))
    _usage(seen)
    seen.visit(f"/locations/{LOCATION}/resources/weblake")
    seen.look("resource", "WEBLAKE_API_KEY")
    seen.visit(f"/runs/{crawl}")
    seen.look("run", "RUN_SUCCESS")
    return seen.pages


def _crawl(seen: Tour, landed_at: float) -> None:
    there = ("Latest check results", "weblake/load_id", "WeblakeCrawlComponent")
    seen.look("dagster-asset.png", *there, end_above="og_locale_alternate")
    seen.visit(f"/assets/site_pages?view=events&time={round(landed_at * 1000)}")
    seen.look("dagster-load.png", "weblake/job_id", "outcomes", end_above="outcomes")
    seen.visit("/assets/site_pages?view=checks&checkDetail=error_ratio")
    seen.look("dagster-checks.png", "Latest execution", "Passed", end_above="Plots")


def _graph(seen: Tour, months: int) -> None:
    seen.visit("/asset-groups", "account", "site", "sites")
    # What a person sets in the graph's own menus; the picture of a graph that grows to the right would be small.
    seen.browser.run("localStorage.setItem('asset-graph-direction', JSON.stringify('vertical'))")
    seen.browser.run(_PRESS_ALT_E)
    # Nor are the assets in it that take a browser: four groups are shown so small that they have no text.
    seen.visit("/asset-groups~not%20group:%22browser%22", "site_documents_job", "usage", "page_report", height=LOW)
    seen.browser.run(_CLOSE_LIST)
    seen.browser.click("zoom_in")
    checked = ("6 / 6 Passed", "5 / 5 Passed", "1 / 1 Passed")
    seen.look("dagster-graph.png", f"{months} partitions", "pandas", *checked)


def _usage(seen: Tour) -> None:
    seen.visit("/assets/usage", "usage_by_month")
    for section in ("Description", "Columns"):
        seen.browser.click(section)
    seen.browser.heighten()
    seen.browser.click("Plots")
    seen.look("dagster-usage-plots.png", BY_PARTITION, "weblake/credits", end_above="weblake/bytes")


def _months(now: datetime) -> list[datetime]:
    """The months of the example's usage, the running one last, each by the noon of its first day in UTC."""
    places = range(FIRST.year * 12 + FIRST.month - 1, now.year * 12 + now.month)
    return [FIRST.replace(year=place // 12, month=place % 12 + 1) for place in places]


def _set_back(database: Path, ago: timedelta) -> None:
    """Makes a database whose service's clock begins so long ago; a running clock only goes forward."""
    store = open_store(database)

    def work(db: Connection) -> None:
        db.execute("INSERT INTO meta VALUES ('clock_offset', ?)", (str(-ago.total_seconds()),))

    try:
        store.write_now(work)
    finally:
        store.close()


def _use(service: LocalService, site: DemoSite, moments: Sequence[datetime]) -> None:
    """Scrapes at each moment but the last what was scraped in that month; the service's clock ends at the last one."""
    with Client(service.url, service.key) as client:
        for number, (moment, following) in zip(cycle(USED), pairwise(moments), strict=False):
            for _ in range(number):
                client.scrape(f"{site.url}/")
            service.advance((following - moment).total_seconds())


@contextmanager
def _lake() -> Iterator[dict[str, str]]:
    """An S3 server on this machine with the bucket in it; the environment that leads there."""
    with lake_server(BUCKET) as url:
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-key",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


def _make(folder: Path) -> None:
    with example(folder / "example") as shown, Window(folder / "browser") as browser:
        tour(shown, browser, folder / "images")


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all pictures and says where they are; nothing is replaced unless all could be made."""
    return make_pictures(__doc__, IMAGES, _make, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

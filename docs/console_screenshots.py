"""Makes docs/images/console-*.png anew: the embedded service crawls a site, and Chromium looks at its console.

    uv run python docs/console_screenshots.py [--into docs/images]

The crawl stands still half-way while it is looked at. Needs Debian's chromium and half a minute; nothing leaves the
machine.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labs"))

from headless_browser import Browser
from polling import until
from screenshot_program import Page, Tour, make_pictures
from websockets.sync.client import connect

from weblake import Client
from weblake.demo.site import DemoSite
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

IMAGES = Path(__file__).with_name("images")
#: A page of the site at which the crawl stands still, and how many it has by then.
HELD, ENOUGH = "/stations/", 8
SECONDS = 60.0
VIEWED = "document.getElementById('live')?.contentDocument?.body?.innerText"
#: A page of a host that there is not.
GONE = "http://no-such-host.invalid/"


@dataclass(frozen=True)
class Example:
    """A service with a job that has ended and a crawl that is half-way."""

    service: LocalService
    key: str
    batch_id: str
    crawl_id: str
    session_id: str

    def let_go(self) -> None:
        """Lets the crawl go on."""
        self.service.faults()


@contextmanager
def example() -> Iterator[Example]:
    """The service, its site and its jobs, all of them new; gone when the block is left."""
    key = f"canary-{secrets.token_hex(16)}"
    with (
        DemoSite() as site,
        LoopbackServer(_thanks, "receiver") as receiver,
        LocalService(keys=[ServiceKey(key, name="nightly", team="analytics")], allow_private=True) as service,
        Client(service.url, key) as client,
    ):
        urls = [f"{site.url}{path}" for path in ("/about", "/data/", "/notes/soup-supper")] + [GONE]
        webhook = {"url": f"{receiver.url}/hooks", "events": ["started", "completed"]}
        batch = client.start_batch_scrape(urls, formats=["markdown", "links"], webhook=webhook)
        until(lambda: client.get_batch_scrape(batch.id).status == "completed", SECONDS)
        service.faults({"match": {"path": HELD}, "times": 1, "effect": {"stall_job": True}})
        crawl = client.start_crawl(f"{site.url}/", limit=40)
        until(lambda: (client.get_crawl(crawl.id).completed or 0) >= ENOUGH, SECONDS)
        session = client.create_browser(ttl=300)
        with connect(str(session.cdp_url), proxy=None) as socket:
            socket.send(json.dumps({"id": 1, "method": "Target.createTarget", "params": {"url": f"{site.url}/"}}))
            socket.recv()
        yield Example(service, key, batch.id, crawl.id, str(session.id))


def tour(shown: Example, browser: Browser, images: Path) -> dict[str, Page]:
    """Signs in and looks around; returns the pages by the names of their pictures, or names without `.png`."""
    seen = Tour(shown.service.url, browser, images)
    visit, look = seen.visit, seen.look
    visit("/")
    look("sign-in", "API key")
    browser.write("key", shown.key)
    browser.click("Sign in")
    look("console-overview.png", "Running", shown.crawl_id[:8], "scraping")
    visit(f"/console/jobs/{shown.crawl_id}")
    look("console-job.png", shown.crawl_id, "stored")
    visit(f"/console/jobs/{shown.batch_id}")
    look("batch", GONE, "Failed pages", "Webhooks")
    visit(f"/console/jobs/{shown.batch_id}/documents/0")
    look("console-document.png", "markdown", "metadata")
    visit("/console/usage")
    look("usage", "Credits this month", "nightly")
    visit("/console/deliveries")
    look("deliveries", "batch_scrape.completed", "delivered")
    visit(f"/console/browsers/{shown.session_id}")
    # The view is a document of its own, so its words are waited for there.
    until(lambda: "http://127.0.0.1" in str(browser.run(VIEWED)), SECONDS)
    look("console-browser.png", shown.session_id, "The view on a page of its own")
    browser.resize(390, 844)
    visit("/")
    look("console-phone.png", "Running", shown.crawl_id[:8])
    seen.pages["phone-width"] = Page(str(browser.run("document.documentElement.scrollWidth")), "")
    return seen.pages


def _thanks(asked: LoopbackRequest) -> LoopbackResponse:
    return LoopbackResponse(200)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all pictures, or none."""

    def make(folder: Path) -> None:
        with example() as shown, Browser(folder / "browser") as browser:
            tour(shown, browser, folder / "images")

    return make_pictures(__doc__, IMAGES, make, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

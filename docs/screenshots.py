"""Makes the pictures in docs/images anew: a real Airflow runs an example DAG, and Chromium looks at its pages.

    uv run python docs/screenshots.py [--into docs/images]

The DAG is `site_crawl_by_day` as it is shipped, with the embedded service for an API, a site on this machine to crawl,
and an S3 server on this machine for the lake. The connection is filled in where people do it, in the form. Needs
Debian's chromium and a minute or two; nothing leaves the machine.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "airflow_provider"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labs"))

from airflow_lab import AirflowLab
from headless_browser import Browser
from screenshot_program import Page, Tour, lake_server, make_pictures

import airflow_provider_weblake
from weblake.demo.site import DemoSite
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

IMAGES = Path(__file__).with_name("images")
EXAMPLE = Path(airflow_provider_weblake.__file__).with_name("example_dags") / "site_crawl_by_day.py"
DAG, CONSUMER, TASK = "site_crawl_by_day", "site_crawl_report", "crawl"
#: What the example has by itself: the site, which is made one of this machine, and the root, which stays.
SITE, BUCKET, ROOT = '"https://example.org/"', "lake", "s3://aws_default@lake/web"
ASSET = "weblake://s3/lake/web/documents"
#: Where people look at a job: what the extra link leads to.
JOB_URL = "https://app.example.com/jobs/{kind}/{job_id}"

#: JSON is folded some time after it is there, and only then unfolds.
FOLDED = "{\n}"


@dataclass(frozen=True)
class Example:
    """A running Airflow with the example in it, and what it needs to know."""

    airflow: AirflowLab
    service_url: str
    key: str

    def run(self) -> str:
        """Lets the schedule start both DAGs, waits until each has succeeded once, and returns the first one's run."""
        for dag_id in (CONSUMER, DAG):
            self.airflow.unpause(dag_id)
        run_id, _ = [self._succeeded(dag_id) for dag_id in (DAG, CONSUMER)]
        return run_id

    def _succeeded(self, dag_id: str) -> str:
        runs = f"/dags/{dag_id}/dagRuns"
        (first, *_) = self.airflow.until(f"a run of {dag_id}", lambda: self.airflow.api("GET", runs)["dag_runs"], 180)
        run_id = str(first["dag_run_id"])
        state = self.airflow.wait_run(dag_id, run_id, timeout=240)
        assert state == "success", self.airflow.describe(dag_id, run_id)
        return run_id


@contextmanager
def example(folder: Path) -> Iterator[Example]:
    """Airflow, the service, the site and the lake, all of them new; gone when the block is left.

    :param folder: an empty directory for all that is written.
    """
    key = f"canary-{secrets.token_hex(16)}"
    with (
        _lake() as lake,
        DemoSite() as site,
        LocalService(keys=[ServiceKey(key)], allow_private=True) as service,
    ):
        code = EXAMPLE.read_text()
        assert code.count(SITE) == 1, f"{EXAMPLE} has no longer the one default {SITE}; change SITE here"
        (folder / "dags").mkdir()
        (folder / "dags" / EXAMPLE.name).write_text(code.replace(SITE, json.dumps(f"{site.url}/")))
        env = {"AIRFLOW_CONN_AWS_DEFAULT": json.dumps(lake), "WEBLAKE_ROOT": ROOT}
        with AirflowLab(folder / "airflow", folder / "dags", env) as airflow:
            airflow.wait_for_dags({DAG, CONSUMER})
            yield Example(airflow, service.url, key)


def tour(shown: Example, browser: Browser, images: Path) -> dict[str, Page]:
    """Fills in the connection, lets the example run, and looks at it; returns the pages by the names of their pictures.

    Pages without a picture are there too, under names without `.png`.
    """
    seen = Tour(shown.airflow.url, browser, images)
    visit, look = seen.visit, seen.look
    visit("/connections")
    browser.click("Add Connection")
    browser.write("connection_id", "weblake_default")
    browser.write("Select Connection Type", "weblake")
    browser.click("weblake")
    look("connection.png", "Base URL", "API key")
    browser.write("host", shown.service_url)
    browser.write("password", shown.key)
    browser.click("Extra Fields")
    browser.write("element_job_url", JOB_URL)
    browser.run("document.querySelector('[role=dialog]').scrollIntoView({block: 'end'})")
    look("connection-extra.png", "Job page", JOB_URL)
    browser.click("Save")
    browser.wait_for("successfully created")
    visit("/connections")
    look("connections", "weblake_default", shown.service_url)
    browser.click("Edit Connection")
    look("connection again", "Base URL", shown.service_url)

    # As Airflow's own links have it: spelt otherwise, the page does not see which of its tabs it shows.
    task = f"/dags/{DAG}/runs/{quote(shown.run(), safe=':+')}/tasks/{TASK}"
    visit(f"{task}/details")
    look("run.png", "Scrape job", "Success", "success", "WeblakeCrawlOperator")
    visit(f"{task}/xcom")
    browser.wait_for("return_value", FOLDED)
    browser.click("Expand all extra JSON")
    look("receipt.png", "job_id", '"stored": ', '"credits_used": ')
    visit("/assets")
    browser.click(ASSET)
    browser.wait_for("1 Asset Event", FOLDED)
    browser.click("Click to expand the range.")
    look("asset.png", DAG, CONSUMER, '"stored": ')
    return seen.pages


@contextmanager
def _lake() -> Iterator[dict[str, object]]:
    """An S3 server on this machine with the bucket in it; the Airflow connection that leads there."""
    with lake_server(BUCKET) as url:
        place = {"endpoint_url": url, "region_name": "us-east-1"}
        yield {"conn_type": "aws", "login": "test-key", "password": "test-key", "extra": place}


def _make(folder: Path) -> None:
    with example(folder / "example") as shown, Browser(folder / "browser") as browser:
        tour(shown, browser, folder / "images")


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all pictures and says where they are; nothing is replaced unless all could be made."""
    return make_pictures(__doc__, IMAGES, _make, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

"""Makes the site's pictures anew from real runs: a result, the credits by month, the console, Airflow and Dagster.

    uv run python docs/pictures.py                    all of them, in a few minutes
    uv run python docs/pictures.py result credits     some: result credits console airflow dagster

The embedded service scrapes a site on this machine, and Debian's chromium looks at the pages, in light and in dark.
Nothing leaves the machine. Nothing is replaced by a run that fails.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from itertools import cycle, pairwise
from pathlib import Path
from sqlite3 import Connection
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labs"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "airflow_provider"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "dagster_resources"))

from airflow_lab import AirflowLab
from command_in_process import run_command
from dagster_lab import DagsterLab
from headless_browser import Browser
from lake_server import lake_server
from polling import until

import airflow_provider_weblake
import dagster_weblake
from weblake import Client
from weblake.demo.site import DemoSite
from weblake_service.components import open_store
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

IMAGES = Path(__file__).resolve().parent / "site" / "images"
ROOT = "s3://lake/web"
#: Pages scraped in each month before the running one, over and over.
USED = (38, 52, 41, 77, 64, 90, 71)
FIRST = datetime(2026, 4, 1, 12, tzinfo=timezone.utc)
#: Colours of text, lines and bars that can be read on white and on black.
COLORS = {"light": ("#1f2937", "#d1d5db", "#2563eb"), "dark": ("#e5e7eb", "#4b5563", "#60a5fa")}
QUERY = """SELECT url, left(title, 30) AS title, length(markdown) AS chars
FROM 'lake/documents/*=*/*.parquet' ORDER BY chars DESC LIMIT 6"""


@contextmanager
def service(database: Path | None = None) -> Iterator[tuple[LocalService, DemoSite]]:
    """A new service and a new site."""
    where = () if database is None else (database,)
    with DemoSite() as site, LocalService(*where, keys=[ServiceKey("test-key")], allow_private=True) as running:
        yield running, site


def weblake(running: LocalService, *arguments: str) -> str:
    """Return what a command of weblake prints."""
    env = {"WEBLAKE_BASE_URL": running.url, "WEBLAKE_API_KEY": "test-key", "COLUMNS": "88"}
    code, out, error = run_command(arguments, env)
    assert code == 0, error
    return out


def both(browser: Browser, images: Path, name: str, wait: Callable[[], object] = lambda: None) -> None:
    """Make two pictures of the page: in light and in dark colours."""
    for scheme in ("light", "dark"):
        browser.use_colors(scheme)
        wait()
        browser.screenshot(images / f"{name}-{scheme}.png")


def result(folder: Path, images: Path) -> None:
    """A crawl on the command line, and its pages in DuckDB, as a terminal."""
    import duckdb
    from rich.console import Console
    from rich.text import Text

    shown = Console(record=True, width=92, file=io.StringIO())
    with service() as (running, site):
        printed = weblake(running, "crawl", f"{site.url}/", "--limit", "20", "--to", f"{folder}/lake")
        where = site.url
    shown.print(Text("$ weblake crawl https://example.org/ --limit 20 --to lake", style="bold"))
    kept = [line for line in printed.splitlines() if re.match(r" (stored|failed|complete|credits used) ", line)]
    shown.print(Text("\n".join(kept)))
    first, second = QUERY.splitlines()
    shown.print(Text(f'\n>>> duckdb.sql("{first}\n...              {second}")', style="bold"))
    # The address of the site is the one that the command shows.
    query = QUERY.replace("url", f"replace(url, '{where}', 'https://example.org') AS url", 1)
    shown.print(Text(str(duckdb.sql(query.replace("'lake", f"'{folder}/lake"))).rstrip()))
    # The fonts of rich come from another host; the reader's own are as good.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", shown.export_svg(title="A crawl and its rows"), flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    assert where not in svg
    (images / "result.svg").write_text(svg)


def used_service(folder: Path) -> Path:
    """Return a database whose service's clock begins at the first month; a running clock only goes forward."""
    database = folder / "service.db"
    store = open_store(database)

    def work(db: Connection) -> None:
        ago = datetime.now(timezone.utc) - FIRST
        db.execute("INSERT INTO meta VALUES ('clock_offset', ?)", (str(-ago.total_seconds()),))

    try:
        store.write_now(work)
    finally:
        store.close()
    return database


def use(running: LocalService, site: DemoSite) -> list[str]:
    """Scrape in each month what was scraped in it, up to now; return the first days of the months."""
    now = datetime.now(timezone.utc)
    places = range(FIRST.year * 12 + FIRST.month - 1, now.year * 12 + now.month)
    months = [FIRST.replace(year=place // 12, month=place % 12 + 1) for place in places]
    with Client(running.url, "test-key") as client:
        for number, (moment, following) in zip(cycle(USED), pairwise([*months[:-1], now]), strict=False):
            for _ in range(number):
                client.scrape(f"{site.url}/")
            running.advance((following - moment) / timedelta(seconds=1))
        for _ in range(35):
            client.scrape(f"{site.url}/")
    return [f"{month:%Y-%m-01}" for month in months]


def credits_by_month(folder: Path, images: Path) -> None:
    """The credits by month of a dataset's usage reports, as bars."""
    import duckdb

    with service(used_service(folder)) as (running, site):
        use(running, site)
        weblake(running, "usage", "credits", "--by-api-key", "--to", f"{folder}/lake")
    reports = duckdb.read_parquet(f"{folder}/lake/usage_periods/report=credits_by_key/**/*.parquet")
    months = reports.aggregate("period_start, sum(total_credits) AS credits").order("period_start")
    rows = months.project("strftime(period_start, '%b'), credits").fetchall()
    most = max(credits for _, credits in rows)
    for scheme, (ink, line, bar) in COLORS.items():
        parts = [f'<line x1="30" y1="190" x2="{40 + 70 * len(rows)}" y2="190" stroke="{line}"/>']
        for n, (month, credits) in enumerate(rows):
            x, height = 40 + 70 * n, 150 * credits / most
            parts += [
                f'<rect x="{x}" y="{190 - height:.1f}" width="46" height="{height:.1f}" rx="3" fill="{bar}"/>',
                f'<text x="{x + 23}" y="{183 - height:.1f}" fill="{ink}">{credits:g}</text>',
                f'<text x="{x + 23}" y="208" fill="{ink}">{month}</text>',
            ]
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {50 + 70 * len(rows)} 220"'
        style = 'font-family="system-ui, sans-serif" font-size="13" text-anchor="middle">'
        (images / f"credits-{scheme}.svg").write_text("\n".join([f"{head} {style}", *parts, "</svg>\n"]))


def console(folder: Path, images: Path) -> None:
    """The console's overview, while a crawl stands still half-way."""
    with service() as (running, site), Client(running.url, "test-key") as client, Browser(folder) as browser:
        urls = [f"{site.url}{path}" for path in ("/about", "/data/", "/notes/soup-supper")]
        batch = client.start_batch_scrape([*urls, "http://no-such-host.invalid/"], formats=["markdown", "links"])
        until(lambda: client.get_batch_scrape(batch.id).status == "completed", 60.0)
        running.faults({"match": {"path": "/stations/"}, "times": 1, "effect": {"stall_job": True}})
        crawl = client.start_crawl(f"{site.url}/", limit=40)
        until(lambda: (client.get_crawl(crawl.id).completed or 0) >= 8, 60.0)
        browser.open(running.url)
        browser.wait_for("API key")
        browser.write("key", "test-key")
        browser.click("Sign in")
        browser.wait_for("Running", str(crawl.id)[:8], "scraping")
        browser.resize(1200, 720)
        both(browser, images, "console")
        running.faults()


def airflow(folder: Path, images: Path) -> None:
    """The run of the example DAG that crawls a site by day, with the grid beside it."""
    name = "site_crawl_by_day"
    example = Path(airflow_provider_weblake.__file__).with_name("example_dags") / f"{name}.py"
    code, default = example.read_text(), '"https://example.org/"'
    assert code.count(default) == 1, f"{example} has no longer the one default {default}"
    with lake_server("lake") as lake, service() as (running, site), ExitStack() as stack:
        (folder / "dags").mkdir()
        (folder / "dags" / example.name).write_text(code.replace(default, json.dumps(f"{site.url}/")))
        extra = {"endpoint_url": lake, "region_name": "us-east-1"}
        aws = {"conn_type": "aws", "login": "test-key", "password": "test-key", "extra": extra}
        own = {"conn_type": "weblake", "host": running.url, "password": "test-key"}
        env = {
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(aws),
            "AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(own),
            "WEBLAKE_ROOT": "s3://aws_default@lake/web",
        }
        lab = stack.enter_context(AirflowLab(folder / "airflow", folder / "dags", env))
        browser = stack.enter_context(Browser(folder))
        lab.wait_for_dags({name})
        lab.unpause(name)
        runs = lab.until("a run", lambda: lab.api("GET", f"/dags/{name}/dagRuns")["dag_runs"], 180)
        run = str(runs[0]["dag_run_id"])
        state = lab.wait_run(name, run, timeout=240)
        assert state == "success", lab.describe(name, run)
        browser.resize(1300, 640)
        # As Airflow's own links have it: spelt otherwise, the page does not see which of its tabs it shows.
        browser.open(f"{lab.url}/dags/{name}/runs/{quote(run, safe=':+')}/tasks/crawl/details")
        both(browser, images, "airflow-run", lambda: browser.wait_for("Scrape job", "WeblakeCrawlOperator"))


def dagster(folder: Path, images: Path) -> None:
    """The asset of the example project that crawls a site, with its checks and metadata."""
    project = Path(dagster_weblake.__file__).with_name("example_project")
    with lake_server("lake") as lake, service() as (running, site), ExitStack() as stack:
        env = {
            "AWS_ENDPOINT_URL": lake,
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-key",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYTHONPATH": str(project),
            "WEBLAKE_BASE_URL": running.url,
            "WEBLAKE_API_KEY": "test-key",
            "WEBLAKE_ROOT": ROOT,
            "EXAMPLE_SITE": f"{site.url}/",
        }
        lab = stack.enter_context(DagsterLab(folder / "dagster", "web_lake.definitions", env))
        browser = stack.enter_context(Browser(folder))
        lab.wait_status(lab.launch(["site_pages"]), {"SUCCESS"}, timeout=240)
        browser.resize(1300, 860)
        browser.open(f"{lab.url}/assets/site_pages")
        browser.wait_for("Hide navigation")
        browser.click("Hide navigation")
        for scheme in ("light", "dark"):
            browser.run(f"localStorage.setItem('dagster-theme', JSON.stringify('{scheme.title()}'))")
            browser.open(f"{lab.url}/assets/site_pages")
            browser.wait_for("Latest check results", "weblake/load_id")
            browser.screenshot(images / f"dagster-asset-{scheme}.png")


PICTURES = {"result": result, "credits": credits_by_month, "console": console, "airflow": airflow, "dagster": dagster}


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pictures that are asked for and print where they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"{', '.join(PICTURES)}; default: all")
    for name in parser.parse_args(arguments).pictures or PICTURES:
        with tempfile.TemporaryDirectory(prefix="weblake-pictures-") as temporary:
            images = Path(temporary) / "images"
            images.mkdir()
            PICTURES[name](Path(temporary), images)
            for picture in sorted(images.iterdir()):
                assert picture.stat().st_size <= 150 << 10, f"{picture.name} has {picture.stat().st_size} bytes"
                shutil.copy(picture, IMAGES / picture.name)
                sys.stdout.write(f"{IMAGES / picture.name}: {picture.stat().st_size >> 10} KiB\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

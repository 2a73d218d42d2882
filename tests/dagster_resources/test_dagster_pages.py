"""Tests of Dagster's pages in a browser, and the command that makes docs/images/dagster-*.png.

`nightly`: without a browser, test_metadata.py, test_checks.py, test_usage_checks.py and test_dagster_e2e.py test that
Dagster gets the metadata, the checks, the charts and no key.
"""

from __future__ import annotations

import base64
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from headless_browser import WIDTH
from polling import until
from supervised_processes import is_alive

from weblake import Client
from weblake.demo.site import site_pages

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import dagster_screenshots as screenshots

DOCS = Path(screenshots.__file__).parent
PICTURES = {f"dagster-{name}.png" for name in ("asset", "load", "checks", "graph", "usage", "usage-plots")}
CHECKS = ("rows_above_zero", "error_ratio", "duplicate_urls", "schema_matches", "receipt_matches_files")
#: One column of each sort of type.
COLUMNS = {
    "url": "string",
    "status_code": "int32",
    "position": "int64",
    "markdown": "large_string",
    "links": "list<string>",
    "repaired": "bool",
    "metadata": "map<string, string>",
    "loaded_at": "timestamp[us, tz=UTC]",
}
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

#: The images that the service's numbers were drawn as, and how wide they came out.
_CHARTS = """[...document.images].filter(each => each.src.startsWith('data:image/svg+xml'))
    .map(each => [each.src, each.complete ? each.naturalWidth : 0])"""
#: The same once there is one and it is drawn: the text beside it may be there before.
_DRAWN = f"(found => found.length && found.every(each => each[1]) ? found : null)({_CHARTS})"
#: How high a plot's line is, in pixels, at so many places from its left to its right end: what is drawn is no text.
_CURVE = """((name, places) => {
    const title = [...document.querySelectorAll('body *')].find(
        each => !each.children.length && each.innerText?.trim() === name);
    let box = title;
    while (box && !box.querySelector('canvas')) box = box.parentElement;
    const canvas = box.querySelector('canvas');
    const { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    const drawn = Array.from({ length: width }, () => []);
    for (let at = 0; at < width * height; at++) {
        const [red, green, blue, seen] = data.slice(at * 4, at * 4 + 4);
        if (seen > 200 && Math.abs(red - 79) + Math.abs(green - 67) + Math.abs(blue - 221) < 60)
            drawn[at % width].push(height - Math.floor(at / width));
    }
    const columns = [...drawn.keys()].filter(x => drawn[x].length);
    const [left, right] = [columns[0] + 3, columns.at(-1) - 3];
    return Array.from({ length: places }, (_, place) => {
        const ys = drawn[Math.round(left + (right - left) * place / (places - 1))];
        return ys.reduce((sum, y) => sum + y, 0) / ys.length;
    });
})"""


@dataclass
class Seen:
    """The pages of one tour by their pictures' names, where the pictures are, and what the others say of the same."""

    pages: dict[str, screenshots.Page]
    images: Path
    key: str
    site_url: str
    months: list[str]
    #: The metadata of the crawl's materialization.
    load: dict[str, Any]
    #: What the service tells of the job, and of each month: YYYY-MM and credits, oldest first.
    job: tuple[str, int, float]
    used: list[tuple[str, float]]
    charts: list[tuple[str, int]]
    curves: dict[str, list[float]]
    places_of: dict[str, list[str]]
    pids: set[int]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder, profile, images = (tmp_path_factory.mktemp(name) for name in ("example", "browser", "images"))
    with screenshots.example(folder) as shown, screenshots.Window(profile) as browser:
        pages = screenshots.tour(shown, browser, images)
        load = shown.dagster.materializations("site_pages")[0].metadata
        with Client(shown.service_url, shown.key) as client:
            job = client.get_crawl(load["weblake/job_id"])
            periods = client.historical_credit_usage().periods
        browser.open(f"{shown.dagster.url}/assets/usage")
        browser.wait_for("usage_by_month", "weblake/period_end")
        charts = [tuple(each) for each in until(lambda: browser.run(_DRAWN), browser.timeout)]
        browser.click("Plots")
        browser.wait_for(screenshots.BY_PARTITION)
        browser.screenshot(profile / "drawn.png")  # once it stands still
        plots = ("weblake/credits", "weblake/budget")
        return Seen(
            pages=pages,
            images=images,
            key=shown.key,
            site_url=shown.site_url,
            months=list(shown.months),
            load=load,
            job=(str(job.status), int(job.completed or 0), float(job.credits_used or 0)),
            used=sorted((str(each.start_date)[:7], float(each.total_credits or 0)) for each in periods),
            charts=charts,
            curves={name: browser.run(f"{_CURVE}({name!r}, {len(shown.months)})") for name in plots},
            places_of={text: shown.dagster.grep(text) for text in (shown.key, load["weblake/load_id"])},
            pids=shown.dagster.pids() | browser.pids(),
        )


def lines(text: str) -> list[str]:
    """What stands on the lines of a page, without those on which nothing does."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def after(text: str, label: str, places: int = 1) -> str:
    """What stands so many lines below a label, which is there once."""
    found = lines(text)
    assert found.count(label) == 1, f"{label}: {found.count(label)} times"
    return found[found.index(label) + places]


def test_the_asset_shows_rows_checks_and_columns(seen: Seen) -> None:
    text = seen.pages["dagster-asset.png"].text
    status, completed, credits = seen.job
    assert status == "completed"
    assert after(text, "Row count") == str(completed)
    assert after(text, "Latest check results") == "6"
    assert after(text, "Storage") == "documents"
    assert {"Parquet", "weblake", "web_lake.definitions"} <= set(lines(text))
    columns = text.partition("Column name\tType\tDescription")[2].partition("\nMetadata\n")[0]
    assert {name: after(columns, name) for name in COLUMNS} == COLUMNS
    # On this page the time stands between a key and its value.
    metadata = text.partition("Key\tTimestamp\tValue")[2]
    assert after(metadata, "weblake/load_id", 2) == seen.load["weblake/load_id"]
    assert after(metadata, "weblake/credits_used", 2) == f"{credits:g}"


def test_the_materialization_shows_location_outcomes_and_preview(seen: Seen) -> None:
    text = seen.pages["dagster-load.png"].text
    status, completed, credits = seen.job
    load_id = seen.load["weblake/load_id"]
    assert after(text, "weblake/load_id") == load_id
    assert after(text, "weblake/job_id") == seen.load["weblake/job_id"]
    assert after(text, "weblake/status") == status
    assert after(text, "dagster/row_count") == after(text, "weblake/stored") == str(completed)
    assert after(text, "weblake/credits_used") == f"{credits:g}"
    assert after(text, "weblake/robots_blocked") == "1"
    assert re.fullmatch(
        rf"s3://lake/web/documents/load_date=[\d-]+/{load_id}-00000\.parquet", after(text, "dagster/uri")
    )
    assert after(text, "dagster/column_schema") == "[Show Table Schema]"
    assert "robots_blocked\trobots.txt forbids it\t1" in text
    rows = [line.split("\t") for line in lines(text) if line.startswith(f"{seen.site_url}/")]
    assert len(rows) == 5
    pages = site_pages(seen.site_url)
    for url, title, status_code, _ in rows:
        page = pages[url.removeprefix(seen.site_url)]
        assert status_code == "200"
        assert f"<title>{title}</title>" in page.body.decode()


def test_the_checks_show_their_results(seen: Seen) -> None:
    page = seen.pages["dagster-checks.png"]
    assert "Checks (6)" in page.text
    for name in (*CHECKS, "credits_under_budget"):
        assert f">{name}<" in page.source, name
    assert page.source.count(">Succeeded<") == 6
    submitted = seen.load["weblake/submitted"]
    assert f"0 of {submitted} submitted pages (0.0%) failed, were rejected or are missing; 20.0% may." in page.text
    assert after(page.text, "load_id") == seen.load["weblake/load_id"]
    assert after(page.text, "Evaluation result") == "Passed"


def test_usage_is_shown_by_month_as_a_table_and_a_chart(seen: Seen) -> None:
    text = seen.pages["dagster-usage.png"].text
    assert [month for month, _ in seen.used] == [month[:7] for month in seen.months]
    assert len(seen.months) >= 8
    assert [used for _, used in seen.used[:7]] == list(screenshots.USED)
    year = seen.used[-12:]  # more is not shown
    for month, used in year:
        assert re.search(rf"^{month}\t{used:g}$", text, re.MULTILINE), month
    assert after(text.partition("Key\tTimestamp\tValue")[2], "weblake/credits", 2) == f"{seen.used[-1][1]:g}"
    ((source, width),) = seen.charts
    assert width > 200, "the browser has drawn it"
    chart = base64.b64decode(source.partition("base64,")[2]).decode()
    assert f"{year[0][0]} – {year[-1][0]}, most {max(used for _, used in year):g} credits" in chart


def test_the_plot_by_partition_follows_the_months(seen: Seen) -> None:
    text = seen.pages["dagster-usage-plots.png"].text
    assert screenshots.BY_PARTITION in text
    assert {"Partitions", "Events", "weblake/credits", "weblake/budget"} <= set(lines(text))
    credits, heights = [used for _, used in seen.used], seen.curves["weblake/credits"]
    pixels = (max(heights) - min(heights)) / (max(credits) - min(credits))
    drawn = [min(credits) + (height - min(heights)) / pixels for height in heights]
    # A point has a few pixels itself, and its line rises and falls within them.
    assert drawn == pytest.approx(credits, abs=5)
    assert max(heights) - min(heights) > 60
    budget = seen.curves["weblake/budget"]
    assert max(budget) - min(budget) < 3, "which is the same in all of them"


def test_the_graph_shows_the_example_with_kinds_and_checks(seen: Seen) -> None:
    text = seen.pages["dagster-graph.png"].text
    named = lines(text)
    for name in ("site_pages", "watch_list", "watched_pages", "page_report", "sites", "site_documents", "usage"):
        assert name in named, name
    assert {"site_documents_job", "activity", f"{len(seen.months)} partitions", "1 partition"} <= set(named)
    assert (named.count("weblake"), named.count("Parquet"), named.count("pandas")) == (6, 5, 2)
    assert (named.count("6 / 6 Passed"), named.count("5 / 5 Passed"), named.count("1 / 1 Passed")) == (2, 1, 1)


def test_the_key_is_on_no_page_and_in_no_file_of_dagster(seen: Seen) -> None:
    assert after(seen.pages["resource"].text, "WEBLAKE_API_KEY") == "Env var"
    assert seen.load["weblake/load_id"] in seen.pages["dagster-load.png"].source, "what is on a page is found"
    assert [name for name, page in seen.pages.items() if seen.key in page.text + page.source] == []
    assert set(seen.pages) == {*PICTURES, "resource", "run"}
    assert seen.places_of[seen.load["weblake/load_id"]], "what is in a file is found"
    assert seen.places_of[seen.key] == []


def size(picture: Path) -> tuple[int, int]:
    """Width and height, from the head of a PNG."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n", picture
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_the_committed_pictures_are_those_that_the_command_makes(seen: Seen) -> None:
    for folder in (seen.images, DOCS / "images"):
        pictures = list(folder.glob("dagster-*.png"))
        assert {each.name for each in pictures} == PICTURES, folder
        for picture in pictures:
            width, height = size(picture)
            assert width == WIDTH, picture
            assert 500 < height < 1800, picture
            assert 20_000 < picture.stat().st_size < 300_000, picture


def test_nothing_outlives_the_tour(seen: Seen) -> None:
    assert len(seen.pids) > 8
    assert not [pid for pid in seen.pids if is_alive(pid)]

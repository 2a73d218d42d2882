"""Tests of Airflow's pages in a browser, and the command that makes their pictures in docs/images.

`nightly`: without a browser, test_provider_info.py, test_hook.py, test_assets_and_lineage.py and test_landing_e2e.py
test that Airflow gets the form, the link, the asset and no key.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from docs_programs import load
from headless_browser import HEIGHT, WIDTH, Browser
from supervised_processes import is_alive

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = {"connection.png", "connection-extra.png", "run.png", "receipt.png", "asset.png"}
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


screenshots = load(DOCS / "screenshots.py")


@dataclass
class Seen:
    """The pages of one tour by their pictures' names, where the pictures are, and what Airflow says itself."""

    pages: dict[str, screenshots.Page]
    images: Path
    key: str
    service_url: str
    receipt: dict[str, object]
    run_id: str
    places_of_key: list[str]
    stored_connection: dict[str, object]
    pids: set[int]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder, profile, images = (tmp_path_factory.mktemp(name) for name in ("example", "browser", "images"))
    with screenshots.example(folder) as shown, Browser(profile) as browser:
        pages = screenshots.tour(shown, browser, images)
        run_id = shown.run()  # it has run: this is the one in the pictures
        airflow = shown.airflow
        found = Seen(
            pages=pages,
            images=images,
            key=shown.key,
            service_url=shown.service_url,
            receipt=airflow.xcom("site_crawl_by_day", run_id, "crawl"),
            run_id=run_id,
            places_of_key=airflow.grep(shown.key),
            stored_connection=airflow.api("GET", "/connections/weblake_default"),
            pids=airflow.pids() | browser.pids(),
        )
    return found


def has_label(text: str, label: str) -> bool:
    """Whether a line of the page is this text."""
    return label in {line.strip() for line in text.splitlines()}


def test_the_form_of_a_connection_names_our_fields_and_hides_the_others(seen: Seen) -> None:
    page = seen.pages["connection.png"]
    for label in ("Connection ID", "Base URL", "API key", "Description", "weblake_default"):
        assert has_label(page.text, label), label
    assert "https://api.example.com" in page.text, "the placeholder shows what is meant"
    for hidden in ("Host", "Password", "Login", "Schema", "Port"):
        assert not has_label(page.text, hidden), hidden
    assert re.search(r'<input[^>]*type="password"[^>]*name="password"', page.source), "a key is not shown while typed"

    extra = seen.pages["connection-extra.png"].text
    for label in ("Call timeout (seconds)", "Job page", "Allow plain http", screenshots.JOB_URL):
        assert has_label(extra, label), label
    assert "Empty: 60." in extra
    assert "Sends the API key in the clear" in extra


def test_the_submitted_form_is_stored_as_a_connection(seen: Seen) -> None:
    stored = seen.stored_connection
    assert (stored["conn_type"], stored["host"], stored["password"]) == ("weblake", seen.service_url, "***")
    # A field that was left empty is kept as null, with which the run has worked.
    empty = dict.fromkeys(("call_timeout_s", "proxy", "ca_bundle", "client_certificate", "client_key"))
    expected = empty | {"job_url": screenshots.JOB_URL, "insecure": False}
    assert json.loads(str(stored["extra"])) == expected


def test_a_finished_run_shows_its_success_and_leads_to_the_job(seen: Seen) -> None:
    page = seen.pages["run.png"]
    for text in ("Success", "crawl", "WeblakeCrawlOperator", "Scrape job", seen.run_id):
        assert has_label(page.text, text), text
    job = screenshots.JOB_URL.format(kind="crawl", job_id=seen.receipt["job_id"])
    assert f'href="{job}"' in page.source


def test_the_xcom_page_shows_the_receipt(seen: Seen) -> None:
    text = seen.pages["receipt.png"].text
    for name in ("load_id", "job_id", "status", "complete", "submitted", "stored", "robots_blocked", "credits_used"):
        assert f'"{name}": {json.dumps(seen.receipt[name])}'.removesuffix(".0") in text, name
    assert seen.receipt["complete"] is True
    assert screenshots.JOB_URL.format(kind="crawl", job_id=seen.receipt["job_id"]) in text


def test_the_asset_joins_both_dags_and_carries_the_receipt(seen: Seen) -> None:
    text = seen.pages["asset.png"].text
    for label in ("weblake://s3/lake/web/documents", "site_crawl_by_day", "site_crawl_report", "1 Asset Event"):
        assert has_label(text, label), label
    assert f'"load_id": "{seen.receipt["load_id"]}"' in text
    assert f'"stored": {seen.receipt["stored"]}' in text


def test_the_key_is_on_no_page_and_only_encrypted_in_the_database(seen: Seen) -> None:
    again = seen.pages["connection again"].source
    assert seen.service_url in again, "the values of fields are searched"
    assert "***" in again
    # In the form that it was typed into it stands as long as the form does.
    assert [name for name, page in seen.pages.items() if seen.key in page.source] == ["connection-extra.png"]
    assert [name for name, page in seen.pages.items() if seen.key in page.text] == []
    assert seen.places_of_key == []


def size(picture: Path) -> tuple[int, int]:
    """Width and height, from the head of a PNG."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n", picture
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_the_committed_pictures_are_those_that_the_command_makes(seen: Seen) -> None:
    for folder in (seen.images, DOCS / "images"):
        pictures = [each for each in folder.iterdir() if not each.name.startswith(("dagster-", "console-"))]
        assert {each.name for each in pictures} == PICTURES, folder
        for picture in pictures:
            assert size(picture) == (WIDTH, HEIGHT), picture
            assert 20_000 < picture.stat().st_size < 300_000, picture


def test_nothing_outlives_the_tour(seen: Seen) -> None:
    assert len(seen.pids) > 8
    assert not [pid for pid in seen.pids if is_alive(pid)]

"""Documents on a site: converted like uploads, regardless of the declared type, and billed per page."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import loopback_site as loopback
import parse_lab
import pytest

from weblake_service.page.content_types import ContentKind, kind_of, kind_of_upload

site, parsing = loopback.site, parse_lab.parsing
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def document(name: str) -> bytes:
    return bytes((parse_lab.DOCUMENTS / name).read_bytes())


@pytest.fixture
def new_parsing() -> Iterator[Any]:
    yield from parse_lab.serve()


def scraped(parsing: Any, url: str, **options: object) -> dict[str, Any]:
    reply = parsing.http.post("/v2/scrape", json={"url": url, "maxAge": 0, **options})
    assert reply.status_code == 200, reply.text
    return dict(reply.json()["data"])


def failed(parsing: Any, url: str, **options: object) -> tuple[int, str, str]:
    reply = parsing.http.post("/v2/scrape", json={"url": url, "maxAge": 0, **options})
    told = reply.json()
    return reply.status_code, told["code"], told["error"]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("tides.pdf", "application/pdf"),
        ("tides.pdf", "application/octet-stream"),
        ("tides.pdf", "text/html"),
        ("tides.docx", "application/zip"),
        ("tides.odt", ""),
        ("tides.doc", "application/x-download"),
        ("tides.rtf", "application/octet-stream"),
    ],
)
def test_a_document_is_converted_regardless_of_its_declared_type(parsing: Any, site: Any, name: str, sent: str) -> None:
    url = site.page("/download", document(name), content_type=sent)
    page = scraped(parsing, url, formats=["markdown", "links"])
    assert "**spring tide**" in page["markdown"]
    assert page["links"] == ["https://example.com/almanac?year=2026"]
    assert page["metadata"]["sourceURL"] == url
    assert page["metadata"]["statusCode"] == 200


def test_spreadsheets_become_tables(parsing: Any, site: Any) -> None:
    url = site.page("/gauges", document("gauges.xls"), content_type="application/vnd.ms-excel")
    assert "| Sum | 8.1 |  |" in scraped(parsing, url)["markdown"]
    csv = site.page("/csv", b"Station;Height\nNordkai;4.2\n", content_type="application/vnd.ms-excel")
    assert scraped(parsing, csv)["markdown"] == "Station;Height\nNordkai;4.2\n"


def test_an_html_error_page_in_place_of_a_pdf_is_read_as_html(parsing: Any, site: Any) -> None:
    url = site.page("/gone.pdf", b"<html><body><h1>Gone</h1></body></html>", 404, content_type="application/pdf")
    page = scraped(parsing, url)
    assert page["markdown"] == "# Gone"
    assert (page["metadata"]["statusCode"], page["metadata"]["creditsUsed"]) == (404, 1)


def test_a_pdf_page_costs_one_credit_also_from_the_cache(new_parsing: Any, site: Any) -> None:
    url = site.page("/tides.pdf", document("tides.pdf"), content_type="application/pdf")
    for state, used in (("miss", 2), ("hit", 4)):
        metadata = new_parsing.http.post("/v2/scrape", json={"url": url}).json()["data"]["metadata"]
        assert (metadata["cacheState"], metadata["creditsUsed"], metadata["numPages"]) == (state, 2, 2)
        assert new_parsing.credits_used() == used
    one = scraped(new_parsing, url, parsers=[{"type": "pdf", "maxPages": 1}])
    assert (one["metadata"]["creditsUsed"], new_parsing.credits_used()) == (1, 5)
    raw = scraped(new_parsing, url, parsers=[])
    assert raw["markdown"] == base64.b64encode(document("tides.pdf")).decode()
    assert (raw["metadata"]["creditsUsed"], new_parsing.credits_used()) == (1, 6)


def test_a_batch_of_pdfs_is_billed_per_page(new_parsing: Any, site: Any) -> None:
    urls = [
        site.page("/tides.pdf", document("tides.pdf"), content_type="application/pdf"),
        site.page("/tides.docx", document("tides.docx"), content_type=DOCX),
        site.page("/page", b"<h1>Page</h1>"),
        site.page("/locked.pdf", document("encrypted.pdf"), content_type="application/pdf"),
    ]
    job = new_parsing.http.post("/v2/batch/scrape", json={"urls": urls}).json()["id"]
    deadline = time.monotonic() + 120
    while (status := new_parsing.http.get(f"/v2/batch/scrape/{job}").json())["status"] == "scraping":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (status["status"], status["completed"], status["creditsUsed"]) == ("completed", 3, 4)
    assert new_parsing.credits_used() == 4
    errors = new_parsing.http.get(f"/v2/batch/scrape/{job}/errors").json()["errors"]
    assert [(error["url"], error["code"]) for error in errors] == [(urls[3], "SCRAPE_UNSUPPORTED_FILE_ERROR")]
    assert "password" in errors[0]["error"]


def test_a_crawl_follows_the_links_of_a_document(new_parsing: Any, site: Any) -> None:
    link = b'{\\rtf1 {\\field{\\*\\fldinst HYPERLINK "%s"}{\\fldrslt next}}\\par}' % site.url("/next").encode()
    site.page("/list.rtf", link, content_type="application/rtf")
    site.page("/", b"<a href='/list.rtf'>list</a>")
    site.page("/next", b"<h1>Found by the document</h1>")
    job = new_parsing.http.post("/v2/crawl", json={"url": site.url("/"), "limit": 10, "sitemap": "skip"}).json()["id"]
    deadline = time.monotonic() + 120
    while (status := new_parsing.http.get(f"/v2/crawl/{job}").json())["status"] == "scraping":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert sorted(page["metadata"]["sourceURL"] for page in status["data"]) == sorted(
        [site.url("/"), site.url("/list.rtf"), site.url("/next")]
    )


def test_unconvertible_files_are_reported(parsing: Any, site: Any) -> None:
    url = site.page("/locked.pdf", document("encrypted.pdf"), content_type="application/pdf")
    status, code, error = failed(parsing, url)
    assert (status, code) == (500, "SCRAPE_UNSUPPORTED_FILE_ERROR")
    assert url in error
    picture = site.page("/dot.png", document("dot.png"), content_type="image/png")
    assert failed(parsing, picture)[1] == "SCRAPE_UNSUPPORTED_FILE_ERROR"
    assert failed(parsing, url, parsers=[{"type": "pdf", "mode": "ocr"}])[:2] == (503, "FEATURE_NOT_CONFIGURED")


@pytest.mark.parametrize(
    ("sent", "body", "kind"),
    [
        ("application/pdf", b"%PDF-1.7", ContentKind.PDF),
        ("application/pdf", b"junk before\n%PDF-1.7", ContentKind.PDF),
        ("application/pdf", b"<!DOCTYPE html><p>sorry", ContentKind.HTML),
        ("application/pdf", b"\x00\x01\x02", ContentKind.PDF),
        ("text/html", b"<p>about %PDF- files", ContentKind.HTML),
        (DOCX, b"PK\x03\x04" + b"[Content_Types].xml".rjust(60), ContentKind.OFFICE),
        ("application/zip", b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis", ContentKind.OFFICE),
        ("application/msword", b"<html><table>", ContentKind.HTML),
        ("", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ContentKind.OFFICE),
        ("application/octet-stream", b"{\\rtf1 }", ContentKind.OFFICE),
        ("application/octet-stream", b"\x7fELF\x02\x01\x01\x00", ContentKind.OTHER),
    ],
)
def test_the_file_type_is_detected_from_content_type_and_bytes(sent: str, body: bytes, kind: ContentKind) -> None:
    assert kind_of(sent, body) is kind


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("a.html", b"plain words", ContentKind.HTML),
        ("a.html", b"<p>about %PDF- files", ContentKind.HTML),
        ("a.pdf", b"<html>", ContentKind.HTML),
        ("a.pdf", b"junk", ContentKind.PDF),
        ("a.doc", b"%PDF-1.7", ContentKind.PDF),
        ("a.xls", b"a,b\n1,2\n", ContentKind.OFFICE),
    ],
)
def test_the_file_type_of_an_upload_is_detected(name: str, body: bytes, kind: ContentKind) -> None:
    assert kind_of_upload(name, body) is kind

"""POST /v2/parse: responses, costs, and what is stored."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import parse_lab
import pytest

parsing = parse_lab.parsing


@pytest.fixture
def open_parsing() -> Iterator[Callable[..., Any]]:
    """Yield a function that starts services with other limits."""
    with ExitStack() as stack:
        yield lambda **limits: stack.enter_context(contextmanager(parse_lab.serve)(**limits))


def key(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


def test_the_response_is_a_scrape_document_that_can_be_read_again(parsing: Any) -> None:
    reply = parsing.post("tides.odt").json()
    scrape_id = reply["data"]["metadata"]["scrapeId"]
    assert (reply["success"], reply["scrape_id"]) == (True, scrape_id)
    assert set(reply["data"]) == {"markdown", "metadata"}
    assert parsing.http.get(f"/v2/scrape/{scrape_id}").json()["data"] == reply["data"]
    # The contract's activity list has no value for a parse.
    entry = parsing.http.get("/v2/team/activity", params={"endpoint": "scrape"}).json()["data"][0]
    assert (entry["id"], entry["endpoint"], entry["target"]) == (scrape_id, "scrape", "tides.odt")


def test_a_pdf_costs_a_credit_a_page_and_others_one(open_parsing: Any) -> None:
    parsing = open_parsing()
    for name, price in (("tides.pdf", 2), ("tides.docx", 1), ("gauges.xls", 1), ("tides.html", 1)):
        before = parsing.credits_used()
        assert parsing.parse(name)["metadata"]["creditsUsed"] == price
        assert parsing.credits_used() - before == price
    assert parsing.credits_used() == 5
    parsing.refusal("encrypted.pdf")
    assert parsing.credits_used() == 5
    assert parsing.service.counts()["parse_started"] == 5


def test_a_file_is_not_parsed_without_credits(open_parsing: Any) -> None:
    parsing = open_parsing(plan_credits=1)
    # The number of pages is known after the conversion.
    parsing.parse("tides.pdf")
    assert parsing.credits_used() == 2
    assert parsing.refusal("tides.docx")[:2] == (402, "INSUFFICIENT_CREDITS")


def test_a_repeat_under_one_key_gets_the_same_response_and_is_billed_once(open_parsing: Any) -> None:
    parsing = open_parsing()
    first = parsing.post("tides.pdf", key=key("k"), formats=["markdown"])
    again = parsing.post("tides.pdf", key=key("k"), formats=["markdown"])
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    assert (parsing.credits_used(), parsing.service.counts()["parse_started"]) == (2, 1)
    other = (parse_lab.DOCUMENTS / "tides.pdf").read_bytes() + b"\n"
    assert parsing.post("tides.pdf", other, key=key("k"), formats=["markdown"]).status_code == 409
    assert parsing.post("tides.pdf", key=key("k"), formats=["html"]).status_code == 409
    assert parsing.credits_used() == 2


def test_zero_data_retention_must_be_enabled_and_stores_nothing(open_parsing: Any) -> None:
    assert open_parsing().refusal("tides.docx", zeroDataRetention=True)[0] == 403
    parsing = open_parsing(zero_data_retention=True)
    document = parsing.parse("tides.docx", zeroDataRetention=True)
    assert "spring tide" in document["markdown"]
    assert parsing.http.get(f"/v2/scrape/{document['metadata']['scrapeId']}").status_code == 404
    assert parsing.credits_used() == document["metadata"]["creditsUsed"] == 2


@pytest.mark.parametrize("name", ["notes.txt", "slides.pptx", "archive.zip", "page.html.exe", "pdf", "table.csv"])
def test_unsupported_file_types_are_refused(parsing: Any, name: str) -> None:
    status, code, error = parsing.refusal(name, b"%PDF-1.4 whatever")
    assert (status, code) == (400, "UNSUPPORTED_FILE_TYPE")
    assert name in error
    assert ".docx" in error


@pytest.mark.parametrize(
    ("options", "status", "code", "named"),
    [
        ({"formats": ["screenshot"]}, 400, "PARSE_UNSUPPORTED_OPTIONS", "screenshot"),
        ({"formats": ["markdown", {"type": "changeTracking"}]}, 400, "PARSE_UNSUPPORTED_OPTIONS", "changeTracking"),
        ({"formats": ["branding"]}, 400, "PARSE_UNSUPPORTED_OPTIONS", "branding"),
        ({"formats": ["summary"]}, 503, "FEATURE_NOT_CONFIGURED", "weblake[llm]"),
        ({"formats": [{"type": "json", "prompt": "x"}]}, 503, "FEATURE_NOT_CONFIGURED", "weblake[llm]"),
        ({"parsers": [{"type": "pdf", "mode": "ocr"}]}, 503, "FEATURE_NOT_CONFIGURED", "OCR"),
        ({"parsers": ["image"]}, 503, "FEATURE_NOT_CONFIGURED", "OCR"),
        ({"formats": ["nonsense"]}, 400, "BAD_REQUEST", "formats"),
        ({"parsers": [{"type": "pdf", "maxPages": 0}]}, 400, "BAD_REQUEST", "maxPages"),
        ({"timeout": 300_001}, 400, "BAD_REQUEST", "timeout"),
        ({"onlyMainContent": "yes"}, 400, "BAD_REQUEST", "onlyMainContent"),
        ({"includeTags": ["p[["]}, 400, "BAD_REQUEST", "p[["),
    ],
)
def test_unsupported_options_are_refused(
    parsing: Any, options: dict[str, Any], status: int, code: str, named: str
) -> None:
    before = parsing.credits_used()
    told_status, told_code, error = parsing.refusal("tides.docx", **options)
    assert (told_status, told_code) == (status, code)
    assert named in error
    assert parsing.credits_used() == before


def test_options_without_effect_on_files_are_accepted(parsing: Any) -> None:
    document = parsing.parse(
        "tides.docx", headers={"X-A": "b"}, blockAds=False, proxy="basic", skipTlsVerification=False, origin="api",
        integration="tests", fastMode=True, timeout=60_000,
    )  # fmt: skip
    assert "spring tide" in document["markdown"]


def test_the_supported_file_types_are_listed(parsing: Any) -> None:
    reply = parsing.http.get("/v2/parse/formats")
    assert reply.headers["cache-control"] == "private, max-age=3600"
    extensions = [end for entry in reply.json()["data"]["formats"] for end in entry["extensions"]]
    assert extensions == [".html", ".htm", ".pdf", ".docx", ".doc", ".odt", ".rtf", ".xlsx", ".xls"]

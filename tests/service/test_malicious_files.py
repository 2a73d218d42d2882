"""Malicious files, and the processes that convert them."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from typing import Any

import parse_lab
import pytest

from weblake_service.files import worker
from weblake_service.files.conversion_messages import ConversionTask
from weblake_service.files.pdf import choose_text

parsing = parse_lab.parsing

BROKEN = "SCRAPE_UNSUPPORTED_FILE_ERROR"


def document(name: str) -> bytes:
    return (parse_lab.DOCUMENTS / name).read_bytes()


def test_an_encrypted_pdf_is_reported(parsing: Any) -> None:
    status, code, error = parsing.refusal("encrypted.pdf")
    assert (status, code) == (400, BROKEN)
    assert "protected with a password" in error
    assert "Harbour secrets" in parsing.parse("owner_only.pdf")["markdown"]


@pytest.mark.parametrize("name", ["tides.docx", "tides.odt", "gauges.xlsx", "tides.doc"])
def test_a_truncated_file_is_reported(parsing: Any, name: str) -> None:
    body = document(name)
    status, code, error = parsing.refusal(name, body[: len(body) // 2])
    assert (status, code) == (400, BROKEN)
    assert name in error


def test_a_truncated_pdf_is_converted_partially_or_reported(parsing: Any) -> None:
    whole = document("tides.pdf")
    for share in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        reply = parsing.post("cut.pdf", whole[: int(len(whole) * share)])
        assert reply.status_code in (200, 400)
        if reply.status_code == 400:
            assert reply.json()["code"] == BROKEN


@pytest.mark.parametrize("name", ["x.pdf", "x.docx", "x.doc", "x.odt", "x.rtf", "x.xlsx", "x.xls"])
@pytest.mark.parametrize("body", [b"", b"PK\x03\x04" + b"\x00" * 100])
def test_garbage_with_any_file_name_is_reported(parsing: Any, name: str, body: bytes) -> None:
    status, code, error = parsing.refusal(name, body)
    assert (status, code) == (400, BROKEN)
    assert name in error


def test_xml_entities_and_external_files_are_not_read(parsing: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not tell")
    core = (
        f'<?xml version="1.0"?><!DOCTYPE c [<!ENTITY a SYSTEM "file://{secret}">]>'
        '<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>&a;</dc:title></c>'
    )
    reply = parsing.parse("outside.docx", parse_lab.rezipped("tides.docx", docProps__core=core.encode()))
    assert "do not tell" not in str(reply)
    assert "spring tide" in reply["markdown"]
    assert "title" not in reply["metadata"]


def test_markup_in_a_document_is_escaped(parsing: Any) -> None:
    hostile = b"{\\rtf1 <script>alert(1)</script> & <img src=x onerror=alert(1)>\\par}"
    html = parsing.parse("hostile.rtf", hostile, formats=["html", "rawHtml"])
    for text in (html["html"], html["rawHtml"]):
        assert "<script" not in text
        assert "<img" not in text
    pdf = parse_lab.pdf_of(parse_lab.text_page("<script>alert \\(1\\)</script> plain words"))
    assert "<script" not in parsing.parse("hostile.pdf", pdf, formats=["html"])["html"]


def test_deep_nesting_does_not_crash_the_process(parsing: Any) -> None:
    for body in (b"{\\rtf1 " + b"{" * 200_000 + b"deep" + b"}" * 200_000 + b"}", b"{\\rtf1 " + b"{\\b " * 50_000):
        reply = parsing.post("deep.rtf", body)
        assert reply.status_code in (200, 400)
    assert "spring tide" in parsing.parse("tides.rtf")["markdown"]


@pytest.mark.system
def test_a_conversion_that_takes_too_long_is_aborted_and_the_next_file_is_converted(parsing: Any) -> None:
    sheet = parse_lab.wide_sheet()
    begun = time.monotonic()
    status, code, error = parsing.refusal("wide.xlsx", sheet, timeout=300, formats=["html"])
    assert (status, code) == (408, "SCRAPE_TIMEOUT")
    assert "within 0.3 s" in error
    assert time.monotonic() - begun < 20
    assert "Nordkai" in parsing.parse("gauges.xlsx")["markdown"]


def test_a_panic_of_a_converter_is_reported_as_a_broken_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def panic(*_: object) -> None:
        raise Panic

    monkeypatch.setattr("weblake_service.files.office.read_office", panic)
    assert worker.convert(ConversionTask("office"), b"").problem == "broken"


def test_a_pdf_page_whose_markdown_lacks_words_falls_back_to_plain_text() -> None:
    plain = "one two three four five six seven eight nine ten"
    assert (
        choose_text("# one two three four\n\nfive six seven eight", plain)
        == "# one two three four\n\nfive six seven eight"
    )
    assert choose_text("# one two three four five six seven", plain) == plain
    assert choose_text("", plain) == plain
    assert choose_text("# found by the other alone", "") == "# found by the other alone"
    assert choose_text("", "") == ""


def test_an_archive_with_many_parts_is_bounded(parsing: Any) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", b"<Types/>")
        for at in range(20_000):
            archive.writestr(f"p{at}", b"")
    begun = time.monotonic()
    assert parsing.refusal("many.docx", out.getvalue())[0] == 400
    assert time.monotonic() - begun < 30


def test_pages_that_a_pdf_only_declares_are_neither_returned_nor_paid(parsing: Any) -> None:
    """A file of 600 bytes can declare a million pages, at one credit each."""
    whole = parse_lab.pdf_of(parse_lab.text_page("First page"), parse_lab.text_page("Second page"))
    before = parsing.credits_used()
    document = parsing.parse("many.pdf", whole.replace(b"/Count 2 ", b"/Count 9 "))
    assert document["markdown"].split("\n\n") == ["## First page", "## Second page"]
    metadata = document["metadata"]
    assert (metadata["numPages"], metadata["totalPages"], metadata["creditsUsed"]) == (2, 2, 2)
    assert document["warning"] == "7 of 9 pages that the file declares cannot be read."
    assert parsing.credits_used() - before == 2


def test_a_pdf_without_a_page_that_can_be_read_is_reported(parsing: Any) -> None:
    whole = parse_lab.pdf_of(parse_lab.text_page("Lost")).replace(b"[5 0 R]", b"[4 0 R]")
    status, code, error = parsing.refusal("lost.pdf", whole)
    assert (status, code) == (400, BROKEN)
    assert "no page can be read" in error

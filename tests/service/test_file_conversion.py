"""The conversion of each kind of file, feature by feature. The committed documents have one source, tides.md."""

from __future__ import annotations

import base64
from typing import Any

import parse_lab
import pytest

parsing = parse_lab.parsing

TIDES = ["tides.docx", "tides.doc", "tides.odt", "tides.rtf", "tides.html"]
#: File types with real headings: the program that wrote the RTF made them bold paragraphs.
HEADED = ["tides.docx", "tides.doc", "tides.odt", "tides.html"]


@pytest.fixture(scope="module")
def documents(parsing: Any) -> dict[str, dict[str, Any]]:
    wanted = ["markdown", "html", "rawHtml", "links", "images"]
    return {name: parsing.parse(name, formats=wanted, onlyMainContent=False) for name in [*TIDES, "tides.pdf"]}


@pytest.mark.parametrize("name", TIDES)
@pytest.mark.parametrize(
    "feature",
    [
        "**spring tide**",
        "*highest mark*",
        "[the almanac](https://example.com/almanac?year=2026)",
        "- Moorings\n  - Bow line\n  - Stern line\n- Fenders",
        "1. Read the gauge\n2. Note the time",
        "   1. in local time\n   2. in UTC",
        "| low \\| high water |",
        "潮位は正常",
        "> The sea does not reward those who are too anxious.",
        "    return 2.1 * hours\n```",
        "Heights are above chart datum.",
        "Last line of the document: café, naïve, Größe.",
    ],
)
def test_features_of_a_document_are_kept(documents: dict[str, dict[str, Any]], name: str, feature: str) -> None:
    assert feature in documents[name]["markdown"]


@pytest.mark.parametrize("name", HEADED)
@pytest.mark.parametrize("heading", ["# Tide tables", "## Checklist", "## Stations", "### Closing words"])
def test_headings_are_not_bold(documents: dict[str, dict[str, Any]], name: str, heading: str) -> None:
    assert f"\n{heading}\n" in "\n" + documents[name]["markdown"]


@pytest.mark.parametrize("name", ["tides.docx", "tides.doc", "tides.odt", "tides.rtf"])
def test_a_footnote_is_marked_and_appended(documents: dict[str, dict[str, Any]], name: str) -> None:
    markdown = documents[name]["markdown"]
    assert "for details.[^1]" in markdown
    assert markdown.rstrip().endswith("[^1]: Heights are above chart datum.")


@pytest.mark.parametrize("name", TIDES)
def test_html_links_and_metadata_are_returned(documents: dict[str, dict[str, Any]], name: str) -> None:
    document = documents[name]
    assert document["links"] == ["https://example.com/almanac?year=2026"]
    assert document["images"] == []
    assert '<a href="https://example.com/almanac?year=2026">' in document["html"]
    assert "港口" in document["rawHtml"]
    metadata = document["metadata"]
    assert (metadata["sourceURL"], metadata["url"]) == (f"file:///{name}", f"file:///{name}")
    assert (metadata["sourceFile"], metadata["statusCode"]) == (name, 200)
    assert (metadata["creditsUsed"], metadata["concurrencyLimited"]) == (1, False)
    assert not {"proxyUsed", "cacheState", "numPages"} & set(metadata)
    if name != "tides.doc":
        assert metadata["title"] == "Tide tables for harbour pilots"
        assert metadata["author"] == "The Harbour Office"
        assert metadata["keywords"] == "tides, harbour"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tides.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("tides.doc", "application/msword"),
        ("tides.odt", "application/vnd.oasis.opendocument.text"),
        ("tides.rtf", "application/rtf"),
        ("tides.html", "text/html"),
        ("tides.pdf", "application/pdf"),
    ],
)
def test_the_content_type_is_that_of_the_file_type(documents: dict[str, dict[str, Any]], name: str, kind: str) -> None:
    assert documents[name]["metadata"]["contentType"] == kind


def test_pictures_are_embedded_in_html_and_named_in_markdown(parsing: Any) -> None:
    picture = base64.b64encode((parse_lab.DOCUMENTS / "dot.png").read_bytes()).decode()
    document = parsing.parse("tides.docx", formats=["markdown", "html"])
    assert "![A red buoy](Base64-Image-Removed)" in document["markdown"]
    assert f'src="data:image/png;base64,{picture}"' in document["html"]
    whole = parsing.parse("tides.docx", removeBase64Images=False)
    assert f"![A red buoy](data:image/png;base64,{picture})" in whole["markdown"]
    assert "html" not in whole


@pytest.mark.parametrize("name", ["gauges.xlsx", "gauges.xls"])
def test_a_spreadsheet_becomes_a_table(parsing: Any, name: str) -> None:
    document = parsing.parse(name, formats=["markdown", "html"])
    assert document["markdown"] == (
        "## Readings\n\n| Station | Height | Note |\n| --- | --- | --- |\n| Nordkai | 4.2 | low \\| high |\n"
        "| 港口 | 3.9 |  |\n| Sum | 8.1 |  |\n\n"
        "## Stations\n\n| Name | Since |\n| --- | --- |\n| Nordkai | 1931-05-02 |"
    )
    assert document["html"].count("<table>") == 2
    assert "<td>low | high</td>" in document["html"]
    assert "hidden sheet" not in str(document)
    assert parsing.parse(name)["markdown"] == document["markdown"]


def test_a_pdf_is_converted_page_by_page(parsing: Any, documents: dict[str, dict[str, Any]]) -> None:
    document = documents["tides.pdf"]
    assert document["markdown"].startswith("# Tide tables for harbour pilots")
    for feature in ["**spring tide**", "- Moorings\n- Fenders", "# Stations", "Nordkai and 港口. Größe and café"]:
        assert feature in document["markdown"]
    assert "<strong>spring tide</strong>" in document["html"]
    assert document["links"] == ["https://example.com/almanac?year=2026"]
    metadata = document["metadata"]
    assert (metadata["numPages"], metadata["totalPages"], metadata["creditsUsed"]) == (2, 2, 2)
    assert (metadata["title"], metadata["author"]) == ("Tide tables for harbour pilots", "The Harbour Office")
    assert "warning" not in document


def test_the_parsers_option_selects_the_conversion_of_a_pdf(parsing: Any) -> None:
    first = parsing.parse("tides.pdf", parsers=[{"type": "pdf", "maxPages": 1, "pages": True, "mode": "fast"}])
    assert "Stations" not in first["markdown"]
    assert (first["metadata"]["numPages"], first["metadata"]["totalPages"]) == (1, 2)
    assert first["metadata"]["creditsUsed"] == 1
    assert first["pages"] == [{"pageNumber": 1, "markdown": first["markdown"]}]
    marked = parsing.parse("tides.pdf", parsers=[{"type": "pdf", "pageMarkers": True}])["markdown"]
    assert marked.startswith("<!-- page 1 -->\n\n# Tide tables")
    assert "\n\n<!-- page 2 -->\n\n# Stations" in marked


def test_a_scanned_page_is_reported_and_others_are_read(parsing: Any) -> None:
    document = parsing.parse("scan.pdf", parse_lab.scanned_pdf())
    assert "First page of the log" in document["markdown"]
    assert "Third page of the log" in document["markdown"]
    assert document["warning"].startswith("No text was found on page 2: scanned pages need text recognition")
    assert document["metadata"]["numPages"] == 3


def test_an_empty_page_is_not_reported_as_scanned(parsing: Any) -> None:
    document = parsing.parse("blank.pdf", parse_lab.pdf_of(parse_lab.text_page("The only words"), b""))
    assert "The only words" in document["markdown"]
    assert "warning" not in document


@pytest.mark.parametrize("name", ["tides.docx", "tides.pdf"])
def test_selectors_select_parts_of_a_document(parsing: Any, name: str) -> None:
    only = parsing.parse(name, includeTags=["ul"])
    assert "Moorings" in only["markdown"]
    assert "spring tide" not in only["markdown"]
    without = parsing.parse(name, excludeTags=["ul"])
    assert "Moorings" not in without["markdown"]
    assert "spring tide" in without["markdown"]


def test_an_html_file_is_converted_like_a_page(parsing: Any) -> None:
    page = (
        b"<html><head><title>Log</title><meta name='description' content='A log'></head><body><nav><a href='/n'>Menu"
        b"</a></nav><main><h1>Log</h1><p>All quiet at the <a href='quay.html'>quay</a>, see <a href='https://example.com"
        b"/x'>this</a>. The wind was light and the sea was calm all day.</p></main>"
        b"<footer>Imprint</footer></body></html>"
    )
    document = parsing.parse("log.HTM", page, formats=["markdown", "links"])
    assert document["markdown"].startswith("# Log\n\nAll quiet at the [quay](quay.html)")
    assert "Menu" not in document["markdown"]
    assert document["links"] == ["https://example.com/x"]
    assert document["metadata"]["description"] == "A log"
    assert "Imprint" in parsing.parse("log.htm", page, onlyMainContent=False)["markdown"]


@pytest.mark.parametrize("title", [b"<FEFF0041D800>", b"<FEFFDC000041>"])
def test_a_pdf_with_a_broken_metadata_field_is_converted_without_it(parsing: Any, title: bytes) -> None:
    info = b"<< /Title " + title + b" /Author (The Harbour Office) >>"
    pdf = parse_lab.pdf_of(parse_lab.text_page("The tide table"), more=info)
    document = parsing.parse("tides.pdf", pdf.replace(b"/Root 1 0 R", b"/Root 1 0 R /Info 4 0 R"))
    assert "The tide table" in document["markdown"]
    assert document["metadata"]["author"] == "The Harbour Office"
    assert "title" not in document["metadata"]

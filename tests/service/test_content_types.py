"""The type of a body and its text: content types, charsets, and refusals."""

from __future__ import annotations

import time

import pytest
from converted_pages import HTML, convert, markdown

from weblake_service.page.content_types import ContentKind, kind_of, text_of


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (HTML, "<p>Grüße €".encode()),
        ("text/html", "<p>Grüße €".encode()),
        ("text/html; charset=iso-8859-1", "<p>Grüße €".encode("cp1252")),
        ("text/html", "<p>Grüße €".encode("cp1252")),
        ("text/html", "<meta charset=windows-1252><p>Grüße €".encode("cp1252")),
        ("text/html", "<meta http-equiv=content-type content='text/html; charset=cp1252'><p>Grüße €".encode("cp1252")),
        ("text/html", "\ufeff<p>Grüße €".encode()),
        ("text/html; charset=iso-8859-1", "\ufeff<p>Grüße €".encode()),
        ("text/html", "\ufeff<p>Grüße €".encode("utf-16-le")),
        ("text/html; charset=utf-16be", "<p>Grüße €".encode("utf-16-be")),
        ("text/html; charset=no-such-charset", "<p>Grüße €".encode()),
        ("text/html; charset=utf-16", "<p>Grüße €".encode()),
        ("text/html", "<meta charset=utf-16le><p>Grüße €".encode()),
        ("text/html; charset=utf-8, text/html", "<p>Grüße €".encode()),
    ],
)
def test_text_is_decoded_by_its_charset(content_type: str, body: bytes) -> None:
    assert markdown(body, content_type) == "Grüße €"


@pytest.mark.parametrize(
    ("labels", "codec", "text"),
    [
        ("gb18030 x-gbk csgb2312", "gb2312", "网页数据"),
        ("x-euc-jp csEUCPkdFmtJapanese", "euc_jp", "ウェブ"),
        ("windows-949 ks_c_5601-1989 x-windows-949", "cp949", "똠방"),
        ("big5 x-x-big5 cn-big5", "big5", "繁體"),
        ("koi8-r koi8 koi", "koi8-r", "привет"),
        ("x-cp1251 windows-1251", "cp1251", "привет"),
        ("iso-8859-8-i logical visual", "iso8859-8", "עברית"),
        ("unicode ucs-2 utf-16le", "utf-16-le", "привет"),
    ],
)
def test_legacy_encodings_of_other_scripts_are_decoded(labels: str, codec: str, text: str) -> None:
    for label in (*labels.split(), "cs" * 5_000):
        shown = markdown(f"<p>{text}".encode(codec), f"text/html; charset={label}")
        assert (shown == text) == (label in labels)


@pytest.mark.parametrize(
    "codec", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "hex", "base64", "rot13", "zlib"]
)
@pytest.mark.parametrize("in_the_body", [False, True])
def test_a_codec_of_python_that_is_no_charset_is_ignored(codec: str, in_the_body: bool) -> None:
    # The punycode codec would need minutes for these digits.
    text = f"<meta charset={codec if in_the_body else 'utf-8'}><p>Grüße \\ud800-" + "9" * 1_000_000
    begun = time.process_time()
    found = text_of("text/html" if in_the_body else f"text/html; charset={codec}", text.encode())
    assert found == text
    assert time.process_time() - begun < 2


def test_a_utf8_page_with_one_invalid_byte_is_decoded_as_utf8() -> None:
    assert markdown("<p>Grüße ".encode() + b"\xff" + " ü".encode(), "text/html") == "Grüße \ufffd ü"


@pytest.mark.parametrize("body", [b"", b"   ", b"\x00\x00", b"<html></html>", b"<!doctype html>"])
def test_an_empty_page_is_a_document(body: bytes) -> None:
    assert markdown(body).strip("\x00 ") == ""


def test_json_and_xml_become_code_blocks_and_other_text_is_unchanged() -> None:
    assert markdown('{"a": "```"}\n', "application/json") == '````json\n{"a": "```"}\n````'
    assert markdown("<a/>", "application/rss+xml") == "```xml\n<a/>\n```"
    assert markdown("a,b\n1,2\n", "text/csv") == "a,b\n1,2\n"
    assert markdown("# *Hi*\n", "text/markdown") == "# *Hi*\n"


def test_text_as_html_is_preformatted() -> None:
    page = convert("a < b\n", "text/plain", formats=["html", "rawHtml", "links", "images"])
    assert page.document["html"] == "<pre>a &lt; b\n</pre>"
    assert page.document["rawHtml"] == "a < b\n"
    assert (page.document["links"], page.document["images"], page.links) == ([], [], [])


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("", b"  <!DOCTYPE html><p>", ContentKind.HTML),
        ("application/octet-stream", b"<html>", ContentKind.HTML),
        ("text/html charset=utf-8", b"text", ContentKind.HTML),
        ("unknown/unknown", b"<html>", ContentKind.HTML),
        ("", b"plain words", ContentKind.TEXT),
        ("", b"\x89PNG\r\n\x1a\n\x00", ContentKind.OTHER),
        ("", b"", ContentKind.TEXT),
        ("text/html", b"%PDF-1.7", ContentKind.PDF),
        ("application/pdf", b"", ContentKind.PDF),
        ("application/ld+json", b"{}", ContentKind.TEXT),
        ("application/xhtml+xml", b"<html/>", ContentKind.HTML),
        ("image/svg+xml", b"<svg/>", ContentKind.OTHER),
        ("image/png", b"", ContentKind.OTHER),
        ("application/zip", b"PK", ContentKind.OTHER),
    ],
)
def test_a_body_is_recognised_by_its_type_and_then_by_its_content(
    content_type: str, body: bytes, kind: ContentKind
) -> None:
    assert kind_of(content_type, body) is kind


XHTML = '<html xmlns="http://www.w3.org/1999/xhtml"><head>{}</head><body>{}</body></html>'
PREFIXED = (
    '<h:html xmlns:h="http://www.w3.org/1999/xhtml"><h:head><h:title>T</h:title></h:head><h:body><h:p>a<h:b>b</h:b></h:p>'
    '<x:script xmlns:x="urn:x">shown</x:script></h:body></h:html>'
)
ENTITIES = '<!DOCTYPE html [<!ENTITY a "xxxxxxxx"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (XHTML.format('<title/><script src="x.js"/><style/>', "<p>after</p>"), "after"),
        (
            XHTML.format("", '<iframe src="/f"/><textarea/><a id="x"/><select/><p>after</p><i/>the end'),
            "after\n\nthe end",
        ),
        (XHTML.format('<script><![CDATA["</script>"<]]></script>', "<p><![CDATA[1 < 2 &nbsp;]]></p>"), "1 < 2 &nbsp;"),
        (
            '\n<?xml version="1.0"?><!DOCTYPE html>' + XHTML.format("", "<p>&copy;&#160;a &amp; b<br></br>c</p>"),
            "© a & b  \nc",
        ),
        (PREFIXED, "a**b**\n\nshown"),
        ("<html><body><script/><p>no namespace</p></body></html>", "no namespace"),
        # Not well-formed: read as HTML.
        (XHTML.format("<script src='x.js'/>", "<p>un<b>closed</p>"), "un**closed**"),
        (XHTML.format("", f"{'<div>' * 5_000}deep{'</div>' * 5_000}"), "deep"),
        ("<![CDATA[" * 50_000 + "<p>deep", "deep"),
        (ENTITIES + XHTML.format("<script/>", "<p>&b;&b;</p>"), "&b;&b;"),
        ("<!DOCTYPE [" * 50_000 + "><p>deep", "deep"),
    ],
)
def test_xhtml_is_read_by_the_rules_of_xml(body: str, text: str) -> None:
    assert markdown(body, "application/xhtml+xml", only_main_content=False) == text


def test_xhtml_is_known_by_its_type_or_by_its_root_in_xml() -> None:
    body = XHTML.format('<script src="x.js"/>', "<p>text</p>")
    assert markdown(body, "text/xml") == "text"
    assert markdown(body, "application/xml; charset=utf-8") == "text"
    # Browsers read text/html as HTML, whatever it says.
    assert markdown(body, "text/html") == ""
    assert convert(body, "application/xhtml+xml", formats=["rawHtml"]).document["rawHtml"] == body

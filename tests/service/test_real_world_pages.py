"""Details of real pages and documents: cards, permalinks, HTML tags in text, wrong content types."""

from __future__ import annotations

from typing import Any

import converted_pages
import parse_lab as _bench
import pytest
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.content_types import ContentKind, kind_of
from weblake_service.page_failure import PageFailure

parsing = _bench.parsing

URL = "https://site.example/list"
OLE, ZIP = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04"


def markdown(body: str, **options: Any) -> str:
    return converted_pages.markdown(body, url=URL, **{"only_main_content": False, **options})


def rendered(text: str) -> LexborHTMLParser:
    """Return the document that a reader of the markdown sees."""
    return LexborHTMLParser(MarkdownIt("commonmark").render(text))


def test_a_card_inside_one_link_keeps_its_heading_picture_and_list() -> None:
    text = markdown(
        "<ul><li><a href='/job'><img src='/i.png' alt='Logo'><div><h3>Engineer <i>new</i></h3></div>"
        "<p>Berlin</p><ul><li>full time</li><li>remote</li></ul></a></li></ul>"
    )
    page = rendered(text)
    assert [(link.text(), link.attributes["href"]) for link in page.css("h3 > a")] == [
        ("Engineer new", "https://site.example/job")
    ]
    assert [image.attributes["src"] for image in page.css("img")] == ["https://site.example/i.png"]
    assert [row.text(strip=True) for row in page.css("li li")] == ["full time", "remote"]
    assert len(page.css("a")) == 1


@pytest.mark.parametrize(
    "inner", ["<h2>Title</h2>", "<div><h2><span>Title</span></h2></div>"], ids=["a heading", "in a block"]
)
def test_a_link_around_a_heading_becomes_a_link_in_the_heading(inner: str) -> None:
    assert markdown(f"<a href='/x'>{inner}</a>") == "## [Title](https://site.example/x)"


def test_a_wrapped_picture_inside_a_link_is_kept() -> None:
    text = markdown(
        "<a href='/x'><div><figure><img src='/i.png' alt='I'></figure></div><p>two</p><div>words</div><div></div></a>"
    )
    assert text == "[![I](https://site.example/i.png) two words](https://site.example/x)"


def test_a_list_inside_a_link_becomes_one_line() -> None:
    assert markdown("<a href='/x'><ul><li>a</li><li>b</li></ul></a>") == "[a b](https://site.example/x)"


def test_links_inside_code_become_plain_code() -> None:
    text = markdown("<pre><code>fn <a href='/f'>f</a>() -&gt; <a href='/r'>Vec&lt;T&gt;</a></code></pre>")
    assert text == "```\nfn f() -> Vec<T>\n```"


def test_permalinks_and_links_without_text_are_dropped_from_markdown() -> None:
    text = markdown(
        "<h2>Install<a class='headerlink' href='#install'>¶</a></h2><p>a<a href='/icon'><i></i></a> b "
        "<a href='/p'><img src='/p.png' alt='P'></a> <a href='/c'>#</a></p>"
    )
    assert text == (
        "## Install\n\na b [![P](https://site.example/p.png)](https://site.example/p) [#](https://site.example/c)"
    )


def test_an_icon_link_has_its_accessible_name() -> None:
    text = markdown(
        "<p><a href='/login' aria-label='Log\n in'>\n <i></i>\n</a> <a href='/feed' aria-label='Feed [new]'></a>"
        "<a href='#x' aria-label='Permalink: x'><svg></svg></a></p>"
    )
    assert rendered(text).css("a")[0].text() == "Log in"
    assert rendered(text).css("a")[1].text() == "Feed [new]"
    assert len(rendered(text).css("a")) == 2
    assert "Permalink" not in text


def test_a_heading_in_an_anchor_that_links_nowhere_is_a_heading() -> None:
    assert markdown("<a name='x'></a><a class='toggle'><div><h2>Open</h2></div></a><p>text</p>") == "## Open\n\ntext"
    assert markdown("<a href='javascript:open()'><h2>Open</h2><p>sub</p></a>") == "## Open\n\nsub"


def test_a_heading_in_a_summary_is_a_heading() -> None:
    text = markdown("<details><summary><h4>Why?</h4><i></i></summary><p>So.</p></details>")
    assert text == "#### Why?\n\nSo."


def test_html_tags_are_escaped_in_text_and_kept_in_code() -> None:
    text = markdown(
        "<p>The &lt;div&gt; element, 1 &lt; 2, and <code>&lt;b&gt;</code></p><pre>&lt;p title='&amp;lt;'&gt;</pre>"
        "<h2>On &lt;a&gt;</h2><table><tr><th>&lt;td&gt;</th></tr><tr><td>x</td></tr></table>"
    )
    page = rendered(text.partition("\n\n|")[0])
    assert page.css("p")[0].text() == "The <div> element, 1 < 2, and <b>"
    assert page.css("pre")[0].text() == "<p title='&lt;'>\n"
    assert page.css("h2")[0].text() == "On <a>"
    assert "1 < 2" in text
    assert r"| \<td> |" in text


def test_empty_nested_list_items_are_dropped() -> None:
    assert markdown("<ul><li><i></i></li><li><ul><li></li></ul></li><li>x</li><li><img src='/i'></li></ul>") == (
        "- x\n- ![](https://site.example/i)"
    )
    assert markdown("<ul>" + "<li><ul>" * 50 + "</ul></li>" * 50 + "</ul><p>end</p>") == "end"


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("text/plain", ZIP + b"\0" * 26 + b"mimetypeapplication/vnd.oasis.opendocument.text", ContentKind.OFFICE),
        ("text/html", ZIP + b"[Content_Types].xml", ContentKind.OFFICE),
        ("text/plain; charset=utf-8", OLE, ContentKind.OFFICE),
        ("text/plain", b"{\\rtf1 x}", ContentKind.OFFICE),
        ("text/plain", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ContentKind.OTHER),
        ("text/plain", ZIP + b"\x14\0a.txt", ContentKind.OTHER),
        ("text/plain", "\ufeffwide".encode("utf-16-le"), ContentKind.TEXT),
        ("text/plain; charset=UTF-16LE", "wide".encode("utf-16-le"), ContentKind.TEXT),
        ("text/plain", b"PK is no zip", ContentKind.TEXT),
        ("text/html", b"<p>\0</p>", ContentKind.HTML),
    ],
)
def test_content_declared_as_text_is_inspected(content_type: str, body: bytes, kind: ContentKind) -> None:
    assert kind_of(content_type, body) is kind


def test_binary_data_declared_as_text_is_refused() -> None:
    body = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    with pytest.raises(PageFailure, match="answered with binary data that it calls text/plain, which holds no text"):
        converted_pages.convert(body, "text/plain")


@pytest.mark.parametrize("name", ["nothing.pdf", "nothing.docx", "nothing.xls"])
def test_an_empty_file_is_reported_as_empty(parsing: Any, name: str) -> None:
    status, code, error = parsing.refusal(name, b"")
    assert (status, code) == (400, "SCRAPE_UNSUPPORTED_FILE_ERROR")
    assert error == f"{name} is empty: it has no bytes at all. Save it anew."

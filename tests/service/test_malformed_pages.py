"""Malicious and merely broken pages: none crashes, hangs, or loses its text."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from catalogue import proves
from converted_pages import convert, markdown
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser
from tiers import examples

from weblake_service.page import main_content
from weblake_service.page.ancestors import is_within
from weblake_service.page.block_extraction import extract_blocks
from weblake_service.page.content_types import ContentKind, kind_of, text_of
from weblake_service.page.markdown import without_base64_images
from weblake_service.page.parser_limits import MAX_DEPTH, limit_nesting

HERE = Path(__file__).parent


def limited(source: str) -> str:
    return limit_nesting(source, always_scan=True)


HOSTILE = {
    "divs": "<div>" * 200_000 + "deep" + "</div>" * 200_000 + "<p>after",
    "table": "<table><tr><td>" * 3000 + "deep" + "</table>" * 3000 + "<p>after",
    "reopened": "<p>" + "".join(f"<b id={n}>" for n in range(5000)) + "<p>deep" * 5000 + "<p>after",
    "svg": "<svg>" + "<g>" * 10_000 + "</svg><p>deep<p>after",
    "unclosed": "deep after" + "<a" * 300_000,
    "comments": "deep after" + "<!--" * 200_000,
    "code": "<p>deep &lt;b after</p><!--" + "<pre " * 80_000 + "-->",
    "heads": "<table><td>deep after" * 200 + "<th>x" * 300_000,
}


@proves(
    "S9", at="src/weblake_service/page/parser_limits.py", line="if depth > MAX_DEPTH:", becomes="if False:", case="divs"
)
@proves(
    "S9",
    at="src/weblake_service/page/parser_limits.py",
    line="if formatting > MAX_FORMATTING or rebuilt > MAX_REOPENED:",
    becomes="if False:",
    case="reopened",
)
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.system
def test_s9_a_malicious_page_neither_crashes_nor_hangs(name: str) -> None:
    """Run in a separate process with 2 GiB, so that an overflow ends that process and is noticed."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        f"sys.path[:0] = {[str(HERE), str(HERE.parent / 'labs')]!r}\n"
        "from test_malformed_pages import HOSTILE, markdown\n"
        f"text = markdown(HOSTILE[{name!r}])\n"
        "print('deep' in text, 'after' in text)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False)
    # A process beyond its memory or time limit ends with a signal or a MemoryError.
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"]), done.stderr[-2000:]


def test_flattening_leaves_ordinary_pages_unchanged() -> None:
    page = (
        "<script>" + "<div>" * 500 + "</script><!--" + "<div>" * 500 + "--><svg>" + "<path d='M0'/>" * 2000 + "</svg>"
        "<ul>" + "<li>x" * 3000 + "</ul><p>" + "<p>y<br><img>" * 3000 + "<table>" + "<tr><td>z" * 3000 + "</table>"
        "<div/><b>bold</b><textarea>" + "<div>" * 500 + "</textarea>"
    )
    assert limited(page) == page


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.sampled_from(
            ["<div>", "</div>", "<b>", "</b>", "<ul><li>", "</ul>", "<table><tr><td>", "</table>", "x", "<p>", "<a>"]
        ),
        max_size=400,
    )
)
def test_flattening_never_touches_the_text(parts: list[str]) -> None:
    source = "".join(parts * 3)
    before, after = LexborHTMLParser(source), LexborHTMLParser(limited(source))
    text = [tree.body.text() if tree.body is not None else "" for tree in (before, after)]
    assert text[0].count("x") == text[1].count("x")


def test_flattening_bounds_the_depth() -> None:
    tree = LexborHTMLParser(limited("<div>" * 5000 + "<section>x</section>" + "</div>" * 5000 + "<div>y</div>"))
    assert len(tree.css("div")) == MAX_DEPTH + 1
    assert tree.css_first("section") is None
    assert tree.css_first("body > div + div").text() == "y"  # type: ignore[union-attr]


@settings(max_examples=examples(200))
@given(st.text(alphabet=st.sampled_from("<>/!-ab \"'=&;divpretablescript\n"), max_size=300))
def test_broken_html_is_converted(source: str) -> None:
    page = convert(source, formats=["markdown", "html", "links", "images", "rawHtml"])
    assert page.document["rawHtml"] == source
    assert isinstance(page.document["markdown"], str)


@settings(max_examples=examples(200))
@given(st.binary(max_size=300), st.sampled_from(["text/html", "text/plain", "", "text/html; charset=utf-16", "x"]))
def test_any_bytes_are_converted_or_refused(body: bytes, content_type: str) -> None:
    assert isinstance(text_of(content_type, body), str)
    if kind_of(content_type, body) in {ContentKind.HTML, ContentKind.TEXT}:
        str(convert(body, content_type).document["markdown"]).encode()


@pytest.mark.system
def test_a_large_page_takes_seconds() -> None:
    began = time.process_time()
    text = markdown("<article>" + "<p>A paragraph with <a href='/x'>a link</a> in it.</p>" * 30_000 + "</article>")
    assert text.count("A paragraph") == 30_000
    assert time.process_time() - began < 30


def test_a_literal_tag_is_escaped_outside_of_code_only() -> None:
    page = "<!-- <pre> --><p>1 &lt;b</p><pre>2 &lt;b</pre><p>3 &lt;b <code>4 &lt;b</code></p><!-- <code --><p>5 &lt;b"
    assert re.findall(r"\d \\?<b", markdown(page)) == ["1 \\<b", "2 <b", "3 \\<b", "4 <b", "5 \\<b"]


def test_the_ancestors_of_all_nodes_are_looked_up_once() -> None:
    class Counted(set[int]):
        asked = 0

        def __contains__(self, mem_id: object) -> bool:
            Counted.asked += 1
            return super().__contains__(mem_id)

    tree = LexborHTMLParser("<p><i>out</i><svg>" + "<g>" * 500 + "<a></a>" * 500)
    drawings = Counted(node.mem_id for node in tree.css("svg"))
    known: dict[int, bool] = {}
    assert [is_within(node, drawings, known) for node in tree.css("a")] == [True] * 500
    assert not is_within(tree.css_first("i"), drawings, known)  # type: ignore[arg-type]
    assert Counted.asked < 3000


def test_a_title_within_a_drawing_is_not_that_of_the_page() -> None:
    page = "<svg><g><title>Arrow</title></g></svg><svg><title>Bow</title></svg><title>Harbour</title>"
    assert convert(page).document["metadata"]["title"] == "Harbour"  # type: ignore[index]


def test_blocks_are_nested_no_deeper_than_a_page_may_be() -> None:
    tree = LexborHTMLParser("<div>" * 1000 + "<p>deep text</p>")
    assert tree.body is not None
    found = extract_blocks(tree, tree.body, "")
    assert len(found.blocks) <= MAX_DEPTH + 1
    assert found.root.text == len("deep text")
    found.release()


def test_the_type_of_linked_data_is_found_in_linear_time() -> None:
    begun = time.process_time()
    assert main_content.LINKED_DATA_TYPE.findall('"@type" : "Product", "@type": [ "Thing"]') == ["Product", "Thing"]
    # With the square of its length this takes more than ten seconds.
    assert main_content.LINKED_DATA_TYPE.search('"@type":' + " " * 60_000) is None
    assert time.process_time() - begun < 1


def test_an_open_image_in_plain_text_takes_little_memory() -> None:
    text = "![" + "a" * 200_000
    tracemalloc.start()
    try:
        assert without_base64_images(text) == text
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # With one step of the pattern for each character it takes 140 times as much as the text.
    assert peak < 10 * len(text)
    image = "(data:image/png;base64,AAAA)"
    assert without_base64_images(f"![a \\] [b] c]{image} ![]{image}") == (
        "![a \\] [b] c](Base64-Image-Removed) ![](Base64-Image-Removed)"
    )

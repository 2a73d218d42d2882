"""From HTML to a document: markdown, cleaned HTML, links, main content, formats, metadata."""

from __future__ import annotations

from html import escape
from typing import Any

import pytest
from converted_pages import URL, convert, markdown

from weblake_service.page_failure import PageFailure


def metadata(body: str) -> dict[str, Any]:
    found = convert(f"<head>{body}</head>").document["metadata"]
    assert isinstance(found, dict)
    return found


def test_the_structure_of_a_page_is_kept() -> None:
    text = markdown(
        "<h1>One</h1><p>A <b>bold</b> and <em>soft</em> <a href='../x?a=1&b=2'>link</a>.</p>"
        "<ul><li>a<ul><li>b<ol><li>c</li><li>d</li></ol></li></ul></li></ul><ol start=3><li>x<li>y</ol>"
        "<blockquote><p>said</p></blockquote>"
    )
    assert text == (
        "# One\n\nA **bold** and *soft* [link](https://site.example/x?a=1&b=2).\n\n"
        "- a\n  - b\n    1. c\n    2. d\n\n3. x\n4. y\n\n> said"
    )


def test_tables_become_gfm_tables() -> None:
    text = markdown("<table><tr><th>a</th><th>b|c</th></tr><tr><td>1</td><td>x<br>y</td></tr></table>")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    assert rows[0] == ["a", r"b\|c"]
    assert set("".join(rows[1])) <= set("-| ")
    assert rows[2] == ["1", "x y"]


def test_layout_tables_are_removed_and_data_tables_kept() -> None:
    text = markdown(
        "<table><tr><td>menu<td><p>para</p><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>"
        "</table>"
    )
    assert [line for line in text.splitlines() if line and "|" not in line] == ["menu", "para"]
    assert "| 1" in text


@pytest.mark.parametrize(
    "block",
    [
        '<pre><code class="language-python">CODE</code></pre>',
        '<pre class="brush: python; ruler: true">CODE</pre>',
        '<div class="highlight-python notranslate"><div class="highlight"><pre><span></span>CODE</pre></div></div>',
        '<div class="highlight highlight-source-python"><pre>CODE</pre></div>',
        '<pre class="sourceCode python"><code>CODE</code></pre>',
        '<pre data-lang="python"><code>CODE</code></pre>',
    ],
)
def test_code_blocks_keep_lines_and_language(block: str) -> None:
    code = "def f(a):\n    return a * 2  # <b> & *x*"
    escaped = code.replace("&", "&amp;").replace("<", "&lt;")
    assert markdown(f"<p>Before</p>{block.replace('CODE', escaped)}") == f"Before\n\n```python\n{code}\n```"


def test_front_matter_scripts_styles_and_drawings_are_dropped() -> None:
    text = markdown(
        "<title>T</title><meta name=description content=D><style>.x{}</style><script>var a</script><p>Only this"
        "<svg><title>drawn</title><text>drawn</text></svg><template>later</template><!-- said aside -->"
    )
    assert text == "Only this"


def test_hidden_tabs_are_kept() -> None:
    text = markdown("<main><div>Tab one</div><div style='display:none'>Tab two</div><div hidden>Tab three</div></main>")
    assert text.split("\n\n") == ["Tab one", "Tab two", "Tab three"]


def test_base64_images_leave_their_alt_text_in_markdown_only() -> None:
    picture = "data:image/png;base64,AAAA"
    page = convert(f"<p>x <img src='{picture}' alt='A cat'></p>", formats=["markdown", "html", "rawHtml", "images"])
    assert page.document["markdown"] == "x ![A cat](Base64-Image-Removed)"
    assert picture in str(page.document["html"])
    assert picture in str(page.document["rawHtml"])
    assert page.document["images"] == []
    assert picture in markdown(f"<img src='{picture}' alt=x>", remove_base64_images=False)


def test_lazily_loaded_images_get_their_url() -> None:
    page = convert(
        "<img src='data:image/gif;base64,R0' data-src='/late.png'><img srcset='/s.png 1x, /l.png 2x'><img src=now.png>",
        formats=["images", "html"],
    )
    assert page.document["images"] == [
        "https://site.example/late.png",
        "https://site.example/l.png",
        "https://site.example/docs/now.png",
    ]


def test_javascript_links_become_text() -> None:
    assert markdown("<p><a href=' JavaScript:void(0)'>a</a> <a href='javascript:x()'>b</a></p>").endswith("b")
    assert "javascript:x" not in markdown("<a href='javascript:x()'>b</a>")


def test_links_are_absolute_unique_and_in_order() -> None:
    page = convert(
        "<base href='/root/'><a href='b'>1</a><a href='/a#x'>2</a><a href='b'>3</a><a href='#top'>4</a><a href=''>5</a>"
        "<a href='mailto:a@b.de'>6</a><a href='//other.example/c'>7</a><a href='http://[bad'>8</a>"
        "<map><area href='d\n.html'></map><img src=p.png>",
        formats=["markdown", "html", "links", "images"],
    )
    wanted = [
        "https://site.example/root/b",
        "https://site.example/a#x",
        "https://other.example/c",
        "https://site.example/root/d.html",
    ]
    assert page.links == [link.removesuffix("#x") for link in wanted]
    assert page.document["links"] == wanted
    assert page.document["images"] == ["https://site.example/root/p.png"]
    assert 'href="https://site.example/root/b"' in str(page.document["html"])
    assert "[1](https://site.example/root/b)" in str(page.document["markdown"])


RESOLVED = {
    "f g": "https://h.test/d/f%20g",
    "/f g": "https://h.test/f%20g",
    r"\d\e": "https://h.test/d/e",
    r"/\o.test\e": "https://o.test/e",
    r"https:\\o.test\p q?a\b": "https://o.test/p%20q?a\\b",
    " \x01a\tb\r\nc\x1f ": "https://h.test/d/abc",
    "HTTP:/o.test/A": "http://o.test/A",
    "///o.test/x": "https://o.test/x",
    "https:/x": "https://h.test/x",
    "https:x": "https://h.test/d/x",
    "http://o.test/a/../b/./c": "http://o.test/b/c",
    "?q=a b'": "https://h.test/d/page?q=a%20b%27",
    "caf\u00e9?q=\u00e9": "https://h.test/d/caf%C3%A9?q=%C3%A9",
    '/a[b]|c`d{e}"f<g>': "https://h.test/a[b]|c%60d%7Be%7D%22f%3Cg%3E",
    "/%zz%20?u=http://a/b": "https://h.test/%zz%20?u=http://a/b",
    "/x#a b": "https://h.test/x#a%20b",
}


@pytest.mark.parametrize("reference", RESOLVED)
def test_references_are_resolved_as_browsers_do(reference: str) -> None:
    for markup in ("<a href='{}'>x</a>", "<img src='{}'>"):
        body = f"<base href='https://h.test/d/page?x=1'>{markup.format(escape(reference))}"
        found = convert(body, formats=["links", "images"], only_main_content=False).document
        assert found["links" if "href" in markup else "images"] == [RESOLVED[reference]]


NO_URLS = (
    "mailto:a@b javascript:x() tel:1 http://[bad/ http:// http://a%b/ http://a:99999/ http://a:b/ http://a&nbsp;b/"
)


@pytest.mark.parametrize("reference", NO_URLS.split())
def test_what_is_no_url_of_the_web_is_no_link(reference: str) -> None:
    assert convert(f"<a href='{reference}'>x</a>").links == []


def test_links_dropped_by_the_filter_are_still_crawled() -> None:
    page = convert(
        "<nav><a href='/n'>n</a></nav><main>" + "text " * 50 + "<a href='/m'>m</a></main>", formats=["links"]
    )
    assert page.document["links"] == ["https://site.example/m"]
    assert page.links == ["https://site.example/n", "https://site.example/m"]


def test_a_meta_refresh_is_a_link() -> None:
    assert convert("<meta http-equiv=Refresh content='0; URL=/new'>").links == ["https://site.example/new"]


ARTICLE = "<h1>Title</h1>" + "<p>The story goes on and on.</p>" * 10


def test_noscript_is_dropped_if_the_page_has_content() -> None:
    assert "Enable" not in markdown(f"<body><noscript>Enable scripts</noscript>{ARTICLE}")


def test_included_tags_without_a_match_give_a_warning() -> None:
    page = convert(ARTICLE, include_tags=[".absent"])
    assert page.document["markdown"] == ""
    assert ".absent" in str(page.document["warning"])


@pytest.mark.parametrize("option", ["include_tags", "exclude_tags"])
@pytest.mark.parametrize("selector", ["a[", "", "p::before", ">>"])
def test_an_invalid_selector_is_a_bad_request(option: str, selector: str) -> None:
    with pytest.raises(PageFailure) as caught:
        convert(ARTICLE, **{option: [selector]})
    assert (caught.value.code, caught.value.status) == ("BAD_REQUEST", 400)


def test_raw_html_equals_the_response_body() -> None:
    source = "<P>a<!-- c --><script>x</script>"
    page = convert(source, formats=["html", "rawHtml"])
    assert page.document["rawHtml"] == source
    assert "script" not in str(page.document["html"])


@pytest.mark.parametrize("name", ["screenshot", "json", "nonsense"])
def test_an_unsupported_format_is_refused(name: str) -> None:
    with pytest.raises(PageFailure, match=name):
        convert(ARTICLE, formats=["markdown", {"type": name}])


def test_documented_metadata_names_are_added_to_those_of_the_page() -> None:
    found = metadata(
        "<title> A\n title </title><meta name=Description content=' D '><meta name=keywords content='a, b'>"
        "<meta property=og:title content=O><meta property=og:locale:alternate content=de>"
        "<meta property=og:locale:alternate content=fr><meta property=og:site_name content=S>"
        "<meta name=twitter:card content=summary><meta name=robots content=noindex><meta itemprop=x content=y>"
        "<meta property=article:tag content=t1><meta property=article:tag content=t2><link rel='shortcut icon' href=/f>"
    )
    wanted = {
        "title": "A title",
        "description": "D",
        "keywords": "a, b",
        "og:title": "O",
        "ogTitle": "O",
        "og:locale:alternate": ["de", "fr"],
        "ogLocaleAlternate": ["de", "fr"],
        "ogSiteName": "S",
        "twitter:card": "summary",
        "robots": "noindex",
        "x": "y",
        "article:tag": ["t1", "t2"],
        "articleTag": ["t1", "t2"],
        "favicon": "https://site.example/f",
    }
    assert {key: found.get(key) for key in wanted} == wanted


def test_the_first_of_repeated_titles_and_descriptions_is_used() -> None:
    found = metadata(
        "<title>1</title><title>2</title><meta name=description content=a><meta name=description content=b>"
    )
    assert (found["title"], found["description"]) == ("1", "a")


def test_a_page_cannot_forge_metadata_of_the_service() -> None:
    found = metadata(
        "".join(f"<meta name={key} content=forged>" for key in ("statusCode", "error", "sourceURL", "url", "scrapeId"))
    )
    assert (found["statusCode"], found["sourceURL"], found["url"]) == (200, URL, URL)
    assert found.keys().isdisjoint({"error", "scrapeId"})


def test_the_title_of_an_svg_is_not_the_title_of_the_page() -> None:
    page = convert("<svg><title>icon</title></svg><p>text")
    assert "title" not in page.document["metadata"]  # type: ignore[operator]


@pytest.mark.parametrize(
    "page", ["<html lang='pt-BR'>", "<html xml:lang='pt-BR'>", "<meta http-equiv=Content-Language content=pt-BR>"]
)
def test_the_language_is_detected(page: str) -> None:
    assert convert(page).document["metadata"]["language"] == "pt-BR"  # type: ignore[index]

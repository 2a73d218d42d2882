"""The verdict whether scripts fill a page, on a corpus of pages, and the content of declarative shadow roots."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted_pages import convert, markdown

CORPUS = Path(__file__).with_name("script_filled")
PAGES = sorted(path for part in ("written", "pages") for path in (CORPUS / part).rglob("*.html"))


def reason(html: str) -> str:
    found = convert(html).document["metadata"]
    assert isinstance(found, dict)
    return str(found.get("scriptFilled", ""))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_page_of_the_corpus_has_its_verdict(path: Path) -> None:
    assert bool(reason(path.read_text())) == (path.parent.name == "script-filled")


def test_the_reason_names_what_is_missing() -> None:
    assert reason("<div id=root></div><script src=/a.js></script>") == "<div id=root> is empty"
    assert reason("<meta name=scriptFilled content=forged><p>Text.</p><script src=/a.js></script>") == ""


def test_shadow_roots_are_read_with_their_slots_filled() -> None:
    page = (
        "<tide-card><template shadowrootmode=open><style>p{}</style><h2>Title</h2><slot></slot>"
        "<tide-note><template shadowrootmode='closed' data-x='a>b'><p>Inner</p></template></tide-note>"
        "<slot name=end><p>unused</p></slot><slot name=other><p>Default</p></slot></template>"
        "<p>Light</p><p slot=end>End</p></tide-card>"
    )
    for options in ({}, {"only_main_content": False}):
        assert markdown(page, **options) == "## Title\n\nLight\n\nInner\n\nEnd\n\nDefault"
    assert markdown("<template shadowrootmode=open><p>a</p></template><template><p>b</p></template>") == "a"


def test_shadow_roots_nested_without_end_are_bounded() -> None:
    deep = "<div><template shadowrootmode=open>" * 500 + "text" + "</template></div>" * 500
    assert "text" not in markdown(deep)

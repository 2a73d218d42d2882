"""The search index: which words find which page, operators, scripts without spaces, and malicious queries."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake_service.responses import ErrorResponse
from weblake_service.store import schema, search_index
from weblake_service.store.search_index import MAX_CHARS, MAX_WORDS, read_query, restrict_to_domains

NOW = 1_800_000_000.0


def opened() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    db.executescript(schema.SCHEMA)
    return db


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    db = opened()
    yield db
    db.close()


def _document(text: str, form: str = "markdown", **metadata: object) -> dict[str, object]:
    return {form: text, "metadata": {"statusCode": 200, "contentType": "text/html", **metadata}}


def add(
    db: sqlite3.Connection,
    url: str,
    text: str = "",
    *,
    team: str = "local",
    at: float = NOW,
    status: int = 200,
    fresh: bool = True,
    options: dict[str, object] | None = None,
    form: str = "markdown",
    **metadata: object,
) -> bool:
    """Scrape a page, as far as the index is concerned, and return whether it was indexed."""
    document = _document(text, form, statusCode=status, **metadata)
    entry = search_index.entry(team, document, url, options or {}, fresh=fresh)
    if entry is not None:
        search_index.store(db, entry, at)
    return entry is not None


def find(db: sqlite3.Connection, text: str, *, team: str = "local", limit: int = 10) -> list[str]:
    return [one.url for one in search_index.search(db, team, read_query(text), limit)[0]]


A, B, C = "http://site.test/a", "http://docs.site.test/b", "http://other.test/c"


def test_words_are_found_in_text_title_description_and_url(db: sqlite3.Connection) -> None:
    add(db, A, "Retries with **exponential** [backoff](/nowhere/hidden)", title="Webhooks", description="Deliveries")
    add(db, B, "Something else")
    for word in ("exponential", "BACKOFF", "retry", "webhook", "deliveries", "backoff retries"):
        assert find(db, word) == [A], word
    assert find(db, "docs") == [B]
    assert find(db, "hidden") == []
    assert find(db, "absent") == []


def test_the_title_has_the_highest_weight_and_ties_are_sorted_by_url(db: sqlite3.Connection) -> None:
    filler = "many other words stand here and say nothing of it " * 3
    for url in ("http://z.test/", "http://m.test/", "http://b.test/"):
        add(db, url, f"{filler} lakes", title="Nothing")
    add(db, "http://t.test/", filler, title="Lakes")
    for n in range(6):
        add(db, f"http://filler.test/{n}", filler)
    assert find(db, "lakes") == ["http://t.test/", "http://b.test/", "http://m.test/", "http://z.test/"]
    assert find(db, "lakes", limit=2) == ["http://t.test/", "http://b.test/"]


def test_operators_are_applied(db: sqlite3.Connection) -> None:
    add(db, "http://site.test/guide/lakes", "blue water and deep lakes", title="Blue guide")
    add(db, "http://docs.site.test:8080/api", "deep blue water", title="Reference")
    add(db, "http://notsite.test/guidebook", "water, deep and green", title="Green guide")
    guide, api, green = (
        "http://site.test/guide/lakes",
        "http://docs.site.test:8080/api",
        "http://notsite.test/guidebook",
    )
    expected = {
        '"blue water"': {guide, api},
        '"water deep"': {green},
        "water -blue": {green},
        '-"blue water" deep': {green},
        "-blue": {green},
        "site:site.test": {guide, api},
        "site:*.site.test water": {guide, api},
        "site:docs.site.test": {api},
        "site:docs.site.test:8080": {api},
        "site:site.test:8080": {api},
        "site:docs.site.test:9090": set(),
        "site:site.test/guide": {guide},
        "site:https://www.site.test/guide/": {guide},
        "site:docs.site.test OR site:notsite.test": {api, green},
        "-site:site.test water": {green},
        "lakes OR green": {guide, green},
        "deep lakes OR green": {guide, green},
        "deep (": {guide, api, green},
        "http://site.test/guide": {guide},
        "reference:water": set(),
        "OR": set(),
    }
    assert {text: set(find(db, text)) for text in expected} == expected


def test_pages_with_some_words_are_found_if_none_has_all(db: sqlite3.Connection) -> None:
    add(db, A, "alpha beta")
    add(db, B, "beta gamma")

    def looked(text: str) -> tuple[list[str], bool]:
        found, whole = search_index.search(db, "local", read_query(text), 10)
        return [one.url for one in found], whole

    assert looked("alpha beta") == ([A], True)
    assert looked("alpha gamma") == ([B, A], False) or looked("alpha gamma") == ([A, B], False)
    assert looked("alpha delta") == ([A], False)
    assert looked("delta epsilon") == ([], True)


def test_domains_narrow_and_are_checked(db: sqlite3.Connection) -> None:
    for url in (A, B, C):
        add(db, url, "report")
    for without, expected in ((False, {A, B}), (True, {C})):
        query = read_query("report")
        restrict_to_domains(query, ["https://site.test/", "*.site.test"], without=without)
        assert {one.url for one in search_index.search(db, "local", query, 10)[0]} == expected
    with pytest.raises(ErrorResponse, match="no domain"):
        restrict_to_domains(read_query("x"), ["///"])


@pytest.mark.parametrize(
    ("text", "found", "absent"),
    [
        (
            "東京都の人口は約1400万人です。",
            ["東京都", "人口", "都", "東京", "の", "1400万", "１４００万"],
            ["京東", "大阪"],
        ),
        ("数据湖是一个集中式存储库", ["数据湖", "存储", "湖", "集中式存储库", '"数据湖是"'], ["数湖", "库存"]),
        ("カタカナ・データ、ひらがな", ["データ", "ひらがな", "カタカナ"], ["カナカタ"]),
        ("서울은 한국의 수도이다", ["서울", "수도", "한국"], ["부산"]),
        ("กรุงเทพมหานครเป็นเมืองหลวง", ["กรุงเทพ", "เมืองหลวง", "มหานคร"], ["ภูเก็ต"]),
        ("हिन्दी में लिखा", ["हिन्दी", "लिखा"], ["हिन"]),
        ("Straße café naïve ＦＵＬＬ Москва", ["cafe", "CAFÉ", "naive", "full", "москва", "straße"], ["caf"]),
    ],
)
def test_texts_in_many_scripts_are_found(
    db: sqlite3.Connection, text: str, found: list[str], absent: list[str]
) -> None:
    add(db, A, f"# Heading\n\n{text}\n")
    add(db, B, "nothing of it")
    assert {query: find(db, query) for query in found} == {query: [A] for query in found}
    assert {query: find(db, query) for query in absent} == {query: [] for query in absent}


def test_a_page_is_replaced_refreshed_and_removed(db: sqlite3.Connection) -> None:
    add(db, A, "first words", at=NOW - 1000, title="Old")
    add(db, f"{A}/#part", "second words", at=NOW - 500, title="New")
    assert (find(db, "first"), find(db, "old"), find(db, "second")) == ([], [], [f"{A}/#part"])
    add(db, f"{A}/#part", "second words", at=NOW, title="New")
    add(db, A, "from the cache", at=NOW + 9, fresh=False)
    add(db, A, "from the cache", at=NOW + 9, options={"include_tags": [".price"]})
    assert find(db, "cache") == []
    add(db, A, "", at=NOW, title="New")
    assert find(db, "second") == [f"{A}/#part"]
    add(db, A, "away", status=500)
    assert find(db, "second") == [f"{A}/#part"]
    add(db, A, "away", status=404, options={"headers": {"Cookie": "x"}})
    assert find(db, "second") == [f"{A}/#part"]
    add(db, A, "away", status=404)
    assert (find(db, "second"), find(db, "away"), search_index.count(db, "local")) == ([], [], 0)


def test_private_scrapes_and_error_pages_are_not_indexed(db: sqlite3.Connection) -> None:
    for options in (
        {"store_in_cache": False},
        {"headers": {"Cookie": "secret=1"}},
        {"lockdown": True},
        {"zero_data_retention": True},
    ):
        assert not add(db, A, "text", options=options), options
    for status in (301, 403, 404, 500):
        add(db, A, "text", status=status)
        assert search_index.count(db, "local") == 0, status
    assert not add(db, "mailto:x@y", "text")
    assert add(db, A, "JVBERi0xLjQ", options={"parsers": []}, contentType="application/pdf")
    assert find(db, "JVBERi0xLjQ") == []


def test_pages_without_markdown_are_found_by_their_html(db: sqlite3.Connection) -> None:
    add(db, A, "<body><p>visible <b>words</b><script>hidden()</script></p></body>", form="html")
    add(db, B, "<p>raw words", form="rawHtml", title=["First", "Second"])
    assert (find(db, "visible"), find(db, "hidden"), find(db, "raw"), find(db, "first")) == ([A], [], [B], [B])


def test_the_index_is_bounded(db: sqlite3.Connection) -> None:
    for n in range(20):
        add(db, f"http://site.test/{n}", f"page number{n} 東京{n}", at=NOW + n)
    search_index.evict(db, 5)
    assert find(db, "page", limit=50) == sorted(f"http://site.test/{n}" for n in range(15, 20))
    assert find(db, "number3") == []
    add(db, A, "the text of this page " * 9_000)  # 200 KB, which the database has compressed, and only once
    assert db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0] < 400_000


def test_the_passage_contains_the_words_and_no_markup(db: sqlite3.Connection) -> None:
    filler = "filler words go on and on. " * 40
    add(db, A, f"# Title\n\n{filler}Here **deep** [blue water](x) flows. {'more ' * 200}")
    add(db, B, "まえがき。" * 100 + "東京都の人口は多い。" + "あとがき。" * 100)
    for words, passage in (("deep water", "Here deep blue water flows."), ("人口", "東京都の人口は多い")):
        ((found,), _) = search_index.search(db, "local", read_query(words), 1)
        assert passage in found.passage
        assert len(found.passage) < 400
    ((found,), _) = search_index.search(db, "local", read_query("site:docs.site.test"), 1)
    assert found.passage.startswith("まえがき。まえがき。")


def test_long_queries_count_their_first_words(db: sqlite3.Connection) -> None:
    add(db, A, "common")
    query = read_query("common " * 80)
    assert query.cut
    assert len(query.words) == MAX_WORDS
    assert find(db, "common " * 80) == [A]
    with pytest.raises(ErrorResponse, match="empty"):
        read_query(" \n ")


HOSTILE = st.text(
    alphabet=st.sampled_from("\"'-*:()^{}+ \0ab東京\u0301\ud800ORNEAR/\\%_.,;🎉"), min_size=1, max_size=60
)


@settings(max_examples=examples(500))
@given(st.one_of(HOSTILE, st.text(min_size=1, max_size=200)), st.sampled_from(["", "site:", "-", 'site:"']))
def test_any_query_succeeds(text: str, before: str) -> None:
    db = shared()
    typed = before + text
    if not typed.strip():
        with pytest.raises(ErrorResponse, match="empty"):
            read_query(typed)
        return
    try:
        query = read_query(typed)
    except ErrorResponse:
        # The only other refusal: a site that is not a host.
        assert "site:" in typed.lower()
        return
    for newest in (False, True):
        search_index.search(db, "local", query, 10, newest=newest)


@settings(max_examples=examples(200))
@given(st.text(min_size=1, max_size=300))
def test_any_text_is_indexed_and_removed(text: str) -> None:
    db = opened()
    add(db, A, text, title=text, description=text)
    add(db, A, f"{text} again", title=text)
    add(db, A, "", status=404)
    assert search_index.count(db, "local") == 0
    db.close()


@pytest.mark.system
def test_indexing_time_is_linear_in_the_size_of_a_page(db: sqlite3.Connection) -> None:
    began = time.process_time()
    for text in (
        "](<" * 200_000,
        "](a(" * 200_000,
        '](a "' * 100_000,
        "](" + "()" * 300_000,
        "東" * 500_000,
        "[" * 500_000,
    ):
        add(db, A, text, title=text, description=text)
        find(db, "東 absent a")
    assert len(search_index.entry("local", _document("a" * 500_000), A, {}, fresh=True).text) == MAX_CHARS
    assert time.process_time() - began < 10


_SHARED: list[Any] = []


def shared() -> sqlite3.Connection:
    """Return one index for all examples."""
    if not _SHARED:
        db = opened()
        add(db, A, "a b OR NEAR 東京 words", title="a title")
        _SHARED.append(db)
    found = _SHARED[0]
    assert isinstance(found, sqlite3.Connection)
    return found

"""The queue of a crawl: scope, patterns, equivalent URLs, depth and the exact limit."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from catalogue import proves
from hypothesis import example, given
from hypothesis import strategies as st

from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page_failure import PageFailure
from weblake_service.web.frontier import Frontier

START = "https://site.example/docs/"


def crawl(start: str = START, **options: Any) -> Frontier:
    return Frontier(start, options)


def accepts(url: str, start: str = START, depth: int = 1, **options: Any) -> bool:
    return crawl(start, **options).offer(url, depth)


@pytest.mark.parametrize(
    ("start", "url", "verdict"),
    [
        (START, "https://site.example/docs/a", True),
        (START, "https://site.example/docs", True),
        (START, "https://site.example/docsify", False),
        (START, "https://site.example/blog", False),
        (START, "https://site.example/", False),
        ("https://site.example/docs/index.html", "https://site.example/docs/a", True),
        ("https://site.example/docs/v1.2", "https://site.example/docs/v1.2/a", True),
        ("https://site.example/docs/v1.2", "https://site.example/docs/v1.3", False),
        ("https://site.example", "https://site.example/anything", True),
        ("https://site.example", "http://www.site.example/anything", True),
        ("https://www.site.example", "https://site.example/anything", True),
        ("https://site.example", "https://blog.site.example/", False),
        ("https://site.example", "https://other.example/", False),
        ("https://site.example", "https://notsite.example/", False),
        ("https://site.example", "https://site.example:8443/", False),
        ("https://site.example", "https://site.example:443/a", True),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8002/", False),
    ],
)
def test_only_pages_below_the_start_are_visited(start: str, url: str, verdict: bool) -> None:
    assert accepts(url, start) is verdict


@pytest.mark.parametrize(
    ("options", "url", "verdict"),
    [
        ({"crawl_entire_domain": True}, "https://site.example/blog", True),
        ({"crawl_entire_domain": True}, "https://other.example/", False),
        ({"allow_external_links": True}, "https://other.example/x", True),
        ({"allow_external_links": True}, "https://site.example/blog", False),
        ({"allow_subdomains": True}, "https://blog.site.example/x", True),
        ({"allow_subdomains": True}, "https://blog.other.example/x", False),
        ({"allow_subdomains": True}, "https://evilsite.example/x", False),
        ({"include_paths": ["guide"]}, "https://site.example/docs/guide/1", True),
        ({"include_paths": ["^/docs/guide"]}, "https://site.example/docs/other", False),
        ({"include_paths": ["page=2"]}, "https://site.example/docs/a?page=2", False),
        ({"include_paths": ["page=2"], "regex_on_full_url": True}, "https://site.example/docs/a?page=2", True),
        ({"exclude_paths": [r"\.old$"]}, "https://site.example/docs/a.old", False),
        ({"include_paths": ["^/docs/#/guide"]}, "https://site.example/docs/#/guide/1", True),
        ({"include_paths": ["guide/2$"]}, "https://site.example/docs/#/guide/1", False),
        ({"include_paths": ["docs"], "exclude_paths": ["a"]}, "https://site.example/docs/a", False),
        ({"include_paths": ["^/docs/caf\u00e9$"]}, "https://site.example/docs/caf%C3%A9", True),
        ({"include_paths": ["^/docs/caf\u00e9$"]}, "https://site.example/docs/caf\u00e9", True),
        ({"exclude_paths": ["/[\u00e4\u00e9]$"]}, "https://site.example/docs/\u00e9", False),
        ({}, "https://site.example/docs/photo.PNG?x=1", False),
        ({}, "https://site.example/docs/paper.pdf", True),
        ({}, "https://site.example/docs/v1.zip", False),
        ({}, "mailto:a@site.example", False),
        ({}, "javascript:void(0)", False),
        ({}, "http://[bad/docs", False),
        ({}, "", False),
        ({}, "https://site.example/docs/" + "x" * 5000, False),
    ],
)
def test_options_widen_and_narrow_the_scope(options: dict[str, Any], url: str, verdict: bool) -> None:
    assert accepts(url, **options) is verdict


def test_the_start_is_visited_regardless_of_patterns() -> None:
    assert accepts(START, depth=0, include_paths=["never"], exclude_paths=["."])


@pytest.mark.parametrize("name", ["include_paths", "exclude_paths"])
def test_an_invalid_pattern_is_a_bad_request(name: str) -> None:
    with pytest.raises(PageFailure) as caught:
        crawl(**{name: ["ok", "("]})
    assert (caught.value.code, caught.value.status) == ("BAD_REQUEST", 400)
    with pytest.raises(PageFailure):
        crawl("ftp://site.example")


TWINS = [
    "https://site.example/docs/a",
    "http://site.example/docs/a",
    "https://www.site.example/docs/a/",
    "https://SITE.example:443/docs/a/index.html",
    "https://site.example/docs/b/../a#part",
    "https://site.example/docs/%61",
]


@pytest.mark.parametrize(("similar", "visited"), [(True, 1), (False, 4)])
def test_equivalent_urls_are_visited_once_and_similar_ones_are_distinct_on_request(similar: bool, visited: int) -> None:
    frontier = crawl(deduplicate_similar_urls=similar)
    assert [frontier.offer(url, 1) for url in TWINS] == [True] * visited + [False] * (6 - visited)


def test_query_parameters_distinguish_pages_unless_ignored() -> None:
    urls = [
        "https://site.example/docs/a?x=1&y=2",
        "https://site.example/docs/a?y=2&x=1",
        "https://site.example/docs/a?x=3",
    ]
    frontier = crawl()
    assert [frontier.offer(url, 1) for url in urls] == [True, False, True]
    assert frontier.take() == (urls[0], 1)
    frontier = crawl(ignore_query_parameters=True)
    assert [frontier.offer(url, 1) for url in urls] == [True, False, False]
    assert frontier.take() == ("https://site.example/docs/a", 1)


@pytest.mark.parametrize(
    ("most", "accepted"), [(0, [True, False, False]), (1, [True, True, False]), (None, [True] * 3)]
)
def test_depth_is_bounded(most: int | None, accepted: list[bool]) -> None:
    frontier = crawl(**({} if most is None else {"max_discovery_depth": most}))
    assert [frontier.offer(f"{START}{depth}", depth) for depth in range(3)] == accepted


def test_pages_are_visited_in_order_of_discovery() -> None:
    frontier = crawl()
    for url in ("c", "a", "b"):
        frontier.offer(START + url, 1)
    assert [frontier.take() for _ in range(4)] == [(START + "c", 1), (START + "a", 1), (START + "b", 1), None]


def test_the_limit_is_exact_and_uncounted_pages_do_not_use_it() -> None:
    frontier = crawl(limit=2)
    for number in range(5):
        frontier.offer(f"{START}{number}", 1)
    first = frontier.take()
    assert first is not None
    frontier.uncount()
    assert frontier.take() is not None
    assert frontier.take() is not None
    assert frontier.take() is None


def test_the_number_of_links_is_bounded() -> None:
    frontier = crawl(limit=10)
    assert sum(frontier.offer(f"{START}{number}", 1) for number in range(5000)) == 1040


def test_the_scope_moves_with_a_redirected_start() -> None:
    frontier = crawl("https://old.example/")
    frontier.offer("https://old.example/", 0)
    assert not frontier.wants("https://www.new.example/en/a", 1)
    assert frontier.record_final_url("https://old.example/", "https://www.new.example/en/")
    assert frontier.wants("https://www.new.example/en/a", 1)
    assert not frontier.wants("https://www.new.example/de/a", 1)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["take", "land", "uncount"]), st.just(0)),
    ),
    max_size=120,
)


@given(steps, st.integers(1, 12))
def test_every_page_is_visited_once_within_the_limit_in_any_order_of_events(
    what: list[tuple[str, int]], limit: int
) -> None:
    frontier = crawl(limit=limit)
    flying: list[str] = []
    offered: set[str] = set()
    landed: list[str] = []
    spared: list[str] = []
    for step, number in what:
        if step == "offer":
            url = f"{START}{number}"
            assert frontier.offer(url, 1) is (url not in offered)
            offered.add(url)
        elif step == "take":
            taken = frontier.take()
            if taken is not None:
                flying.append(taken[0])
        elif step == "land" and flying:
            url = flying.pop(0)
            frontier.record_final_url(url)
            landed.append(url)
        elif step == "uncount" and flying:
            spared.append(flying.pop())
            frontier.uncount()
        assert len(landed) + len(flying) <= limit
    while (taken := frontier.take()) is not None:
        flying.append(taken[0])
    landed += flying
    assert len(landed) == len(set(landed)) == min(limit, len(offered) - len(spared))
    assert set(landed) <= offered


@proves(
    "S9",
    at="src/weblake_service/web/path_patterns.py",
    line="return re2.compile(text, options)",
    becomes="return __import__('re').compile(text)",
)
def test_s9_a_catastrophic_pattern_is_harmless() -> None:
    """Takes half a second in a backtracking engine, so that the control ends; each letter more doubles that."""
    frontier = crawl(exclude_paths=[r"(a|a)+$"], crawl_entire_domain=True)
    began = time.thread_time()
    assert frontier.wants(f"https://site.example/docs/{'a' * 22}!", 1)
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize("pattern", ["(?!x)", r"(a)\1", "((a{900}){900}){900}", "a" * 2001, "(" * 5000, "\ud800"])
def test_a_pattern_without_linear_time_matching_is_refused(pattern: str) -> None:
    with pytest.raises(PageFailure, match="includePaths") as caught:
        crawl(include_paths=[pattern])
    assert caught.value.status == 400


@given(st.text(max_size=40))
@example("\x85#")
@example("\xa0?\x1f#")
def test_any_text_is_accepted_as_a_link(text: str) -> None:
    frontier = crawl(allow_external_links=True, crawl_entire_domain=True)
    if frontier.offer(text, 1):
        assert not frontier.offer(text, 1)
    if frontier.offer(f"https://site.example/{text}", 1):
        taken = frontier.take()
        assert taken is not None
        assert not frontier.offer(taken[0], 1)


@pytest.mark.system
@pytest.mark.parametrize("on_full_url", [False, True])
def test_costly_patterns_allow_the_same_urls_in_a_process(on_full_url: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    include = [f"/p{n}(?:/|\\?|$)" for n in range(500)]
    plan = {"include_paths": include, "exclude_paths": ["x=1$", r"/\?$"], "regex_on_full_url": on_full_url}
    urls = [f"https://site.example/p{n}{end}" for n in range(400, 600) for end in ("", "/?x=1", "/\ud800")]
    plain = Frontier("https://site.example/", plan)

    async def work() -> None:
        converters = ConverterPool()
        try:
            frontier = Frontier("https://site.example/", plan, converters)
            allowed = await frontier.match_paths(urls)
            assert allowed == [url for url in urls if plain.wants(url, 1)]
            assert len(allowed) == (100 if on_full_url else 200)
            # Allowed URLs are not matched again, in the event loop.
            monkeypatch.setattr(frontier._patterns, "_include", None)
            monkeypatch.setattr(frontier._patterns, "_exclude", [None])
            assert all(frontier.wants(url, 1) for url in allowed)
        finally:
            await converters.aclose()

    asyncio.run(work())

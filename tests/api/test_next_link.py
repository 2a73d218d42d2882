"""Tests of the link to the next chunk: the fast path and the URL parser give the same result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.api import next_link
from weblake.errors import MalformedReply

PIECES = [
    "https://",
    "http://",
    "//",
    "h.example",
    "127.0.0.1",
    ":80",
    ":",
    "@",
    "/v2",
    "/crawl",
    "/a-b_1",
    "?",
    "skip=1",
]
PIECES += ["&", "limit=2", "a=", "=b", "&&", ";", "#x", "%20", "+", "é", "[", "]", "\\", " ", "\n", "a=b=c", "-"]


@settings(max_examples=examples(1000))
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text(max_size=9), st.booleans())
def test_a_plain_link_is_read_as_any_other(text: str, whole: bool) -> None:
    link = f"https://h.example/v2/crawl/x?skip=1{text}" if whole else text
    plain = next_link._parse_usual(link)
    assert plain is None or plain == next_link._parse_any(link)


@pytest.mark.parametrize(
    "link",
    [
        "http://localhost:3002/v2/crawl/0199d0c2-7f1e-4abc-8def-000000000001?skip=100",
        "https://api.example.dev/v2/crawl/x?skip=100&limit=10",
    ],
)
def test_links_as_services_write_them_take_the_fast_path(link: str) -> None:
    assert next_link._parse_usual(link) == next_link._parse_any(link)


def test_a_query_has_no_more_than_thirty_two_fields() -> None:
    for count, good in ((32, True), (33, False)):
        link = "https://h.example/v2/crawl/x?" + "&".join(f"a{n}={n}" for n in range(count))
        if good:
            assert len(next_link.query_of(link, "/v2/crawl/x") or ()) == 32
        else:
            with pytest.raises(MalformedReply):
                next_link.query_of(link, "/v2/crawl/x")


LINK = "https://h.example/v2/crawl/x"
LONGEST = next_link.MAX_LINK_CHARS - len(f"{LINK}?a=")


@pytest.mark.parametrize(
    ("link", "query"),
    [
        ("https://h.example/v2/CRAWL/X?skip=1", (("skip", "1"),)),
        ("https://h.example/team/v2/crawl/x?skip=1", (("skip", "1"),)),
        ("https://h.example/v2/crawl/x?skip=1&cursor=", (("skip", "1"), ("cursor", ""))),
        (f"{LINK}?a={'b' * LONGEST}", (("a", "b" * LONGEST),)),
        ("https://h.example/v2/crawl/x", ()),
        (None, None),
        (False, None),
        ("", None),
    ],
)
def test_a_link_to_the_same_job_has_a_query(link: object, query: object) -> None:
    assert next_link.query_of(link, "/v2/crawl/x") == query


@pytest.mark.parametrize(
    "link",
    [
        "https://h.example/v2/crawl/y?skip=1",
        "https://h.example/v2/batch/scrape/x?skip=1",
        "https://h.example/v2/crawl/x/?skip=1",
        f"{LINK}?a={'b' * (LONGEST + 1)}",
        True,
        7,
        0,
        [],
        {},
    ],
)
def test_a_link_elsewhere_is_malformed(link: object) -> None:
    with pytest.raises(MalformedReply):
        next_link.query_of(link, "/v2/crawl/x")

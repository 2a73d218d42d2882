"""Tests of the link to the next chunk."""

from __future__ import annotations

import pytest

from weblake.api import next_link
from weblake.errors import MalformedReply


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

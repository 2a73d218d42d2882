"""Tests of the key of a page: what services change in a URL is ignored, and what names another page is kept."""

import re

import pytest
from catalogue import REPOSITORY, proves
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.api.page_keys import page_key, page_key_slow


@proves(
    "H18",
    at="src/weblake/api/page_keys.py",
    line="return f\"{host}{port_text}{_unescape(parts.path).rstrip('/')}{query}{route}\"",
    becomes="return url",
)
@proves(
    "H18",
    at="src/weblake/api/page_keys.py",
    line='return host + path.rstrip("/") + query',
    becomes="return url",
)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("example.org/a", "http://example.org/a"),
        ("//example.org/a", "http://example.org/a"),
        ("http://Example.ORG:80/a/", "https://example.org/a"),
        ("http://example.org/a%20b", "http://example.org/a b"),
        ("http://bücher.example/", "http://xn--bcher-kva.example"),
        ("http://Straße.example/", "http://xn--strae-oqa.example"),  # as browsers and httpx encode it
        ("http://Βόλος。Example/", "http://xn--nxasmm1c.example"),
        ("http://ΒΌΛΟΣ.example/", "http://xn--nxasmq6b.example"),
        ("http://نامه\u200cای.example/", "http://xn--mgba3gch31f060k.example"),
        ("http://example.org/%e9", "http://example.org/%E9"),
        ("http://www.example.org/a#top", "http://example.org/a"),
        ("http://example.org/(a)%2c%41", "http://example.org/%28a%29,A"),
    ],
)
def test_h18_harmless_changes_of_a_url_are_ignored(one: str, other: str) -> None:
    assert page_key(one) == page_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a.test/A", "http://a.test/a"),
        ("http://a.test/?a=1", "http://a.test/?a=2"),
        ("http://a.test/#/a", "http://a.test/#/b"),
        ("http://a.test/%E9", "http://a.test/%E8"),  # Latin-1
        ("http://straße.test/", "http://strasse.test/"),
    ],
)
def test_differences_that_select_another_page_are_kept(one: str, other: str) -> None:
    assert page_key(one) != page_key(other)


@given(
    st.sampled_from(["http://", "https://", "HTTP://", "//", "", " http://"]),
    st.sampled_from(["www.", "", "WWW.", "www.www."]),
    st.text("abz09.-AÄß@:[]_", max_size=8),
    st.sampled_from(["", ":80", ":443", ":8080", ":", "0"]),
    st.text("/aA.%2Fß?#\t\\;=& ~", max_size=12),
)
@settings(max_examples=examples(500))
def test_the_fast_path_of_url_comparison_gives_the_same_key(
    scheme: str, www: str, host: str, port: str, path: str
) -> None:
    url = scheme + www + host + port + path
    assert page_key(url) == page_key_slow(url)


def test_the_table_of_examples_in_the_docs_is_true() -> None:
    text = (REPOSITORY / "docs/site/reference/dataset.md").read_text()
    examples = re.findall(r"^\| `(\S+)` \| `(\S+)` \|", text.partition("## Page keys")[2], re.MULTILINE)
    assert len(examples) >= 10
    assert {url: page_key(url) for url, _ in examples} == dict(examples)


@given(st.text("a/?#%0249CcEeFf:é\x00\x7f. ", max_size=20))
@settings(max_examples=examples(500))
def test_each_key_can_be_stored_and_is_its_own_key(path: str) -> None:
    key = page_key(f"http://a.test/{path}")
    assert key.encode().decode() == key

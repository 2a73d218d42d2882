"""Tests of the option checks beyond the ranges of the contract: rules between options, spelling, and hidden secrets."""

import enum
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, is_typeddict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake.api import options as o
from weblake.api.options import requests
from weblake.api.options.fields import fields
from weblake.errors import FixRequest, InvalidOption

REQUESTS = [each for each in vars(requests).values() if is_typeddict(each)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def page(**given: Any) -> dict[str, object]:
    return o.to_wire(o.ScrapeRequest, {"url": "https://example.com", **given})


def refusal(**given: Any) -> str:
    with pytest.raises(InvalidOption) as caught:
        page(**given)
    assert isinstance(caught.value, FixRequest)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"timeout": 500}, ["`timeout`", "500", "1000 to 300000 milliseconds"]),
        ({"timeout": True}, ["`timeout`", "True", "integer"]),
        ({"timeout": 10**40}, ["`timeout`", "giant"]),
        ({"timeout": None}, ["`timeout`", "Leave it out"]),
        ({"timeot": 5}, ["timeot", "Did you mean `timeout`?"]),
        ({"onlyMainContent": True}, ["Did you mean `only_main_content`?"]),
        ({"zzzzzz": 1}, ["zzzzzz", "Known here: formats"]),
        ({"proxy": "atuo"}, ["`proxy`", "basic, enhanced, auto", "Did you mean 'auto'?"]),
        ({"formats": "markdown"}, ["`formats`", "a list"]),
        ({"formats": ["markdwon"]}, ["`formats[0]`", "Did you mean 'markdown'?"]),
        ({"formats": [{"type": "screenshots"}]}, ["`formats[0].type`", "Did you mean 'screenshot'?"]),
        ({"formats": [{"full_page": True}]}, ["`formats[0]` has no `type`"]),
        ({"formats": [{"type": "screenshot", "fulPage": True}]}, ["fulPage", "`formats[0]`", "`full_page`"]),
        ({"formats": [{"type": "screenshot", "full_page": True, "fullPage": True}]}, ["given twice"]),
        ({"formats": ["screenshot", {"type": "screenshot"}]}, ["`formats`", "2 screenshots", "at most one"]),
        ({"formats": ["changeTracking"]}, ["`formats`", "add markdown"]),
        ({"formats": [{"type": "json"}]}, ["`formats[0].schema`", "`formats[0].prompt`"]),
        ({"only_clean_content": True, "zero_data_retention": True}, ["`only_clean_content`", "`zero_data_retention`"]),
        ({"wait_for": -1}, ["`wait_for`", "-1", "at least 0 milliseconds"]),
        ({"wait_for": 60_000}, ["`wait_for` would wait for 60000", "fit into `timeout` (60000, its default)"]),
        ({"wait_for": 1001, "timeout": 1001}, ["`wait_for`", "(1001):", "a longer timeout"]),
        ({"actions": [{"type": "wait", "milliseconds": 30_000}] * 2}, ["`actions` would wait for 60000"]),
        (
            {"wait_for": 200_000, "actions": [{"type": "wait", "milliseconds": 100_000}], "timeout": 300_000},
            ["`wait_for` and `actions` would wait for 300000 milliseconds in all"],
        ),
        ({"actions": [{"type": "wait"}]}, ["`actions[0].milliseconds`", "`actions[0].selector`"]),
        ({"actions": [{"type": "wait", "milliseconds": 1, "selector": "a"}]}, ["exactly one"]),
        ({"profile": {"name": "x" * 129}}, ["`profile.name`", "129 characters", "1 to 128"]),
        ({"profile": {}}, ["`profile.name` is missing"]),
        ({"threat_protection": {"a": [float("nan")]}}, ["`threat_protection.a[0]`", "nan"]),
        ({"threat_protection": {5: 1}}, ["`threat_protection`", "key"]),
        ({"origin": "\ud800"}, ["`origin`", "surrogate"]),
        ({"url": "file:///etc/passwd"}, ["`url`", "'file'", "http"]),
        ({"url": ""}, ["`url` is empty"]),
        ({"url": 5}, ["`url`", "5"]),
    ],
)
def test_the_message_names_option_problem_and_range(given: dict[str, Any], words: list[str]) -> None:
    message = refusal(**given)
    for word in words:
        assert word in message
    assert len(message) < 500


def test_limits_are_reached_and_not_passed() -> None:
    assert page(wait_for=59_999)["waitFor"] == 59_999
    assert page(wait_for=299_999, timeout=300_000)["waitFor"] == 299_999
    assert len(page(actions=[{"type": "wait", "milliseconds": 400}] * 149)["actions"]) == 149  # type: ignore[arg-type]
    assert page(formats=["changeTracking", "markdown", "screenshot"])


def test_nested_options_have_the_same_rules() -> None:
    for case in ({"wait_for": 60_000}, {"waitFor": 60_000}):
        with pytest.raises(InvalidOption, match=r"`scrape_options\.wait_for`"):
            o.to_wire(o.CrawlRequest, {"url": "example.com", "scrape_options": case})
    with pytest.raises(InvalidOption, match=r"`scrape_options\.only_clean_content`"):
        o.to_wire(
            o.CrawlRequest,
            {"url": "example.com", "zero_data_retention": True, "scrape_options": {"only_clean_content": True}},
        )
    with pytest.raises(InvalidOption, match=r"`scrapeOptions\.waitFor`"):
        o.from_wire(o.CrawlRequest, {"url": "example.com", "scrapeOptions": {"waitFor": 60_000}})
    with pytest.raises(InvalidOption, match="`include_domains` and `exclude_domains`"):
        o.to_wire(o.SearchRequest, {"query": "q", "include_domains": ["a.example"], "exclude_domains": ["b.example"]})
    for case in ({}, {"code": "1", "prompt": "p"}):
        with pytest.raises(InvalidOption, match="Exactly one of `code` and `prompt`"):
            o.to_wire(o.InteractOptions, case)
    for case in ({}, {"urls": []}, {"prompt": ""}):
        with pytest.raises(InvalidOption, match="`urls`, `prompt`"):
            o.to_wire(o.ExtractRequest, case)


def test_keys_of_user_content_are_not_renamed() -> None:
    schema = {"type": "object", "properties": {"full_page": {"max_length": 1}}}
    sent = o.to_wire(
        o.BatchScrapeRequest,
        {
            "urls": ["example.com"],
            "formats": [{"type": "json", "schema": schema}],
            "headers": {"x_a_b": "1"},
            "threat_protection": {"a_b": {"c_d": 1}},
            "redact_pii": {"a_b": 1},
            "webhook": {"url": "https://example.com", "metadata": {"run_id": "1"}, "headers": {"x_y": "1"}},
        },
    )
    assert sent["formats"] == [{"type": "json", "schema": schema}]
    assert (sent["headers"], sent["threatProtection"], sent["redactPII"]) == (
        {"x_a_b": "1"},
        {"a_b": {"c_d": 1}},
        {"a_b": 1},
    )
    assert sent["webhook"] == {"url": "https://example.com", "metadata": {"run_id": "1"}, "headers": {"x_y": "1"}}


def test_option_values_may_be_written_in_snake_case() -> None:
    sent = page(
        formats=["raw_html", "markdown", {"type": "change_tracking"}],
        actions=[{"type": "execute_javascript", "script": "1"}],
    )
    assert sent["formats"] == ["rawHtml", "markdown", {"type": "changeTracking"}]
    assert sent["actions"] == [{"type": "executeJavascript", "script": "1"}]
    with pytest.raises(InvalidOption, match="rawHtml"):
        o.from_wire(o.ScrapeRequest, {"url": "example.com", "formats": ["raw_html"]})


def test_the_parsed_options_are_plain_and_the_argument_is_unchanged() -> None:
    class Proxy(str, enum.Enum):
        AUTO = "auto"

    class Ages(enum.IntEnum):
        DAY = 86_400_000

    languages, metadata = ["de"], {"a": [1]}
    given = {"proxy": Proxy.AUTO, "max_age": Ages.DAY, "location": MappingProxyType({"languages": tuple(languages)})}
    sent = page(**given, threat_protection=metadata)
    assert (type(sent["proxy"]), type(sent["maxAge"]), sent["location"]) == (str, int, {"languages": ["de"]})
    metadata["a"].append(2)
    assert sent["threatProtection"] == {"a": [1]}


VALUE = "the-headers-own-value"


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": VALUE.encode()},
        {"Cookie": [VALUE]},
        {"Cookie": f"{VALUE}\ud800"},
        f"Cookie: {VALUE}",
        [f"Cookie: {VALUE}"],
        {5: VALUE},
        {"": VALUE},
    ],
)
def test_no_header_value_stands_in_a_message(headers: object) -> None:
    for case in ({"headers": headers}, {"webhook": {"url": "https://example.com", "headers": headers}}):
        for request, check in (
            ({"urls": ["example.com"], **case}, o.to_wire),
            ({"urls": ["example.com"], **case}, o.from_wire),
        ):
            with pytest.raises(InvalidOption, match="headers") as caught:
                check(o.BatchScrapeRequest, request)
            assert VALUE not in str(caught.value)


def test_a_url_is_shown_without_user_query_and_fragment() -> None:
    message = refusal(url="ftp://me:hidden@example.com/a?token=hidden#hidden")
    assert "example.com/a" in message
    assert "hidden" not in message


def test_urls_of_a_batch() -> None:
    mixed = ["mailto:a@example.com", "example.com"]
    assert o.to_wire(o.BatchScrapeRequest, {"urls": mixed})["urls"] == mixed
    with pytest.raises(InvalidOption, match=r"`urls\[0\]`.*mailto"):
        o.to_wire(o.BatchScrapeRequest, {"urls": mixed, "ignore_invalid_urls": False})
    with pytest.raises(InvalidOption, match="No valid URLs provided"):
        o.from_wire(o.BatchScrapeRequest, {"urls": mixed[:1]})
    with pytest.raises(InvalidOption, match="`urls` is empty"):
        o.to_wire(o.BatchScrapeRequest, {"urls": []})


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "HTTP://EXAMPLE.com/ä b?c#d",
        "example.com/a",
        "localhost:8000/x",
        "127.0.0.1:80",
        "[::1]:8080/",
        "http://[::1]/",
        "https://münchen.example/",
        "user.example:443?x=1",
        "http://u:p@example.com/",
    ],
)
def test_valid_page_urls_are_accepted(url: str) -> None:
    assert o.url_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "ftp://example.com",
        "javascript:alert(1)",
        "data:text/html,x",
        "mailto:a@example.com",
        "a@example.com",
        "//example.com",
        "http:example.com",
        "http:///a",
        "http://",
        "/a",
        "?a",
        "http://exa mple.com",
        "http://example.com:99999",
        "http://[::1",
        "https://example.com\n",
        "http://example.com\\@other.example",
        "ｈttp://example.com",
        "about:blank",
        "file:a",
        "http://..",
    ],
)
def test_invalid_page_urls_are_refused(url: str) -> None:
    assert o.url_problem(url)


@given(st.text())
def test_any_text_is_classified_as_a_url_or_refused(text: str) -> None:
    assert o.url_problem(text) is None or isinstance(o.url_problem(text), str)


@pytest.mark.parametrize(
    ("cls", "body", "says", "hint"),
    [
        (o.ScrapeRequest, {"onlyMainContnt": True}, "'onlyMainContnt' is not an option here.", "`onlyMainContent`"),
        (o.ScrapeRequest, {"max_age": 2}, "'max_age' is not an option here.", "`maxAge`"),
        (o.ScrapeRequest, {"brandNew": 1}, "'brandNew' is not an option here.", "Known here: "),
        (o.ScrapeRequest, {"location": {"contry": "DE"}}, "'contry' is not an option of `location`.", "`country`"),
        (o.ScrapeRequest, {"formats": [{"type": "json", "prompt": "x", "scheme": {}}]}, "`formats[0]`", "`schema`"),
        (o.ScrapeRequest, {"parsers": [{"type": "pdf", "maxPage": 1}]}, "'maxPage'", "`maxPages`"),
        (
            o.CrawlRequest,
            {"scrapeOptions": {"waitfor": 1}},
            "option of `scrapeOptions`",
            "`waitFor`",
        ),
        (o.CrawlRequest, {"webhook": {"url": "http://example.com", "evnts": []}}, "'evnts'", "`events`"),
    ],
)
def test_an_unknown_name_in_a_received_body_is_refused(cls: type, body: dict[str, Any], says: str, hint: str) -> None:
    """A name that is misspelt and ignored is the worst that a test double can do: the public service refuses it too."""
    with pytest.raises(InvalidOption) as caught:
        o.from_wire(cls, {"url": "example.com", **body})
    assert says in caught.value.message
    assert hint in caught.value.hint
    ignored: list[str] = []
    if "scrapeOptions" in body:  # the contract has their names
        with pytest.raises(InvalidOption):
            o.from_wire(cls, {"url": "example.com", **body}, ignored=ignored)
    else:
        assert o.from_wire(cls, {"url": "example.com", **body}, ignored=ignored)["url"] == "example.com"
        assert len(ignored) == 1


def test_a_received_body_is_an_object() -> None:
    with pytest.raises(InvalidOption, match="not an object"):
        o.from_wire(o.ScrapeRequest, [{}])


def test_a_giant_integer_may_be_received_in_free_contents() -> None:
    body = {"url": "http://x.test", "formats": [{"type": "json", "schema": {"maximum": 10**30}}]}
    assert o.from_wire(o.ScrapeRequest, body)["formats"] == [{"type": "json", "schema": {"maximum": 1e30}}]
    with pytest.raises(InvalidOption, match="giant"):
        o.to_wire(o.ScrapeRequest, body)
    body["formats"][0]["schema"]["maximum"] = 10**400
    with pytest.raises(InvalidOption, match="giant"):
        o.from_wire(o.ScrapeRequest, body)


def test_a_whole_number_may_be_received_as_a_float() -> None:
    assert o.from_wire(o.ScrapeRequest, {"url": "example.com", "maxAge": 5.0}) == {"url": "example.com", "max_age": 5}
    for bad in (5.5, 1e400, True):
        with pytest.raises(InvalidOption, match="maxAge"):
            o.from_wire(o.ScrapeRequest, {"url": "example.com", "maxAge": bad})
    with pytest.raises(InvalidOption, match="max_age"):
        o.to_wire(o.ScrapeRequest, {"url": "example.com", "max_age": 5.0})


@given(st.sampled_from(REQUESTS), st.data())
def test_anything_is_accepted_or_refused(cls: type, data: st.DataObject) -> None:
    """No value raises anything but InvalidOption, and what is accepted says the same on both sides of the wire."""
    known = fields(cls)
    names = st.sampled_from([*known, *(field.wire for field in known.values())])
    values = JSON | st.sampled_from(
        ["markdown", "https://example.com", [{"type": "json"}], [{"type": "wait", "selector": ""}]]
    )
    body = data.draw(st.dictionaries(names | st.text(max_size=5), values, max_size=4))
    received = accepted(o.from_wire, cls, body)
    if received is not None:
        assert o.from_wire(cls, o.to_wire(cls, received)) == received
    sent = accepted(o.to_wire, cls, body)
    if sent is not None:
        assert o.to_wire(cls, o.from_wire(cls, sent)) == sent


def accepted(check: Callable[[type, Any], dict[str, object]], cls: type, body: object) -> dict[str, object] | None:
    try:
        return check(cls, body)
    except InvalidOption:
        return None


def test_nesting_has_a_bound() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert "nested" in refusal(threat_protection=deep)


def test_a_very_large_integer_of_a_received_request_is_a_number_wherever_it_stands() -> None:
    received = {
        "url": "https://example.com",
        "webhook": {"url": "https://a.test/", "metadata": {"n": [[2**70], 2**64 - 1]}},
    }
    given = o.from_wire(requests.CrawlRequest, received)
    assert given["webhook"]["metadata"] == {"n": [[float(2**70)], 2**64 - 1]}  # type: ignore[index]
    with pytest.raises(InvalidOption, match="metadata"):
        o.to_wire(requests.CrawlRequest, {"url": "https://example.com", "webhook": received["webhook"]})


def test_the_permitted_values_are_named_with_objects() -> None:
    assert "an object" in refusal(actions=[3])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (o.CrawlOptions, {"limit": "25"}, {"limit": 25}),
        (o.CrawlOptions, {"limit": " 25\n"}, {"limit": 25}),
        (o.CrawlOptions, {"delay": "0.5"}, {"delay": 0.5}),
        (o.CrawlOptions, {"allow_external_links": "True"}, {"allow_external_links": True}),
        (o.CrawlOptions, {"allow_external_links": "false"}, {"allow_external_links": False}),
        (o.CrawlOptions, {"include_paths": '["/docs/.*", "5"]'}, {"include_paths": ["/docs/.*", "5"]}),
        (o.CrawlOptions, {"include_paths": "['/docs/.*']"}, {"include_paths": ["/docs/.*"]}),
        (o.CrawlOptions, {"include_paths": ["5", "true", "[x]"]}, {"include_paths": ["5", "true", "[x]"]}),
        (
            o.CrawlOptions,
            {"scrape_options": {"timeout": "2000", "formats": '["markdown", {"type": "screenshot"}]'}},
            {"scrape_options": {"timeout": 2000, "formats": ["markdown", {"type": "screenshot"}]}},
        ),
        (
            o.CrawlOptions,
            {"scrape_options": '{"onlyMainContent": false}'},
            {"scrape_options": {"only_main_content": False}},
        ),
        (
            o.ScrapeOptions,
            {"formats": ["markdown", '{"type": "screenshot", "full_page": true}'], "headers": '{"X-A": "1"}'},
            {"formats": ["markdown", {"type": "screenshot", "full_page": True}], "headers": {"X-A": "1"}},
        ),
        (
            o.ScrapeOptions,
            {"formats": [{"type": "screenshot", "quality": "80", "viewport": {"width": "800", "height": "600"}}]},
            {"formats": [{"type": "screenshot", "quality": 80, "viewport": {"width": 800, "height": 600}}]},
        ),
        (o.ScrapeOptions, {"proxy": "basic", "origin": "5"}, {"proxy": "basic", "origin": "5"}),
        (
            o.MapOptions,
            {"limit": "3", "search": "7", "sitemap": "only"},
            {"limit": 3, "search": "7", "sitemap": "only"},
        ),
        (o.InteractOptions, {"code": "1", "timeout": "30"}, {"code": "1", "timeout": 30}),
    ],
)
def test_a_text_is_read_as_the_type_of_its_option(kind: type, text: dict[str, Any], value: dict[str, Any]) -> None:
    found = o.from_texts(kind, text)
    assert found == value
    assert repr(found) == repr(value), "True is not 1"
    assert o.from_texts(kind, value) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"limit": "many"}, "`limit` is 'many', not an integer"),
        ({"limit": "None"}, "Leave it out"),
        ({"limit": ""}, "`limit` is '', not an integer"),
        ({"limit": "2.5"}, "`limit` is 2.5, not an integer"),
        ({"limit": "NaN"}, "`limit` is nan"),
        ({"limit": "true"}, "`limit` is True"),
        ({"limit": "[5]"}, "`limit` is a list"),
        ({"include_paths": "/docs/.*"}, "`include_paths` is a text, not a list. Write it as ["),
        ({"include_paths": "[" * 100_000}, "`include_paths` is a text, not a list"),
        ({"allow_external_links": "yes"}, "`allow_external_links` is 'yes', not true or false"),
        ({"url": "https://a.example"}, "'url' is not an option here"),
    ],
)
def test_a_text_of_another_type_is_refused(text: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        o.from_texts(o.CrawlOptions, text)
    assert words.lower() in str(caught.value).lower()

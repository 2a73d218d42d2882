"""Tests of the options' schema, which editors and `dg check yaml` use, against the contract's own check."""

from __future__ import annotations

from typing import get_type_hints

import jsonschema
import pytest

from dagster_weblake.components.option_schema import options_schema
from weblake.api import options
from weblake.errors import InvalidOption

CRAWL = jsonschema.Draft202012Validator(options_schema(options.CrawlOptions))
PAGE = [
    {},
    {"formats": ["markdown", "raw_html", "rawHtml", "change_tracking"]},
    {
        "formats": [
            {"type": "json", "prompt": "price", "schema": {"type": "object", "anyOf": []}},
            {"type": "links"},
        ]
    },
    {"formats": [{"type": "screenshot", "full_page": True, "viewport": {"width": 800, "height": 600}}]},
    {"formats": [{"type": "change_tracking", "modes": ["git-diff"], "tag": None}, "markdown"]},
    {"formats": [{"type": "attributes", "selectors": [{"selector": "a", "attribute": "href"}]}]},
    {"headers": {"Cookie": "a=b"}, "wait_for": 100, "timeout": 30_000, "max_age": 0, "proxy": "auto"},
    {"parsers": ["pdf", {"type": "pdf", "mode": "ocr", "max_pages": 3}], "mobile": True, "include_tags": []},
    {
        "actions": [
            {"type": "wait", "selector": "a"},
            {"type": "execute_javascript", "script": "1"},
            {"type": "scrape"},
        ]
    },
    {"location": {"country": "DE", "languages": ["de"]}, "profile": {"name": "a"}, "audit_metadata": {"username": "a"}},
    {"redact_pii": True, "threat_protection": {"level": 1}},
    {"redact_pii": {"entities": ["name"]}},
]
CRAWLS = [
    {"limit": 1, "max_discovery_depth": 0, "delay": 0.5, "sitemap": "only", "integration": None, "prompt": "docs only"},
    {"include_paths": [".*"], "exclude_paths": [], "webhook": "https://a.example.com/"},
    {"webhook": {"url": "https://a.example.com/", "headers": {"a": "b"}, "metadata": {"a": [1]}, "events": ["page"]}},
    *({"scrape_options": page} for page in PAGE),
]
WRONG = [
    {"limt": 1},
    {"limit": 0},
    {"limit": "many"},
    {"limit": None},
    {"limit": True},
    {"delay": 0},
    {"sitemap": "some"},
    {"include_paths": ".*"},
    {"webhook": {"headers": {}}},
    {"webhook": {"url": "https://a.example.com/", "events": ["pages"]}},
    {"scrape_options": {"formats": ["markdwn"]}},
    {"scrape_options": {"formats": [{"type": "jsn"}]}},
    {"scrape_options": {"formats": [{}]}},
    {"scrape_options": {"formats": [{"type": "screenshot", "quality": 101}]}},
    {"scrape_options": {"actions": [{"type": "click"}]}},
    {"scrape_options": {"headers": {"a": 1}}},
    {"scrape_options": {"wait_fr": 1}},
    {"scrape_options": {"timeout": 1}},
]


@pytest.mark.parametrize("given", CRAWLS, ids=str)
def test_the_schema_accepts_all_valid_options(given: dict[str, object]) -> None:
    options.to_wire(options.CrawlOptions, given)
    assert [error.message for error in CRAWL.iter_errors(given)] == []


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_the_schema_refuses_only_invalid_options(given: dict[str, object]) -> None:
    assert not CRAWL.is_valid(given)
    with pytest.raises(InvalidOption):
        options.to_wire(options.CrawlOptions, given)


def test_a_template_may_stand_anywhere() -> None:
    text = "{{ anything }}"
    assert CRAWL.is_valid(text)
    assert CRAWL.is_valid({"limit": text, "scrape_options": {"formats": [text], "headers": {"Cookie": text}}})


@pytest.mark.parametrize("kind", [options.CrawlOptions, options.BatchScrapeOptions])
def test_every_option_is_in_the_schema(kind: type) -> None:
    schema = options_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["else"]["properties"]) == set(get_type_hints(kind))  # type: ignore[index]

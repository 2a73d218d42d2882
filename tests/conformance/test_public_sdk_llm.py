"""A public client of this API, unchanged, can use the operations of a language model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from firecrawl import Firecrawl
from firecrawl.v2.types import ScrapeOptions
from pydantic import BaseModel

pytestmark = pytest.mark.system

#: Seconds between the polls of the SDK.
POLL_S = 0.05


class Page(BaseModel):
    title: str
    words: int | None = None


@pytest.fixture
def client(weblake_service: Any, weblake_llm: Any) -> Iterator[Firecrawl]:
    with warnings.catch_warnings():
        # The SDK calls extract deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        yield Firecrawl(api_key=weblake_service.key, api_url=weblake_service.url, timeout=60)


def test_a_scrape_has_every_format_of_a_language_model(client: Firecrawl, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say("A summary.", where="Summarise")
    weblake_llm.say("An answer.", where="Why")
    weblake_llm.say({"title": "About", "words": 3})
    page = client.scrape(
        weblake_site.url + "/about",
        formats=["summary", {"type": "json", "schema": Page}, {"type": "question", "question": "Why?"}],
    )
    assert (page.summary, page.json, page.answer) == ("A summary.", {"title": "About", "words": 3}, "An answer.")
    assert page.metadata.credits_used == 5


def test_changes_are_reported_by_field(client: Firecrawl, weblake_llm: Any, weblake_site: Any) -> None:
    url = weblake_site.url + "/about"
    formats = ["markdown", {"type": "changeTracking", "modes": ["json"], "prompt": "title"}]
    client.scrape(url, formats=formats)
    weblake_site.change("/about")
    weblake_llm.say({"previous": {"title": "a"}, "current": {"title": "b"}})
    changed = client.scrape(url, formats=formats)
    assert changed.change_tracking["json"] == {"title": {"previous": "a", "current": "b"}}


def test_a_batch_returns_json_of_a_schema(client: Firecrawl, weblake_llm: Any, weblake_site: Any) -> None:
    urls = weblake_site.urls("/news/")
    job = client.batch_scrape(urls, formats=[{"type": "json", "schema": Page}], poll_interval=POLL_S, wait_timeout=60)
    assert (job.status, job.credits_used) == ("completed", 5 * len(urls))
    assert all(page.json["title"] for page in job.data)


def test_an_extract_returns_data(client: Firecrawl, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say({"title": "News"})
    found = client.extract(
        urls=[weblake_site.url + "/news/*"], prompt="The titles.", schema=Page.model_json_schema(), show_sources=True,
        scrape_options=ScrapeOptions(only_main_content=True), poll_interval=POLL_S, timeout=60,
    )  # fmt: skip
    assert (found.success, found.status, found.data) == (True, "completed", {"title": "News"})
    assert found.credits_used == 1 + len(weblake_site.urls("/news/")) + 4
    assert found.sources


def test_an_agent_returns_data(client: Firecrawl, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say({"action": "scrape", "url": weblake_site.url + "/about"})
    weblake_llm.say({"action": "finish", "data": {"title": "About", "words": None}})
    found = client.agent(
        prompt="The title.", urls=[weblake_site.url], schema=Page, max_credits=50, poll_interval=POLL_S, timeout=60
    )
    assert (found.status, found.data) == ("completed", {"title": "About", "words": None})
    assert (found.model, found.credits_used) == ("test-model", 5)


def test_an_agent_is_cancelled(client: Firecrawl, weblake_llm: Any) -> None:
    weblake_llm.stall()
    started = client.start_agent(prompt="x")
    assert client.get_agent_status(started.id).status == "processing"
    assert client.cancel_agent(started.id) is True


def test_a_prompt_becomes_crawl_parameters(client: Firecrawl, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say({"includePaths": ["^/news/"], "limit": 2}, times=2)
    shown = client.crawl_params_preview(weblake_site.url, "Two pages of news.")
    assert (shown.include_paths, shown.limit) == (["^/news/"], 2)
    job = client.crawl(weblake_site.url + "/news/", prompt="Two pages of news.", poll_interval=POLL_S, timeout=60)
    assert (job.status, job.completed) == ("completed", 2)

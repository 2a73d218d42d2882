"""A public client of this API, written by others and unchanged, can do everything that a pipeline needs."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import firecrawl
import pytest
from firecrawl import Firecrawl
from firecrawl.v2.types import PaginationConfig, ParseOptions, ScrapeOptions, WebhookConfig
from gated_site import GatedSite
from polling import until

from weblake.testing.webhooks import WeblakeWebhooks

pytestmark = pytest.mark.system

#: Seconds between the polls of the SDK.
POLL_S = 0.05
FAST = {"poll_interval": POLL_S, "timeout": 60}


@pytest.fixture
def client(served: Any) -> Firecrawl:
    return Firecrawl(api_key=served.key, api_url=served.url, timeout=60)


@pytest.fixture
def receiver() -> Iterator[WeblakeWebhooks]:
    with WeblakeWebhooks("test-secret") as made:
        yield made


def test_a_scrape_has_every_plain_format(client: Firecrawl, site: GatedSite) -> None:
    (url,) = site.pages(1)
    page = client.scrape(
        url, formats=["markdown", "html", "rawHtml", "links", "images"], only_main_content=False, max_age=0,
        include_tags=["main"], timeout=20_000, parsers=["pdf"], block_ads=True, proxy="auto", fast_mode=False,
        remove_base64_images=True, skip_tls_verification=True, headers={"x-test": "1"}, location={"country": "DE"},
    )  # fmt: skip
    assert page.markdown == "# Page 0\n\nÜnïcode № 0, a page of the page kind 日本語."
    assert page.raw_html.startswith("<title>page 0")
    assert "<main>" in page.html
    assert "no proxy in DE" in page.warning
    assert (page.links, page.images) == ([], [])
    assert (page.metadata.title, page.metadata.status_code, page.metadata.source_url) == ("page 0", 200, url)
    assert uuid.UUID(page.metadata.scrape_id)


def test_changes_are_tracked(client: Firecrawl, site: GatedSite) -> None:
    (url,) = site.pages(1, first=77)
    wanted = {"formats": ["markdown", {"type": "changeTracking", "modes": ["git-diff"]}], "max_age": 0}
    first, second = client.scrape(url, **wanted), client.scrape(url, **wanted)
    assert first.change_tracking["changeStatus"] == "new"
    assert second.change_tracking["changeStatus"] == "same"
    assert second.change_tracking["previousScrapeAt"]


def test_missing_jobs_and_missing_features_raise_the_errors_of_the_sdk(client: Firecrawl, site: GatedSite) -> None:
    (url,) = site.pages(1)
    assert client.scrape(f"{site.url}/nothing").metadata.status_code == 404
    with pytest.raises(firecrawl.DNSResolutionError):
        client.scrape("http://nowhere.invalid")
    for missing in ({"formats": ["summary"]}, {"proxy": "enhanced"}):
        with pytest.raises(firecrawl.FirecrawlError) as caught:
            client.scrape(url, **missing)
        assert caught.value.status_code == 503
        assert "which this service does not have" in str(caught.value)
    with pytest.raises(firecrawl.FirecrawlError) as caught:
        client.scrape(f"{site.url}/page/4321", lockdown=True)
    assert caught.value.status_code == 404
    with pytest.raises(firecrawl.UnauthorizedError):
        Firecrawl(api_key="no-such-key", api_url=client._v2_client.config.api_url).scrape(url)


def test_a_page_is_scraped_in_a_browser(client: Firecrawl, site: GatedSite) -> None:
    (url,) = site.pages(1, first=88)
    actions = [{"type": "wait", "milliseconds": 10}, {"type": "scrape"}, {"type": "executeJavascript", "script": "1+1"}]
    found = client.scrape(url, formats=["markdown", "screenshot", "branding"], mobile=True, actions=actions)
    assert found.screenshot.startswith("data:image/png;base64,")
    assert found.actions["scrapes"][0]["url"] == url
    assert found.actions["javascriptReturns"] == [{"type": "number", "value": 2}]
    assert found.branding.color_scheme == "light"


def test_a_batch_runs_from_its_start_to_its_webhook(
    client: Firecrawl, site: GatedSite, receiver: WeblakeWebhooks
) -> None:
    urls = site.pages(5, first=10)
    hook = WebhookConfig(url=receiver.url, metadata={"run": "7"}, headers={"x-mine": "yes"}, events=["completed"])
    key = str(uuid.uuid4())
    started = client.start_batch_scrape(
        urls, formats=["markdown"], ignore_invalid_urls=True, max_concurrency=2, webhook=hook, idempotency_key=key
    )
    again = client.start_batch_scrape(
        urls, formats=["markdown"], ignore_invalid_urls=True, max_concurrency=2, webhook=hook, idempotency_key=key
    )
    assert again.id == started.id
    receiver.wait("completed", job=started.id)
    (delivery,) = receiver.deliveries
    headers, body = delivery.headers, delivery.body
    digest = hmac.new(b"test-secret", body, hashlib.sha256).hexdigest()
    assert headers["x-service-signature"] == f"sha256={digest}"
    event = json.loads(body)
    assert (event["type"], event["id"], event["data"]) == ("batch_scrape.completed", started.id, [])
    assert (event["metadata"], headers["x-mine"]) == ({"run": "7"}, "yes")
    job = client.get_batch_scrape_status(started.id)
    assert (job.status, job.completed, job.total, job.credits_used) == ("completed", 5, 5, 5)
    assert sorted(page.metadata.source_url for page in job.data) == sorted(urls)
    assert client.get_batch_scrape_errors(started.id).errors == []
    page = client.get_batch_scrape_status_page(
        f"{client._v2_client.config.api_url}/v2/batch/scrape/{started.id}?skip=3"
    )
    assert len(page.data) == 2
    client.start_batch_scrape(site.pages(1, first=30), formats=["markdown"], append_to_id=started.id)


def test_a_long_job_is_paginated(client: Firecrawl, site: GatedSite) -> None:
    urls = site.pages(110, first=1000)  # the service answers with 100
    job = client.batch_scrape(urls, formats=["markdown"], **{**FAST, "wait_timeout": 60, "timeout": 30_000})
    assert sorted(page.metadata.source_url for page in job.data) == sorted(urls)
    first = client.get_batch_scrape_status(
        client.start_batch_scrape(urls[:1]).id, pagination_config=PaginationConfig(auto_paginate=False)
    )
    assert first.status in ("scraping", "completed")


def test_a_crawl_obeys_its_options(client: Firecrawl, site: GatedSite) -> None:
    job = client.crawl(
        f"{site.url}/", limit=4, include_paths=[r"^/page/\d+$", "^/$"], exclude_paths=["^/page/0$"],
        max_discovery_depth=1, sitemap="skip", ignore_query_parameters=True, crawl_entire_domain=True,
        allow_external_links=False, allow_subdomains=False, ignore_robots_txt=False, max_concurrency=2,
        regex_on_full_url=False, deduplicate_similar_urls=True,
        scrape_options=ScrapeOptions(formats=["markdown", "links"], only_main_content=True, max_age=0), **FAST,
    )  # fmt: skip
    assert (job.status, job.completed, job.credits_used) == ("completed", 4, 4)
    paths = sorted(page.metadata.source_url.removeprefix(site.url) for page in job.data)
    assert paths == ["/", "/page/1", "/page/2", "/page/3"]


def test_a_crawl_is_listed_while_it_runs_and_cancelled_at_once(client: Firecrawl, site: GatedSite) -> None:
    (held,) = site.held(1)
    started = client.start_crawl(held, limit=3, scrape_options=ScrapeOptions(formats=["markdown"]))
    assert [one.id for one in client.get_active_crawls().crawls] == [started.id]
    assert client.get_crawl_errors(started.id).robots_blocked == []
    assert client.cancel_crawl(started.id) is True
    assert client.get_active_crawls().crawls == []
    assert client.get_crawl_status(started.id).status == "cancelled"
    (other,) = site.held(1, first=5)
    batch = client.start_batch_scrape([other])
    assert client.cancel_batch_scrape(batch.id) is True
    assert client.get_batch_scrape_status(batch.id).status == "cancelled"
    site.release()


def test_map_and_search_return_urls(client: Firecrawl, site: GatedSite) -> None:
    found = client.map(f"{site.url}/", limit=4, sitemap="include", include_subdomains=True)
    assert [link.url.removeprefix(site.url) for link in found.links] == ["/", "/page/0", "/page/1", "/page/2"]
    word = "".join(chr(ord("a") + int(digit, 16)) for digit in uuid.uuid4().hex)
    client.scrape(f"{site.url}/page/640", max_age=0)
    hits = client.search("Page 640", limit=3)
    assert f"{site.url}/page/640" in [hit.url for hit in hits.web]
    scraped = client.search("Page 640", limit=1, scrape_options=ScrapeOptions(formats=["markdown"]))
    assert scraped.web[0].markdown.startswith("# Page 640")
    assert not client.search(word).web


def test_files_are_parsed(client: Firecrawl, tmp_path: Path) -> None:
    page = client.parse(
        "<h1>Hëading</h1><p>text</p>".encode(), filename="a.html", options=ParseOptions(formats=["markdown", "html"])
    )
    assert page.markdown == "# Hëading\n\ntext"
    documents = Path(__file__).parent.parent / "service" / "documents"
    files = [*documents.glob("tides.[!m]*"), *documents.glob("gauges.xls*")]
    assert {path.suffix for path in files} == {".html", ".pdf", ".docx", ".doc", ".odt", ".rtf", ".xls", ".xlsx"}
    for path in files:
        assert client.parse(path, options=ParseOptions(formats=["markdown"])).markdown, path
    wrong = tmp_path / "a.exe"
    wrong.write_bytes(b"MZ")
    with pytest.raises(firecrawl.FirecrawlError):
        client.parse(wrong)
    assert {"pdf", "docx"} <= {one.format for one in client.get_parse_formats()}


def test_the_team_reads_its_usage(client: Firecrawl, site: GatedSite) -> None:
    # The jobs that earlier tests started are billed until they end.
    until(lambda: client.get_queue_status().jobs_in_queue == 0)
    before = client.get_credit_usage()
    client.scrape(site.pages(1, first=900)[0], max_age=0)
    after = client.get_credit_usage()
    assert before.remaining_credits - after.remaining_credits == 1
    assert client.get_token_usage().plan_tokens == 15 * after.plan_credits
    assert client.get_concurrency().max_concurrency > 0
    assert client.get_queue_status().jobs_in_queue == 0
    credits = client._v2_client.get_credit_usage_historical(by_api_key=True)
    tokens = client._v2_client.get_token_usage_historical()
    assert credits.success is True
    assert tokens.success is True
    assert len(credits.periods) == len(tokens.periods) == 1

"""A public client of this API, unchanged, can use browser sessions and interact with the page of a scrape."""

from __future__ import annotations

from collections.abc import Iterator

import browser_lab
import firecrawl
import pytest
from browser_lab import BrowserLab
from firecrawl import Firecrawl
from playwright.sync_api import sync_playwright
from session_lab import CLICKS

from weblake.testing.llm import WeblakeLlm
from weblake_service.config import ServiceConfig

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def model() -> Iterator[WeblakeLlm]:
    with WeblakeLlm() as model:
        yield model


@pytest.fixture(scope="module")
def lab(model: WeblakeLlm) -> Iterator[BrowserLab]:
    config = ServiceConfig(**model.config())  # type: ignore[arg-type]
    for lab in browser_lab.open_lab(allow_code_execution=True, config=config):
        lab.site.page("/clicks", CLICKS)
        yield lab


@pytest.fixture
def client(lab: BrowserLab) -> Firecrawl:
    return Firecrawl(api_key="red-key", api_url=lab.service.url, timeout=60)


def test_a_session_is_created_used_and_closed(client: Firecrawl, lab: BrowserLab) -> None:
    made = client.browser(ttl=120, activity_ttl=60, stream_web_view=True, profile={"name": "sdk"})
    assert made.success
    assert made.expires_at
    url = lab.site.url("/clicks")
    ran = client.browser_execute(made.id, f"await page.goto('{url}'); console.log(await page.title())", language="node")
    assert (ran.result, ran.exit_code, ran.killed) == ("Start\n", 0, False)
    ran = client.browser_execute(made.id, "await page.click('button')\nprint(await page.title())", language="python")
    assert ran.stdout == "clicked 1\n"
    # The default language of the SDK.
    ran = client.browser_execute(
        made.id, "agent-browser snapshot -i && agent-browser click @e1; agent-browser get title"
    )
    assert 'button "Add" [ref=e1]' in ran.stdout
    assert ran.stdout.splitlines()[-1] == "clicked 2"
    ended = client.browser_execute(made.id, "while :; do :; done", language="bash", timeout=1)
    assert (ended.killed, ended.success) == (True, True)
    with sync_playwright() as playwright:
        assert playwright.chromium.connect_over_cdp(made.cdp_url).contexts[0].pages[0].title() == "clicked 2"
    (listed,) = client.list_browsers(status="active").sessions
    assert (listed.id, listed.status, listed.stream_web_view) == (made.id, "active", True)
    closed = client.delete_browser(made.id)
    assert closed.success
    assert closed.session_duration_ms > 0
    assert closed.credits_billed >= 1
    assert [one.id for one in client.list_browsers(status="destroyed").sessions] == [made.id]
    with pytest.raises(firecrawl.FirecrawlError) as caught:
        client.browser_execute(made.id, "1")
    assert caught.value.status_code == 410


def test_interact_runs_code_and_a_prompt_on_a_scrape(client: Firecrawl, lab: BrowserLab, model: WeblakeLlm) -> None:
    page = client.scrape(lab.site.url("/clicks"), formats=["markdown"])
    scrape = page.metadata.scrape_id
    ran = client.interact(scrape, code="await page.click('button'); await page.title()")
    assert (ran.success, ran.result) == (True, "clicked 1")
    assert ran.live_view_url
    model.say({"action": "finish", "output": "It was clicked once."})
    told = client.interact(scrape, prompt="How often was it clicked?")
    assert told.output == "It was clicked once."
    assert "Counter" in told.result
    stopped = client.stop_interaction(scrape)
    assert stopped.success
    assert stopped.credits_billed >= 1
    with pytest.raises(firecrawl.FirecrawlError) as caught:
        client.interact(scrape, code="1")
    assert caught.value.status_code == 410

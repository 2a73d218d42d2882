"""Extract, agent, crawl parameters: jobs that work with a language model, against the scripted endpoint."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from polling import until

from weblake.testing import WeblakeService

TITLE = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
NO_JOB = "00000000-0000-4000-8000-000000000000"


class Api:
    """A service and calls of its API."""

    def __init__(self, service: WeblakeService) -> None:
        headers = {"Authorization": f"Bearer {service.key}"}
        self.http = httpx.Client(base_url=service.url, headers=headers, timeout=120, trust_env=False, verify=False)

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        reply = self.http.post(path, json=body)
        assert reply.status_code == status, reply.text
        return reply.json()

    def get(self, path: str, status: int = 200) -> Any:
        reply = self.http.get(path)
        assert reply.status_code == status, reply.text
        return reply.json()

    def wait_until_ended(self, kind: str, job: str) -> Any:
        def look() -> Any:
            found = self.get(f"/v2/{kind}/{job}")
            return found if found["status"] != "processing" else None

        return until(look)

    def run(self, kind: str, **body: Any) -> Any:
        return self.wait_until_ended(kind, self.post(f"/v2/{kind}", body)["id"])

    def credits(self) -> int:
        return sum(one["totalCredits"] for one in self.get("/v2/team/credit-usage/historical")["periods"])


@pytest.fixture
def api(weblake_service: WeblakeService, weblake_llm: Any) -> Any:
    made = Api(weblake_service)
    with made.http:
        yield made


def test_an_extract_reads_its_pages_and_answers_once(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    urls = [weblake_site.url + path for path in ("/about", "/contact")]
    weblake_llm.say({"title": "Both"})
    found = api.run("extract", urls=urls, schema=TITLE, prompt="The title.", systemPrompt="Be brief.", showSources=True)
    assert (found["success"], found["status"], found["data"]) == (True, "completed", {"title": "Both"})
    assert found["sources"] == {"urls": urls}
    assert found["creditsUsed"] == 2 + 4 == api.credits()
    assert found["tokensUsed"] == 90
    (request,) = weblake_llm.requests
    assert all(weblake_site.pages[path].paragraphs[0] in request.text for path in ("/about", "/contact"))
    assert "Be brief." in request.text
    (activity,) = api.get("/v2/team/activity?endpoint=extract")["data"]
    assert activity["target"] == urls[0]


def test_an_extract_without_urls_searches_scraped_pages(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    api.post("/v2/scrape", {"url": weblake_site.url + "/about"})
    title = weblake_site.pages["/about"].title
    found = api.run("extract", prompt=title, showSources=True)
    assert found["sources"]["urls"] == [weblake_site.url + "/about"]
    assert "not the web" in found["warning"]


def test_unreadable_pages_are_reported(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    dead = weblake_site.url + "/errors/drop"
    found = api.run("extract", urls=[weblake_site.url + "/about", dead], prompt="x", ignoreInvalidURLs=True)
    assert "1 of 2 pages could not be read" in found["warning"]
    failed = api.run("extract", urls=[dead], prompt="x")
    assert (failed["success"], failed["status"], failed["data"], failed["creditsUsed"]) == (False, "failed", [], 0)
    assert failed["error"]


def test_an_extract_with_an_invalid_answer_fails_and_only_its_pages_are_billed(
    api: Api, weblake_llm: Any, weblake_site: Any
) -> None:
    weblake_llm.say({"title": 1}, times=None)
    found = api.run("extract", urls=[weblake_site.url + "/about"], schema=TITLE)
    assert (found["status"], found["creditsUsed"]) == ("failed", 1)
    assert "WEBLAKE_LLM_MODEL" in found["error"]
    assert len(weblake_llm.requests) == 2


def test_invalid_urls_are_listed_separately(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    good = weblake_site.url + "/about"
    started = api.post("/v2/extract", {"urls": [good, "ftp://x"], "prompt": "x"})
    assert started["invalidURLs"] == ["ftp://x"]
    api.post("/v2/extract", {"urls": [good, "ftp://x"], "prompt": "x", "ignoreInvalidURLs": False}, 400)
    api.post("/v2/extract", {"urls": [good], "schema": {"$ref": "http://x/"}}, 400)
    api.post("/v2/extract", {"urls": [good], "prompt": "x", "scrapeOptions": {"lockdown": True}}, 400)
    assert "allowExternalLinks" in api.post("/v2/extract", {"prompt": "x", "allowExternalLinks": True}, 503)["error"]


def act(**action: Any) -> Any:
    return action


def test_an_agent_uses_its_tools_and_ends_with_data(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    about = weblake_site.url + "/about"
    for action in (
        act(action="map", url=weblake_site.url),
        act(action="scrape", url=about),
        act(action="search", query=weblake_site.pages["/about"].title),
        act(action="finish", data={"title": 1}),  # violates the schema: the model is asked again
        act(action="finish", data={"title": "About"}),
    ):
        weblake_llm.say(action)
    found = api.run("agent", prompt="The title.", urls=[weblake_site.url], schema=TITLE)
    assert (found["success"], found["status"], found["data"]) == (True, "completed", {"title": "About"})
    assert found["model"] == "test-model"
    assert found["creditsUsed"] == 1 + 1 + 2 + 4 == api.credits()
    last = weblake_llm.requests[-2]
    assert about in last.messages[3]["content"]  # the URLs of the map
    assert weblake_site.pages["/about"].paragraphs[0] in last.messages[5]["content"]
    assert [one["role"] for one in last.messages] == ["system", "user"] + ["assistant", "user"] * 3
    job = api.get("/v2/team/activity?endpoint=agent")["data"][0]["id"]
    assert api.get(f"/v2/extract/{job}")["data"] == found["data"]


def test_an_endless_agent_is_asked_to_finish_and_then_fails(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say(act(action="scrape", url=weblake_site.url + "/about"), times=None)
    found = api.run("agent", prompt="x")
    assert found["status"] == "failed"
    assert found["creditsUsed"] == 20
    assert len(weblake_llm.requests) == 22
    assert "last action" in weblake_llm.requests[-2].messages[-1]["content"]


def test_invalid_agent_actions_are_reported_to_the_model(api: Api, weblake_llm: Any) -> None:
    for action in (
        act(action="search", query="site:[::1"),
        act(action="scrape", url="ftp://x"),
        act(action="map", url="http://127.0.0.1:9/"),
        act(action="dance"),
        act(action="finish", data={}),
    ):
        weblake_llm.say(action)
    found = api.run("agent", prompt="x")
    assert (found["status"], found["creditsUsed"]) == ("completed", 4)
    told = [one.messages[-1]["content"] for one in weblake_llm.requests[1:]]
    assert all("Not done" in text for text in told[:3])
    assert "scrape, map, search, finish" in told[3]


def test_an_agent_stays_within_its_credits(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    for _ in range(3):
        weblake_llm.say(act(action="scrape", url=weblake_site.url + "/about"))
    weblake_llm.say(act(action="finish", data={}))
    found = api.run("agent", prompt="x", maxCredits=6)
    assert found["creditsUsed"] == 6
    assert "Not done" in weblake_llm.requests[-1].messages[-1]["content"]
    assert "maxCredits" in api.post("/v2/agent", {"prompt": "x", "maxCredits": 4}, 400)["error"]


def test_an_agent_stays_on_the_given_urls_when_required(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    about, contact = (weblake_site.url + path for path in ("/about", "/contact"))
    weblake_llm.say(act(action="scrape", url=contact))
    weblake_llm.say(act(action="finish", data={}))
    api.run("agent", prompt="x", urls=[about], strictConstrainToURLs=True)
    assert "Only the given URLs" in weblake_llm.requests[-1].messages[-1]["content"]
    assert weblake_site.requests("/contact") == []


@pytest.mark.weblake_service(allow_private=False)
def test_an_agent_cannot_reach_private_addresses(weblake_llm: Any, make_bench: Any) -> None:
    weblake_llm.say(act(action="scrape", url="http://169.254.169.254/latest"))
    weblake_llm.say(act(action="finish", data={}))
    bench = make_bench(allow_private=False, **weblake_llm.config())
    job = bench.http.post("/v2/agent", json={"prompt": "x"}).json()["id"]
    until(lambda: bench.http.get(f"/v2/agent/{job}").json()["status"] == "completed")
    assert "Not done" in weblake_llm.requests[-1].messages[-1]["content"]
    assert bench.web.asked == []


def test_an_agent_is_cancelled(api: Api, weblake_llm: Any, weblake_webhooks: Any) -> None:
    weblake_llm.stall()
    hook = {"url": weblake_webhooks.url, "events": ["started", "cancelled"]}
    job = api.post("/v2/agent", {"prompt": "x", "webhook": hook})["id"]
    until(lambda: weblake_llm.requests)
    assert api.get(f"/v2/agent/{job}")["data"] == []
    for _ in range(2):
        assert api.http.delete(f"/v2/agent/{job}").json() == {"success": True}
    found = api.get(f"/v2/agent/{job}")
    assert (found["success"], found["status"]) == (False, "cancelled")
    assert weblake_webhooks.wait("agent.cancelled", job=job).verified


def test_webhooks_report_the_steps_and_the_end_of_an_agent(
    api: Api, weblake_llm: Any, weblake_site: Any, weblake_webhooks: Any
) -> None:
    weblake_llm.say(act(action="scrape", url=weblake_site.url + "/about"))
    weblake_llm.say(act(action="finish", data={}))
    hook = {"url": weblake_webhooks.url, "events": ["started", "action", "completed"]}
    job = api.post("/v2/agent", {"prompt": "x", "webhook": hook})["id"]
    for event in ("agent.started", "agent.action", "agent.completed"):
        weblake_webhooks.wait(event, job=job)
    assert api.http.delete(f"/v2/agent/{job}").status_code == 409


def test_jobs_expire_and_belong_to_their_team(api: Api, weblake_llm: Any, weblake_service: Any) -> None:
    weblake_llm.say(act(action="finish", data={}))
    job = api.post("/v2/agent", {"prompt": "x"})["id"]
    api.wait_until_ended("agent", job)
    for path in (f"/v2/agent/{NO_JOB}", f"/v2/extract/{NO_JOB}", "/v2/agent/x", "/v2/extract/x"):
        api.get(path, 404)
    weblake_service.advance(24 * 3600 + 1)
    api.get(f"/v2/agent/{job}", 404)


@pytest.mark.weblake_service(plan_credits=5)
def test_a_job_without_enough_credits_is_not_started_or_stops(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    urls = weblake_site.urls("/news/")
    assert api.post("/v2/extract", {"urls": urls, "prompt": "x"}, 402)["code"] == "INSUFFICIENT_CREDITS"
    weblake_llm.say(act(action="scrape", url=urls[0]), times=None)
    found = api.run("agent", prompt="x")
    assert found["status"] == "failed"
    assert "credits" in found["error"]
    assert found["creditsUsed"] == 5


@pytest.mark.system
def test_a_killed_agent_resumes_after_its_last_step_and_pays_once(
    weblake_service_process: Any, weblake_llm: Any, weblake_site: Any
) -> None:
    service = weblake_service_process
    about, contact = (weblake_site.url + path for path in ("/about", "/contact"))
    weblake_llm.say(act(action="scrape", url=about))
    weblake_llm.stall()
    before = Api(service)
    job = before.post("/v2/agent", {"prompt": "x"})["id"]
    until(lambda: len(weblake_llm.requests) == 2)
    service.kill()
    weblake_llm.say(act(action="scrape", url=contact))
    weblake_llm.say(act(action="finish", data={"ok": True}))
    service.restart()
    after = Api(service)
    found = after.wait_until_ended("agent", job)
    assert (found["data"], found["creditsUsed"]) == ({"ok": True}, 6)
    assert after.credits() == 6
    assert len(weblake_site.requests("/about")) == 1
    for one in (before, after):
        one.http.close()


@pytest.mark.system
def test_a_killed_extract_reads_no_page_twice(
    weblake_service_process: Any, weblake_llm: Any, weblake_site: Any
) -> None:
    service = weblake_service_process
    urls = [weblake_site.url + path for path in ("/about", "/contact")]
    weblake_llm.stall()
    before = Api(service)
    job = before.post("/v2/extract", {"urls": urls, "prompt": "x"})["id"]
    until(lambda: weblake_llm.requests)
    service.kill()
    service.restart()
    after = Api(service)
    found = after.wait_until_ended("extract", job)
    assert (found["status"], found["creditsUsed"], after.credits()) == ("completed", 6, 6)
    assert [len(weblake_site.requests(path)) for path in ("/about", "/contact")] == [1, 1]
    for one in (before, after):
        one.http.close()


def test_previewed_parameters_can_be_sent_to_the_crawl(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say({"includePaths": ["^/news/("], "limit": 3})  # not a pattern: the model is asked again
    weblake_llm.say({"includePaths": ["^/news/"], "limit": 3, "sitemap": "include", "delay": 0.01})
    shown = api.post("/v2/crawl/params-preview", {"url": weblake_site.url, "prompt": "Three news."})
    assert shown["data"] == {
        "url": weblake_site.url, "includePaths": ["^/news/"], "limit": 3, "sitemap": "include", "delay": 0.01,
    }  # fmt: skip
    assert "includePaths" in weblake_llm.requests[1].messages[-1]["content"]
    assert api.credits() == 0
    api.post("/v2/crawl", shown["data"])
    weblake_llm.say({"limit": "three"}, times=None)
    said = api.post("/v2/crawl/params-preview", {"url": weblake_site.url, "prompt": "x"}, 500)
    assert said["code"] == "LLM_INVALID_JSON"


def test_a_preview_has_the_fields_of_the_contract_and_no_others(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    fields = {"maxDepth": 1, "maxDiscoveryDepth": 2, "allowSubdomains": False, "robotsUserAgent": "me"}
    weblake_llm.say({**fields, "url": "http://other.test", "mood": "good", "sitemap": None})
    shown = api.post("/v2/crawl/params-preview", {"url": weblake_site.url, "prompt": "x"})
    assert shown["data"] == {"url": weblake_site.url, **fields}
    assert len(weblake_llm.requests) == 1


def test_a_crawl_from_a_prompt_has_the_depth_of_the_model(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say({"maxDepth": 0, "mood": "good", "sitemap": "skip"})
    job = api.post("/v2/crawl", {"url": weblake_site.url, "prompt": "This page only."})["id"]
    status = until(lambda: (found := api.get(f"/v2/crawl/{job}"))["status"] == "completed" and found)
    assert len(status["data"]) == 1


def test_explicit_crawl_options_override_those_of_a_prompt(api: Api, weblake_llm: Any, weblake_site: Any) -> None:
    weblake_llm.say({"includePaths": ["^/news/"], "limit": 100, "crawlEntireDomain": True})
    job = api.post("/v2/crawl", {"url": weblake_site.url + "/news/", "prompt": "The news.", "limit": 2})["id"]
    status = until(lambda: (found := api.get(f"/v2/crawl/{job}"))["status"] == "completed" and found)
    urls = [page["metadata"]["sourceURL"] for page in status["data"]]
    assert len(urls) == 2
    assert all("/news/" in url for url in urls)

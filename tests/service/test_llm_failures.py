"""Failures of a language model's endpoint, the secrecy of its key, and a service without a language model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from catalogue import proves
from https_site import secure
from polling import until
from secret_search import contains_secret, in_files

from weblake.errors import InvalidOption
from weblake.testing.loopback import LoopbackResponse, LoopbackServer
from weblake_service.config import ServiceConfig
from weblake_service.llm import openai_endpoint
from weblake_service.llm.settings import with_environment
from weblake_service.server import LocalService

A = "http://site.test/a"
SUMMARY = {"url": A, "formats": ["summary"]}
CANARY = "sk-canary-Zq7/9+x=0123456789abcdef"


@pytest.fixture
def bench(make_bench: Any, weblake_llm: Any) -> Any:
    return make_bench(**weblake_llm.config())


def failed(bench: Any, body: Any = SUMMARY) -> tuple[int, str, str]:
    reply = bench.http.post("/v2/scrape", json=body)
    said = reply.json()
    return reply.status_code, said["code"], said["error"]


@pytest.mark.system
def test_an_endpoint_with_an_untrusted_certificate_gets_no_request(make_bench: Any, tmp_path: Path) -> None:
    with secure(tmp_path) as site:
        url = site.url("/v1", "localhost").replace("http:", "https:")
        bench = make_bench(llm_base_url=url, llm_model="any", llm_api_key=CANARY)
        assert failed(bench, SUMMARY | {"timeout": 100_000})[:2] == (502, "LLM_UNAVAILABLE")
        assert site.requests == []


TROUBLE: dict[str, tuple[Any, int, str, str]] = {
    "its key is wrong": (lambda llm: llm.fail(401), 503, "FEATURE_NOT_CONFIGURED", "WEBLAKE_LLM_API_KEY"),
    "no such model": (lambda llm: llm.fail(404), 503, "FEATURE_NOT_CONFIGURED", "WEBLAKE_LLM_MODEL"),
    "it moved": (lambda llm: llm.fail(307), 503, "FEATURE_NOT_CONFIGURED", "WEBLAKE_LLM_BASE_URL"),
    "too long a text": (lambda llm: llm.fail(400, times=None), 502, "LLM_REFUSED", "WEBLAKE_LLM_PAGE_CHARS"),
    "too many requests": (lambda llm: llm.fail(429, retry_after=3600), 502, "LLM_RATE_LIMITED", "WEBLAKE_LLM_API_KEY"),
    "no JSON": (lambda llm: llm.fail(200, body="<p>hello</p>"), 502, "LLM_BAD_REPLY", "WEBLAKE_LLM_BASE_URL"),
    "no end": (lambda llm: llm.fail(200, body="x" * 5_000_000), 502, "LLM_BAD_REPLY", "WEBLAKE_LLM_BASE_URL"),
    "nothing": (lambda llm: llm.say(""), 502, "LLM_BAD_REPLY", "nothing"),
    "half an answer": (lambda llm: llm.say("Half", cut=True), 502, "LLM_BAD_REPLY", "output limit"),
    "silence": (lambda llm: llm.stall(), 408, "SCRAPE_TIMEOUT", "`timeout`"),
}


@pytest.mark.system
@pytest.mark.parametrize("case", TROUBLE)
def test_an_error_names_the_setting_to_check(bench: Any, weblake_llm: Any, case: str) -> None:
    script, status, code, names = TROUBLE[case]
    script(weblake_llm)
    found = failed(bench, SUMMARY | {"timeout": 1500 if case == "silence" else 100_000})
    assert found[:2] == (status, code)
    assert names in found[2]
    assert weblake_llm.key not in found[2]
    # A missing page is not billed.
    periods = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    assert sum(one["totalCredits"] for one in periods) == 0


@pytest.mark.system
@pytest.mark.parametrize("case", ["half an answer", "silence"])
def test_a_format_that_the_model_failed_at_discards_no_other(bench: Any, weblake_llm: Any, case: str) -> None:
    weblake_llm.say("A site.", where="Summarise", times=None)
    TROUBLE[case][0](weblake_llm)
    question = {"type": "question", "question": "How much?"}
    options = {"formats": ["markdown", question], "timeout": 1500 if case == "silence" else 100_000}
    data = bench.http.post("/v2/scrape", json={"url": A, **options}).json()["data"]
    assert (data["markdown"], "answer" in data) == (f"# {A}", False)
    assert data["warning"].startswith("`question` was left out: ")
    data = bench.http.post("/v2/scrape", json={"url": A, "formats": ["summary", question]}).json()["data"]
    assert data["summary"] == "A site."


@pytest.mark.parametrize("trouble", ["fail", "drop"])
def test_temporary_failures_are_retried(
    bench: Any, weblake_llm: Any, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_endpoint, "_WAIT_S", 0.01)
    if trouble == "fail":
        weblake_llm.fail(503, retry_after=0)
        weblake_llm.fail(429, retry_after=0)
    else:
        weblake_llm.drop()
    weblake_llm.say("Well.")
    assert bench.http.post("/v2/scrape", json=SUMMARY).json()["data"]["summary"] == "Well."


def test_an_unreachable_endpoint_is_reported(make_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_endpoint, "_WAIT_S", 0.01)
    bench = make_bench(llm_base_url="http://127.0.0.1:9/v1", llm_model="m")
    status, code, error = failed(bench)
    assert (status, code) == (502, "LLM_UNAVAILABLE")
    assert "WEBLAKE_LLM_BASE_URL" in error


def test_an_endpoint_without_json_schema_gets_a_simpler_request(bench: Any, weblake_llm: Any) -> None:
    weblake_llm.fail(400, times=2)
    weblake_llm.say({"a": 1}, times=None)
    body = {"url": A, "formats": [{"type": "json", "prompt": "x"}]}
    for _ in range(2):
        assert bench.http.post("/v2/scrape", json=body).json()["data"]["json"] == {"a": 1}
    forms = [(one.body.get("response_format") or {}).get("type") for one in weblake_llm.requests]
    assert forms == ["json_schema", "json_object", None, None]


def test_the_number_of_concurrent_calls_is_limited(make_bench: Any) -> None:
    flying, most, changing, both = [0], [0], threading.Lock(), threading.Barrier(2)

    def answer(asked: Any) -> LoopbackResponse:
        with changing:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        both.wait(120)  # twelve calls, two at a time
        time.sleep(0.02)  # a third one would arrive meanwhile
        with changing:
            flying[0] -= 1
        return LoopbackResponse(200, json.dumps({"choices": [{"message": {"content": "x"}}]}).encode())

    with LoopbackServer(answer) as server:
        bench = make_bench(llm_base_url=f"{server.url}/v1", llm_model="m", llm_concurrency=2)
        job = bench.batch(*(f"http://site.test/{n}" for n in range(12)), formats=["summary"])
        assert bench.wait_until_ended(job)["completed"] == 12
    assert most[0] == 2


# --- its key ---


@pytest.mark.system
@proves(
    "S1",
    at="src/weblake_service/llm/openai_endpoint.py",
    line='said = f"The language model\'s endpoint answered with {status}"',
    becomes='said = reply.request.headers["authorization"]',
)
def test_s1_no_response_log_or_file_contains_the_key_of_a_language_model(weblake_llm: Any, tmp_path: Path) -> None:
    """The endpoint refuses the key and repeats it in its error, which is not passed on."""
    code = (
        "import logging, sys\n"
        "logging.basicConfig(stream=sys.stderr, level=1)\n"
        "logging.root.setLevel(1)\n"
        "sys.argv = ['weblake', 'serve', '--port', '0', '--data', sys.argv[1], '--allow-private', '--testing']\n"
        "from weblake_service import serve\n"
        "serve._log_to_stderr = lambda: None\n"
        "from weblake.cli import main\n"
        "main()\n"
    )
    data, log = tmp_path / "data", tmp_path / "log"
    llm = {**weblake_llm.environment(), "WEBLAKE_LLM_API_KEY": CANARY}
    environment = {**os.environ, **llm, "WEBLAKE_API_KEY": "test-key"}
    with (
        log.open("w") as errors,
        LoopbackServer(lambda _: LoopbackResponse(200, b"<p>A page.</p>", {"Content-Type": "text/html"})) as site,
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(data)], stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
        )
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            http = httpx.Client(
                base_url=url, headers={"Authorization": "Bearer test-key"}, timeout=120, trust_env=False, verify=False
            )
            replies = [
                http.post("/v2/scrape", json={"url": site.url, "formats": ["summary"]}),
                http.post("/v2/scrape", json={"url": site.url, "onlyCleanContent": True}),
                http.post("/v2/crawl/params-preview", json={"url": site.url, "prompt": "x"}),
                http.post("/v2/crawl", json={"url": site.url, "prompt": "x"}),
            ]
            jobs = [
                f"/v2/{kind}/" + http.post(f"/v2/{kind}", json={"prompt": "x", "urls": [site.url]}).json()["id"]
                for kind in ("extract", "agent")
            ]
            replies += [until(lambda job=job: (r := http.get(job)).json()["status"] == "failed" and r) for job in jobs]
            replies += [http.get("/_weblake/requests"), http.get("/v2/team/activity")]
            assert [one.status_code for one in replies[:4]] == [503, 200, 503, 503]
            assert any(CANARY in one.headers["authorization"] for one in weblake_llm.requests), "the key was sent"
            assert not any(contains_secret(one.content + repr(one.headers).encode(), CANARY) for one in replies)
            assert not contains_secret(Path(f"/proc/{process.pid}/cmdline").read_bytes(), CANARY)
            http.close()
        finally:
            process.terminate()
            process.wait(120)
            process.stdout.close()  # type: ignore[union-attr]
    assert "httpcore" in log.read_text(), "the logs are at their lowest level"
    assert in_files([tmp_path], CANARY) == []


@proves(
    "S1",
    at="src/weblake_service/config.py",
    line="llm_api_key: str | None = field(default=None, repr=False)",
    becomes="llm_api_key: str | None = None",
)
def test_s1_the_repr_of_a_configuration_does_not_show_the_key_of_a_language_model() -> None:
    config = ServiceConfig(llm_base_url="http://127.0.0.1:9/v1", llm_api_key=CANARY, llm_model="m")
    assert not contains_secret(repr(config).encode(), CANARY)


WRONG = {
    "no URL": ({"llm_base_url": "127.0.0.1:9"}, "WEBLAKE_LLM_BASE_URL"),
    "a password": ({"llm_base_url": f"http://me:{CANARY}@127.0.0.1:9/v1"}, "WEBLAKE_LLM_BASE_URL"),
    "a key that cannot be sent": (
        {"llm_base_url": "http://127.0.0.1:9", "llm_api_key": CANARY + "\nx"},
        "WEBLAKE_LLM_API_KEY",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_settings_are_refused_at_the_start(case: str) -> None:
    fields, names = WRONG[case]
    with pytest.raises(InvalidOption) as caught:
        LocalService(config=ServiceConfig(llm_model="m", **fields)).start()
    said = f"{caught.value} {caught.value.hint}"
    assert names in said
    assert not contains_secret(said.encode(), CANARY)


# --- no language model ---


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBLAKE_LLM_BASE_URL", " http://127.0.0.1:9/v1 ")
    monkeypatch.setenv("WEBLAKE_LLM_MODEL", "m")
    monkeypatch.setenv("WEBLAKE_LLM_PAGE_CHARS", "123")
    found = with_environment(ServiceConfig())
    assert (found.llm_base_url, found.llm_model, found.llm_api_key) == ("http://127.0.0.1:9/v1", "m", None)
    assert (found.llm_page_chars, found.llm_concurrency) == (123, 4)
    own = ServiceConfig(llm_base_url="http://127.0.0.1:8/v1")
    assert with_environment(own) is own
    monkeypatch.setenv("WEBLAKE_LLM_CONCURRENCY", "many")
    with pytest.raises(InvalidOption, match="WEBLAKE_LLM_CONCURRENCY"):
        with_environment(ServiceConfig())


UNSET = [
    ("POST", "/v2/scrape", SUMMARY),
    ("POST", "/v2/scrape", {"url": A, "formats": [{"type": "json", "prompt": "x"}]}),
    ("POST", "/v2/batch/scrape", {"urls": [A], "formats": ["markdown", {"type": "changeTracking", "modes": ["json"]}]}),
    ("POST", "/v2/crawl", {"url": A, "prompt": "x"}),
    ("POST", "/v2/crawl/params-preview", {"url": A, "prompt": "x"}),
    ("POST", "/v2/extract", {"urls": [A], "prompt": "x"}),
    ("GET", "/v2/extract/00000000-0000-4000-8000-000000000000", None),
    ("POST", "/v2/agent", {"prompt": "x"}),
    ("DELETE", "/v2/agent/00000000-0000-4000-8000-000000000000", None),
]


@pytest.mark.parametrize("fields", [{}, {"llm_base_url": "http://127.0.0.1:9/v1"}])
def test_without_a_model_the_missing_setting_is_named(make_bench: Any, fields: dict[str, str]) -> None:
    bench = make_bench(**fields)
    for method, path, body in UNSET:
        reply = bench.http.request(method, path, json=body)
        assert (reply.status_code, reply.json()["code"]) == (503, "FEATURE_NOT_CONFIGURED"), path
        assert ("WEBLAKE_LLM_MODEL" if fields else "WEBLAKE_LLM_BASE_URL") in reply.json()["error"]
        assert "weblake[llm]" in reply.json()["error"]
    assert bench.web.asked == []


def test_a_missing_extra_is_named(make_bench: Any, weblake_llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weblake_service.llm.settings._has_validator", lambda: False)
    status, code, error = failed(make_bench(**weblake_llm.config()))
    assert (status, code) == (503, "FEATURE_NOT_CONFIGURED")
    assert "pip install 'weblake[llm]'" in error


def test_a_job_whose_model_was_removed_fails_with_an_error(make_bench: Any, weblake_llm: Any, tmp_path: Path) -> None:
    weblake_llm.stall()
    first = make_bench(tmp_path / "service.db", **weblake_llm.config())
    job = first.http.post("/v2/agent", json={"prompt": "x"}).json()["id"]
    until(lambda: weblake_llm.requests)
    first.service.stop()
    bench = make_bench(tmp_path / "service.db")
    found = until(lambda: (r := bench.http.get(f"/v2/agent/{job}").json())["status"] == "failed" and r)
    assert "WEBLAKE_LLM_BASE_URL" in found["error"]


def test_an_answer_of_blanks_in_an_open_fence_is_no_json(bench: Any, weblake_llm: Any) -> None:
    """A pattern for the whole fence took the cube of the number of blanks: more than a minute here."""
    for _ in range(2):
        weblake_llm.say("```\n" + "\n" * 3000 + "x")
    begun = time.monotonic()
    status, code, _ = failed(bench, {"url": A, "formats": [{"type": "json", "prompt": "All."}]})
    assert (status, code) == (502, "LLM_INVALID_JSON")
    assert time.monotonic() - begun < 30

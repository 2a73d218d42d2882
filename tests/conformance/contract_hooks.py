"""Checks of ours for requests that are made from the contract.

Every page that is asked for is one of a site of the test (CONTRACT_SITE), so that none has a reason of its own to fail:
a 5xx is then the service's fault, but for a 503 that names one of what it lacks. Where CONTRACT_LLM is set there is a
language model, a scripted one, whose answers do not satisfy every schema: its own failures are none of the service's.
"""

from __future__ import annotations

import os
import re

import schemathesis

from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url

#: Formats, options and endpoints that need an extra which is not installed here, as their refusal names them.
LACKING = frozenset(
    {
        "The format `screenshot`",
        "The format `branding`",
        "The format `summary`",
        "The format `json`",
        "The format `question`",
        "The format `highlights`",
        "The option `actions`",
        "The option `waitFor`",
        "The option `mobile`",
        "The option `profile`",
        "The option `redactPII`",
        "The option `threatProtection`",
        "The option `proxy: enhanced`",
        "The option `prompt`",
        "The option `prompt` of changeTracking",
        "The option `schema` of changeTracking",
        "The mode `json` of changeTracking",
        "The parser `image` with text recognition",
        "The parser `pdf` with text recognition",
        "The option `blocks` of the pdf parser",
        # Of a search; the contract leaves the word open.
        "The category",
        "Interact with code",
        "Interact with a prompt",
        "Running code in a browser session",
        "A browser session",
        "Crawl parameter preview",
        "Extract",
        "The agent",
        "The option `allowExternalLinks` of extract",
    }
)
_NEEDS = re.compile(r"(.+?) needs .+, which this service does not have\.", re.DOTALL)


@schemathesis.hook
def before_call(context: object, case: schemathesis.Case, kwargs: dict[str, object]) -> None:
    """Puts a page that is there in the place of each that could be asked for; what is no address stays as it is."""
    body, site = case.body, os.environ["CONTRACT_SITE"]
    if isinstance(body, dict):
        if _is_address(body.get("url")):
            case.body = {**body, "url": f"{site}/page/1"}
        elif isinstance(body.get("urls"), list):
            case.body = {**body, "urls": [f"{site}/page/2" if _is_address(one) else one for one in body["urls"]]}


def _is_address(given: object) -> bool:
    try:
        return isinstance(given, str) and bool(clean_url(given, allow_private=True))
    except PageFailure:
        return False


@schemathesis.check
def a_failure_is_of_what_is_lacking(ctx: object, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """No 5xx, but a 503 with the name of something on the list."""
    if response.status_code < 500:
        return
    if os.environ.get("CONTRACT_LLM") and str(response.json().get("code")).startswith("LLM_"):
        return
    assert response.status_code == 503, f"{response.status_code}: {response.text[:300]}"
    body = response.json()
    told = _NEEDS.fullmatch(body["error"])
    assert body["code"] == "FEATURE_NOT_CONFIGURED", response.text[:300]
    assert told is not None, f"{body['error']!r} does not name what is lacking"
    name = "The category" if told[1].startswith("The category `") else told[1]
    assert name in LACKING, f"{name!r} is not on the list"


@schemathesis.check
def a_refusal_says_why(ctx: object, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """A 400 names what is wrong, for people and for programs."""
    if response.status_code != 400:
        return
    body = response.json()
    assert body["error"], response.text[:300]
    assert body["code"], response.text[:300]
    assert body.get("details") or body["code"] == "BAD_REQUEST_INVALID_JSON", response.text[:300]

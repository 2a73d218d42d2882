"""Schemathesis hooks and checks for requests generated from the contract.

Every URL is replaced by a page of the test's site (CONTRACT_SITE), so that no scrape fails because of its target: a 5xx
is then a failure of the service, except a 503 that names a missing feature. If CONTRACT_LLM is set there is a scripted
language model, whose answers do not satisfy every schema: failures of the model are allowed.
"""

from __future__ import annotations

import os
import re

import schemathesis

from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url

#: Formats, options and endpoints that need an extra which is not installed here, as their refusal names them.
MISSING_FEATURES = frozenset(
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
        # Of a search; the contract does not enumerate the categories.
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
    """Replace each valid URL by one of an existing page; an invalid one stays as it is."""
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
def a_server_error_names_a_missing_feature(
    ctx: object, response: schemathesis.Response, case: schemathesis.Case
) -> None:
    """Check that there is no 5xx, except a 503 with the name of a feature in MISSING_FEATURES."""
    if response.status_code < 500:
        return
    if os.environ.get("CONTRACT_LLM") and str(response.json().get("code")).startswith("LLM_"):
        return
    assert response.status_code == 503, f"{response.status_code}: {response.text[:300]}"
    body = response.json()
    told = _NEEDS.fullmatch(body["error"])
    assert body["code"] == "FEATURE_NOT_CONFIGURED", response.text[:300]
    assert told is not None, f"{body['error']!r} does not name the missing feature"
    name = "The category" if told[1].startswith("The category `") else told[1]
    assert name in MISSING_FEATURES, f"{name!r} is not on the list"


@schemathesis.check
def a_bad_request_names_the_reason(ctx: object, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """Check that a 400 names the reason, as text and as a code."""
    if response.status_code != 400:
        return
    body = response.json()
    assert body["error"], response.text[:300]
    assert body["code"], response.text[:300]
    assert body.get("details") or body["code"] == "BAD_REQUEST_INVALID_JSON", response.text[:300]

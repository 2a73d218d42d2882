"""Checks of ours for requests that are made from the contract."""

from __future__ import annotations

import schemathesis


@schemathesis.check
def a_failure_has_its_code(ctx: object, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """A page that cannot be had is a 500 with its code, what is not set up a 503 with its name, and nothing else is."""
    if response.status_code < 500:
        return
    code = response.json().get("code", "")
    told = code == "FEATURE_NOT_CONFIGURED" if response.status_code == 503 else code.startswith("SCRAPE_")
    assert told, f"{response.status_code} with the code {code!r}: {response.text[:300]}"


@schemathesis.check
def a_refusal_says_why(ctx: object, response: schemathesis.Response, case: schemathesis.Case) -> None:
    """A 400 names what is wrong, for people and for programs."""
    if response.status_code != 400:
        return
    body = response.json()
    assert body["error"], response.text[:300]
    assert body["code"], response.text[:300]
    assert body.get("details") or body["code"] == "BAD_REQUEST_INVALID_JSON", response.text[:300]

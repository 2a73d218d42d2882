"""Requests made from the contract, valid and broken ones: every reply is one that the contract knows."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import status_code_conformance

from weblake import contract

pytestmark = pytest.mark.system

#: What a page may do to a request that was right, and what this service says it lacks.
_TOLD = {"FEATURE_NOT_CONFIGURED"}


@pytest.fixture(scope="module")
def api(served: Any) -> Any:
    schema = schemathesis.openapi.from_dict(contract.load())
    schema.config.update(base_url=served.url)
    return schema


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_reply_is_one_that_the_contract_knows(case: Any, served: Any) -> None:
    response = case.call(headers={"Authorization": f"Bearer {served.key}"}, timeout=60)
    left_out = []
    if response.status_code >= 500:
        # A page that cannot be had is a 500 with its code, and what is not set up a 503 with its name.
        code = response.json().get("code", "")
        assert code.startswith(("SCRAPE_", "FEATURE_")), response.text
        left_out = [not_a_server_error, *([status_code_conformance] if response.status_code == 503 else [])]
    case.validate_response(response, excluded_checks=left_out)

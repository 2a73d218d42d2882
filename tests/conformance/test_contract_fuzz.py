"""Requests generated from the contract, valid and invalid: every response conforms to the contract.

For each operation the examples, the coverage of its schema and a few random requests under `system`, many under
`nightly`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import contract_validation
import pytest
import yaml
from gated_site import GatedSite

pytestmark = pytest.mark.system

_SETTINGS = """
[checks.not_a_server_error]
# Which 503, and that nothing else is, is looked at by contract_hooks.py.
expected-statuses = ["2xx", "3xx", "4xx", 503]
# What the contract demands in words (a cursor of an earlier reply, a selector that can be read, markdown beside
# changeTracking) no schema knows. That each documented value is taken is shown in tests/api/test_contract.py.
[checks.positive_data_acceptance]
enabled = false
# The other usual spellings of a boolean (1, yes, TRUE) are accepted.
[[operations]]
include-path-regex = "historical"
checks.negative_data_rejection.enabled = false
"""

#: Random clicks on a page without anything to click on are correctly answered with 500.
WITHOUT_A_BROWSER = True
#: Random requests for each operation.
requests = pytest.mark.parametrize(
    "requests", [4, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)


@requests
def test_every_response_conforms_to_the_contract(served: Any, site: GatedSite, tmp_path: Path, requests: int) -> None:
    fuzz(served, site, tmp_path, "--max-examples", str(requests))


@requests
def test_every_response_with_a_language_model_conforms_to_the_contract(
    served_with_llm: Any, site: GatedSite, tmp_path: Path, requests: int
) -> None:
    of_model = "extract|agent|preview|/v2/scrape$|/v2/crawl$|/v2/batch/scrape$"
    more = ("--max-examples", str(requests), "--include-path-regex", of_model)
    # The same schemas are covered without a model.
    phases = "examples,fuzzing" if requests < 100 else "examples,coverage,fuzzing"
    fuzz(served_with_llm, site, tmp_path, *more, phases=phases, environment={"CONTRACT_LLM": "1"})


def fuzz(
    served: Any,
    site: GatedSite,
    tmp_path: Path,
    *more: str,
    phases: str = "examples,coverage,fuzzing",
    environment: dict[str, str] | None = None,
) -> None:
    document = contract_validation.load()
    refused = {"$ref": document["paths"]["/v2/scrape"]["post"]["responses"]["429"]["$ref"]}
    # An invalid query is refused; the contract declares no such response for these lists.
    sessions = document["paths"]["/v2/browser"]
    for path in ("/v2/browser", "/v2/team/credit-usage/historical", "/v2/team/token-usage/historical"):
        document["paths"][path]["get"]["responses"].setdefault("400", sessions["post"]["responses"]["400"])
    for methods in document["paths"].values():
        for operation in methods.values():
            # A missing feature is refused with 503, which the contract declares for some endpoints only.
            operation["responses"].setdefault("503", refused)
            for status in ("500", "502") if environment else ():
                operation["responses"].setdefault(status, refused)
    (tmp_path / "api.yaml").write_text(yaml.safe_dump(document))
    settings = _SETTINGS.replace("503]", "500, 502, 503]") if environment else _SETTINGS
    (tmp_path / "schemathesis.toml").write_text(settings)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(tmp_path / "schemathesis.toml"),
        "run", str(tmp_path / "api.yaml"), "--url", served.url, "--header", f"Authorization: Bearer {served.key}",
        "--phases", phases, "--seed", "1", "--no-color",
        "--request-timeout", "60", "--generation-database", "none", *more,
    ]  # fmt: skip
    variables = {**os.environ, "SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("contract_hooks.py"))}
    variables |= {"CONTRACT_SITE": site.url, **(environment or {})}
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stdout + done.stderr

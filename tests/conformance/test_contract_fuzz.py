"""Requests made from the contract, valid and broken ones: every reply is one that the contract knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from gated_site import GatedSite

from weblake import contract

pytestmark = pytest.mark.system

_SETTINGS = """
[checks.not_a_server_error]
# Which 503, and that nothing else is, is looked at by contract_hooks.py.
expected-statuses = ["2xx", "3xx", "4xx", 503]
# What the contract demands in words (a cursor of an earlier reply, a selector that can be read, markdown beside
# changeTracking) no schema knows. That each documented value is taken is shown in tests/core/test_contract.py.
[checks.positive_data_acceptance]
enabled = false
# Other spellings of true are ignored, says the contract.
[[operations]]
include-path-regex = "historical"
checks.negative_data_rejection.enabled = false
"""

#: Random clicks on a page that has nothing to click on are rightly answered with 500.
WITHOUT_A_BROWSER = True


def test_every_reply_is_one_that_the_contract_knows(served: Any, site: GatedSite, tmp_path: Path) -> None:
    document = contract.load()
    refused = {"$ref": document["paths"]["/v2/scrape"]["post"]["responses"]["429"]["$ref"]}
    for methods in document["paths"].values():
        for operation in methods.values():
            # What this service lacks it refuses with 503, which the contract knows for some endpoints only.
            operation["responses"].setdefault("503", refused)
    (tmp_path / "api.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "schemathesis.toml").write_text(_SETTINGS)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(tmp_path / "schemathesis.toml"),
        "run", str(tmp_path / "api.yaml"), "--url", served.url, "--header", f"Authorization: Bearer {served.key}",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "40", "--seed", "1", "--no-color",
        "--request-timeout", "60", "--generation-database", "none",
    ]  # fmt: skip
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("contract_hooks.py"))}
    environment["CONTRACT_SITE"] = site.url
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr

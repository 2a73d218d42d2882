"""A service with only `weblake[local]` installed needs nothing of the browser extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules |= dict.fromkeys(["playwright"])  # what the extra `browser` brings is not to be had
import httpx
from weblake_service.server import LocalService
with LocalService() as service:
    ask = httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {service.key}"}, trust_env=False)
    print(ask.get("/health").status_code, ask.get("/v2/browser").json()["sessions"])
"""


@pytest.mark.system
def test_the_service_starts_without_playwright() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "200 []\n"), done.stderr

"""Tests that the asset in docs/testing.md lands as the text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from weblake.testing import WeblakeService, WeblakeSite

TEXT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


@pytest.mark.system
def test_the_documented_asset_lands(weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n# test_assets\.py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/testing.md", "exec"), names)
    names["test_the_docs_land"](weblake_service, weblake_site, tmp_path)
    assert weblake_service.counts()["crawl_started"] == 1

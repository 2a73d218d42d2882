"""The settings in docs/dagster_deployments.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

TEXT = (Path(__file__).parents[2] / "docs" / "dagster_deployments.md").read_text()


def blocks() -> dict[str, list[dict[str, Any]]]:
    """Return the YAML blocks of the page by heading."""
    found = {}
    for heading, text in re.findall(r"^## (.*)\n((?:(?!^## )[\s\S])*)", TEXT, re.MULTILINE):
        if codes := re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found[heading] = [yaml.safe_load(code) for code in codes]
    return found


def executor(heading: str) -> dict[str, Any]:
    """Return an executor's configuration."""
    (block,) = blocks()[heading]
    config: dict[str, Any] = block["execution"]["config"]
    return config

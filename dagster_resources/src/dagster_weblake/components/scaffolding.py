"""Scaffolding for `dg scaffold defs`: components that pass `dg check yaml` and land once their variables are set.

A project has one WeblakeResource, which the first component that is scaffolded brings with it, beside its folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

#: The resource that lands data, and an IO manager that reads them.
_LAKE = Path(__file__).parents[1] / "example_project" / "web_lake" / "defs" / "lake.py"


class LandingParams(BaseModel):
    """Parameters of every component."""

    asset: str | None = Field(None, description="The asset's key; default: the name of the folder.")
    to: str | None = Field(None, description="The dataset's root, if it is not that of the environment.")

    def attributes(self) -> dict[str, object]:
        """Return the attributes that are specific to the component; here the parameters that are given."""
        return self.model_dump(exclude={"asset", "to"}, exclude_none=True)


class CrawlParams(LandingParams):
    """Parameters of a crawl."""

    url: str = Field("https://docs.example.com/", description="The start URL.")
    limit: int = Field(100, description="The maximum number of pages.", ge=1)
    wait: str | None = Field(None, description="step or sensor.", pattern="^(step|sensor)$")
    max_credits: int | None = Field(None, description="The maximum cost of the job.", ge=0)

    def attributes(self) -> dict[str, object]:
        """Return the start URL and the limits."""
        found = super().attributes()
        options = {"limit": found.pop("limit"), "scrape_options": {"formats": ["markdown"]}}
        return {"url": found.pop("url"), "options": options, **found}


class BatchScrapeParams(LandingParams):
    """Parameters of a batch."""

    urls: list[str] | None = Field(None, description="A URL; may be repeated.")
    urls_from: str | None = Field(None, description="The upstream asset that returns the URLs.")
    column: str | None = Field(None, description="The column of the URLs.")
    wait: str | None = Field(None, description="step or sensor.", pattern="^(step|sensor)$")
    max_credits: int | None = Field(None, description="The maximum cost of the job.", ge=0)

    def attributes(self) -> dict[str, object]:
        """Return the URLs, or their source, and the limits."""
        if self.urls_from is not None and self.urls:
            raise ValueError("Give --urls or --urls-from, and not both.")
        urls = {} if self.urls_from is not None else {"urls": self.urls or ["https://docs.example.com/"]}
        return {**super().attributes(), **urls, "options": {"formats": ["markdown"]}}


class UsageParams(LandingParams):
    """Parameters of usage."""

    report: str | None = Field(None, description="credits or tokens.", pattern="^(credits|tokens)$")
    start_date: str | None = Field(None, description="The first month, such as 2026-01-01.")
    budget: int | None = Field(None, description="Credits or tokens that a month may use.", ge=0)


def scaffolder(kind: type[LandingParams]) -> type[dg.Scaffolder[Any]]:
    """Return the scaffolder of a component: it writes a defs.yaml with the attributes of the parameters."""

    class LandingScaffolder(dg.Scaffolder[Any]):
        @classmethod
        def get_scaffold_params(cls) -> type[LandingParams]:
            return kind

        def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
            folder = request.target_path.parent if request.append else request.target_path
            attributes: dict[str, object] = {
                "asset": {"key": request.params.asset or folder.name},
                **request.params.attributes(),
                **({} if request.params.to is None else {"to": request.params.to}),
            }
            dg.scaffold_component(request, attributes)  # in Python it is Dagster's, without attributes
            if not _has_resource(folder.parent):
                shutil.copy(_LAKE, folder.parent / _LAKE.name)

    return LandingScaffolder


def _has_resource(folder: Path) -> bool:
    """Return whether a file of the Python package of a folder defines a resource of weblake that others can use."""
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    words = {".py": "WeblakeResource(", ".yaml": "resource_key: weblake"}
    return any(
        words[each.suffix] in each.read_text("utf-8", "replace") for each in folder.rglob("*") if each.suffix in words
    )

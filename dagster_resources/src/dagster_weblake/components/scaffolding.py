"""Scaffolding for `dg scaffold defs`: components that pass `dg check yaml` and land once their variables are set."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import dagster as dg
from pydantic import BaseModel, Field

#: The component's own resource; to be deleted in a project that has one.
_RESOURCE = {
    "base_url": "{{ env.WEBLAKE_BASE_URL }}",
    "api_key": "{{ env.WEBLAKE_API_KEY }}",
    "root": "{{ env.WEBLAKE_ROOT }}",
}
_VARIABLES = ("WEBLAKE_BASE_URL", "WEBLAKE_API_KEY", "WEBLAKE_ROOT")


class LandingParams(BaseModel):
    """Parameters of every component."""

    asset: str | None = Field(None, description="The asset's key; the folder's name by default.")
    to: str | None = Field(None, description="The dataset's root, where it is not the one of the environment.")


class JobParams(LandingParams):
    """Parameters of a component of a job."""

    wait: str | None = Field(None, description="step or sensor.", pattern="^(step|sensor)$")
    max_credits: float | None = Field(None, description="What the job may cost.", ge=0)


class CrawlParams(JobParams):
    """Parameters of a crawl."""

    url: str = Field("https://docs.example.com/", description="Where the crawl begins.")
    limit: int = Field(100, description="Pages at most.", ge=1)


class BatchScrapeParams(JobParams):
    """Parameters of a batch."""

    urls: list[str] | None = Field(None, description="The URLs, each as an option of its own.")
    urls_from: str | None = Field(None, description="The upstream asset that returns them.")
    column: str | None = Field(None, description="Its column.")


class UsageParams(LandingParams):
    """Parameters of usage."""

    report: str | None = Field(None, description="credits or tokens.", pattern="^(credits|tokens)$")
    start_date: str | None = Field(None, description="The first month, such as 2026-01-01.")
    budget: float | None = Field(None, description="What a month may use.", ge=0)


Params = TypeVar("Params", bound=LandingParams)


class LandingScaffolder(dg.Scaffolder[Params]):
    """Writes a defs.yaml, or a component.py, with the attributes of the parameters."""

    @abstractmethod
    def attributes(self, params: Params) -> Mapping[str, object]:
        """Return the attributes that are specific to the component."""

    def scaffold(self, request: dg.ScaffoldRequest[Params]) -> None:
        """Write the file."""
        key = request.params.asset or _folder(request).name
        to = {} if request.params.to is None else {"to": request.params.to}
        attributes = {"asset": {"key": key}, **self.attributes(request.params), **to}
        if request.scaffold_format == "python":
            _write_python(request, key, {name: each for name, each in attributes.items() if name != "asset"})
        else:
            dg.scaffold_component(request, {**attributes, "resource": dict(_RESOURCE)})
            file = request.target_path if request.append else request.target_path / "defs.yaml"
            names = "".join(f"    - {name}\n" for name in _VARIABLES)
            with file.open("a", encoding="utf-8") as text:
                text.write(f"\nrequirements:\n  env:\n{names}")


class CrawlScaffolder(LandingScaffolder[CrawlParams]):
    """Scaffolds a crawl of a site."""

    @classmethod
    def get_scaffold_params(cls) -> type[CrawlParams]:
        """Return the class of the parameters."""
        return CrawlParams

    def attributes(self, params: CrawlParams) -> Mapping[str, object]:
        """Return the start URL and the limits."""
        options = {"limit": params.limit, "scrape_options": {"formats": ["markdown"]}}
        return {"url": params.url, "options": options, **_job(params)}


class BatchScrapeScaffolder(LandingScaffolder[BatchScrapeParams]):
    """Scaffolds a batch of URLs."""

    @classmethod
    def get_scaffold_params(cls) -> type[BatchScrapeParams]:
        """Return the class of the parameters."""
        return BatchScrapeParams

    def attributes(self, params: BatchScrapeParams) -> Mapping[str, object]:
        """Return the URLs, or their source."""
        if params.urls_from is not None and params.urls:
            raise ValueError("Give --urls or --urls-from, and not both.")
        if params.urls_from is not None:
            which: dict[str, object] = {"urls_from": params.urls_from}
        else:
            which = {"urls": list(params.urls or ["https://docs.example.com/"])}
        if params.column is not None:
            which["column"] = params.column
        return {**which, "options": {"formats": ["markdown"]}, **_job(params)}


class UsageScaffolder(LandingScaffolder[UsageParams]):
    """Scaffolds the usage by month."""

    @classmethod
    def get_scaffold_params(cls) -> type[UsageParams]:
        """Return the class of the parameters."""
        return UsageParams

    def attributes(self, params: UsageParams) -> Mapping[str, object]:
        """Return the report, its first month and the budget."""
        return _whole(params.model_dump(exclude={"asset", "to"}, exclude_none=True))


def _job(params: JobParams) -> Mapping[str, object]:
    return _whole(params.model_dump(include={"wait", "max_credits"}, exclude_none=True))


def _whole(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the values with whole numbers as integers."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in values.items()
    }


def _quoted(value: object) -> str:
    """Return the Python source of a text, a number, or lists and objects of them."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(name)}: {_quoted(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_quoted, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _folder(request: dg.ScaffoldRequest[Params]) -> Path:
    return request.target_path.parent if request.append else request.target_path


def _write_python(request: dg.ScaffoldRequest[Params], key: str, attributes: Mapping[str, object]) -> None:
    module, _, name = request.type_name.rpartition(".")
    named = {
        attribute: f"dg.AssetKey.from_user_string({_quoted(value)})" if attribute == "urls_from" else _quoted(value)
        for attribute, value in attributes.items()
    }
    lines = "".join(f"        {attribute}={value},\n" for attribute, value in named.items())
    ours = Path(__file__).parent.parent.name
    names = f"{name}, WeblakeResource" if module == ours else f"WeblakeResource\nfrom {module} import {name}"
    (request.target_path / "component.py").write_text(
        f"import dagster as dg\n\n"
        f"from {ours} import {names}\n\n\n"
        f"@dg.component_instance\n"
        f"def load(context: dg.ComponentLoadContext) -> {name}:\n"
        f"    return {name}(\n"
        f"        asset=dg.AssetSpec(dg.AssetKey.from_user_string({_quoted(key)})),\n"
        f"{lines}"
        f'        resource=WeblakeResource(root=dg.EnvVar("WEBLAKE_ROOT")),\n'
        f"    )\n",
        encoding="utf-8",
    )

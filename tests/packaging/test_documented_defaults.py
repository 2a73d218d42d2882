"""The defaults that docstrings and tables of options state are those of the code, in all three packages."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weblake import Client

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("src", "airflow_provider/src", "dagster_resources/src")
PAGES = ("README.md", "docs/*.md", "docs/site/[!r]*/*.md", "airflow_provider/README.md", "dagster_resources/README.md")

STATED = re.compile(
    r"[Dd]efault(?: is)?:? (?P<value>\d+(?:\.\d+)?|True|False|one day)(?P<hours> hours)?\b(?! if)"
    r"|(?P<before>\d+) by default"
)
#: An entry of a docstring in the two forms that are used here, and a row of a table of options.
ENTRY = re.compile(r"^ +(?::param )?(?P<name>[a-z_]+): (?P<text>.*(?:\n {8,}(?![a-z_]+: ).*)*)", re.MULTILINE)
ROW = re.compile(r"^\| (?:extra )?`(?P<name>[a-z_]+)` \|(?P<text>.*)\|$", re.MULTILINE)


def call_timeout() -> object:
    with Client("http://127.0.0.1:9", "key") as client:
        return client.retry.policy.wait_s


def imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


#: What sets a default that is None in the signature or that a table states, by the name of the option.
ELSEWHERE: dict[str, Callable[[], object]] = {
    "call_timeout_s": call_timeout,
    "deadline": lambda: imported("dagster_weblake.requests", "LandingRequest").__dataclass_fields__["deadline"].default,
    "opentelemetry": lambda: imported("dagster_weblake", "WeblakeResource").model_fields["opentelemetry"].default,
    "per_shard": lambda: imported("weblake.loads.urls.shards", "DEFAULT_PER_SHARD"),
    "timeout": lambda: imported("weblake.api.operation", "DEFAULT_CODE_S"),
}


def stated_in(text: str) -> object:
    """Return the default that an entry states, or None if it states no number, time or truth value."""
    found = STATED.search(" ".join(text.split()))
    if found is None:
        return None
    value = found["value"] or found["before"]
    if value == "one day" or found["hours"]:
        return timedelta(days=1) if value == "one day" else timedelta(hours=float(value))
    return value == "True" if value in ("True", "False") else float(value)


def documented() -> Iterator[Any]:
    for source in SOURCES:
        for path in sorted((REPOSITORY / source).rglob("*.py")):
            if "weblake_service" in path.parts or "example_project" in path.parts:
                continue
            module = ".".join(path.relative_to(REPOSITORY / source).with_suffix("").parts).removesuffix(".__init__")
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    for entry in ENTRY.finditer(ast.get_docstring(node, clean=False) or ""):
                        if (value := stated_in(entry["text"])) is not None:
                            yield pytest.param(module, node.name, entry["name"], value, id=f"{node.name}.{entry[1]}")
    for pages in PAGES:
        for page in sorted(REPOSITORY.glob(pages)):
            for row in ROW.finditer(page.read_text()):
                if (value := stated_in(row["text"])) is not None:
                    yield pytest.param(None, None, row["name"], value, id=f"{page.name}.{row['name']}")


@pytest.mark.parametrize(("module", "owner", "name", "value"), documented())
def test_a_documented_default_is_the_one_of_the_code(
    module: str | None, owner: str | None, name: str, value: object
) -> None:
    default: object = None
    if module is not None and owner is not None:
        documented = imported(module, owner)
        places = [each.__init__ for each in documented.__mro__] if isinstance(documented, type) else [documented]
        known = [inspect.signature(each).parameters for each in places]
        default = next(parameters[name].default for parameters in known if name in parameters)
    assert (ELSEWHERE[name]() if default is None else default) == value

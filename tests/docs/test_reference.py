"""The reference is the one of the code, and names every parameter, error, variable and extra; help() shows them too."""

from __future__ import annotations

import importlib.util
import inspect
import pydoc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import dagster_weblake
import weblake
from airflow_provider_weblake.operators import weblake as operators
from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor, WeblakeCrawlSensor
from airflow_provider_weblake.triggers import weblake as triggers
from weblake import options

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "site" / "reference"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_those_of_the_code(
    reference: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    assert reference.main() == 0, capsys.readouterr().out


def public() -> Iterator[Any]:
    """Yield each public operator, function, request, component and operation with the page that describes it."""
    for name in ("land", "land_batch", "land_crawl", "read", "changes", "orphans", "Client", "Terms", "HttpOptions"):
        yield pytest.param(getattr(weblake, name), "python", id=name)
    for name in operators.__all__:
        yield pytest.param(getattr(operators, name), "airflow", id=name)
    for sensor in (WeblakeBatchScrapeSensor, WeblakeCrawlSensor):
        yield pytest.param(sensor, "airflow", id=sensor.__name__)
    for name in triggers.__all__:
        yield pytest.param(getattr(triggers, name), "airflow", id=name)
    for name in (
        each for each in dagster_weblake.__all__ if re.match("build_|weblake_|.*(Request|Component|Resource)$", each)
    ):
        yield pytest.param(getattr(dagster_weblake, name), "dagster", id=name)


@pytest.mark.parametrize(("documented", "page"), public())
def test_help_and_the_reference_name_every_parameter(documented: Any, page: str, reference: ModuleType) -> None:
    known = set(reference.parameters_of(documented)) | set(getattr(documented, "model_fields", ()))
    own = {name for name in known if not name.startswith("_")}
    text = f"{documented.__doc__}\n{inspect.signature(documented) if inspect.isfunction(documented) else ''}"
    assert {name for name in own if not re.search(rf"\b{name}\b", text)} == set()
    described = (PAGES / f"{page}.md").read_text()
    section = re.split(rf"^### (?:weblake\.)?{documented.__name__}$", described, maxsplit=1, flags=re.MULTILINE)[-1]
    rows = set(re.findall(r"^\| `(\w+)` \|", section.partition("\n### ")[0], re.MULTILINE))
    assert own - rows == set()


def test_an_inherited_default_is_that_of_the_class(reference: ModuleType) -> None:
    """A subclass with another default than its base needs a text of its own."""
    stated = re.compile(r"\b[Dd]efault:? (True|False)\b")
    for operator in (getattr(operators, name) for name in operators.__all__):
        defaults = reference.parameters_of(operator)
        for name, text in reference.entries(operator).items():
            if found := stated.search(text):
                assert str(defaults[name].default) == found[1], (operator, name)


@pytest.mark.parametrize("name", ["land_batch", "land_crawl"])
def test_the_options_of_a_landing_are_named_in_its_help(name: str) -> None:
    kind = {"land_batch": options.BatchScrapeOptions, "land_crawl": options.CrawlOptions}[name]
    shown = pydoc.plain(pydoc.render_doc(getattr(weblake, name)))
    assert [option for option in kind.__annotations__ if not re.search(rf"\b{option}\b", shown)] == []


def test_every_operation_of_the_client_and_its_options_are_in_its_help_and_on_the_page(reference: ModuleType) -> None:
    page = (PAGES / "python.md").read_text()
    operations = reference.client_operations()
    assert len(operations) == 33
    for name, build in operations.items():
        assert f"| `{name}(" in page
        hint = next((each for each in inspect.get_annotations(build, eval_str=True).values() if get_args(each)), None)
        if hint is not None and hasattr(get_args(hint)[0], "__required_keys__"):
            kind = get_args(hint)[0]
            shown = pydoc.plain(pydoc.render_doc(getattr(weblake.Client, name)))
            assert [option for option in kind.__annotations__ if f"    {option}: " not in shown] == []
            assert f"\n### {kind.__name__}\n" in page


def test_every_class_of_errors_has_the_section_that_its_messages_name(reference: ModuleType) -> None:
    page = (PAGES / "errors.md").read_text()
    anchors = {re.sub(r"\s", "-", heading.lower()) for heading in re.findall("^## (.*)$", page, re.MULTILINE)}
    for name, cls in reference.error_classes().items():
        named = re.search(r"See errors#(\S+) in the documentation\.$", str(cls("It ended.")))
        assert named is not None, name
        assert named[1] in anchors


def test_every_environment_variable_is_named() -> None:
    page = (PAGES / "settings.md").read_text()
    sources = [path for part in ("src", "*/src") for path in ROOT.glob(f"{part}/**/*.py")]
    named = {name for path in sources for name in re.findall(r"\bWEBLAKE_[A-Z_]+[A-Z]\b", path.read_text())}
    assert {name for name in named if name not in page} - {"WEBLAKE_DEFAULT", "WEBLAKE_LLM"} == set()

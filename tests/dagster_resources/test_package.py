"""Tests of the package: modules, entry point, what a code location loads, and the examples of its short texts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path

import dagster as dg
import pytest
from page_blocks import codes
from remedy_templates import TEMPLATES, Template, names_command_line_term

import dagster_weblake
from dagster_weblake.failures import DAGSTER
from weblake.orchestration import Interface

ROOT = Path(__file__).parents[2]
#: Libraries of data, servers, browsers and command lines: nothing that loads definitions needs one of them.
HEAVY = [
    *("pyarrow", "pandas", "polars", "numpy", "duckdb", "deltalake", "pyiceberg", "fsspec", "boto3", "starlette"),
    *("uvicorn", "typer", "rich", "httpx", "playwright", "websockets", "aiohttp", "opentelemetry", "lxml", "pypdfium2"),
    *("openpyxl", "weblake_service"),
]
_CODE_LOCATION = """
import dagster_weblake as w

URL = "https://docs.example.com/"
requests = [
    w.CrawlRequest(url=URL), w.BatchScrapeRequest(urls=[URL]), w.ScrapeRequest(url=URL), w.ParseRequest(file="a.pdf"),
    w.JobRequest(), w.UsageRequest(budget=5), w.ActivityRequest(),
]
assets = [w.build_weblake_assets(type(each).__name__, each) for each in requests]
waiting = w.build_weblake_assets("waiting", requests[0], wait="sensor")

@w.weblake_assets()
def decorated():
    return requests[1]

made = w.WeblakeCrawlComponent(asset=dg.AssetSpec("made"), url=URL, checks={}).build_defs(
    dg.ComponentTree.for_test().load_context
)
root = "s3://lake/web"
check(dg.Definitions.merge(made, dg.Definitions(
    assets=[*sum(assets, []), *waiting, *decorated, w.build_table_asset("table", deps=[waiting[-1]])],
    asset_checks=[w.build_document_checks(waiting), w.build_usage_checks("UsageRequest", budget=5)],
    sensors=[w.build_collect_sensor(waiting)],
    resources={"weblake": w.WeblakeResource(root=root), "lake": w.WeblakeParquetIOManager(root=root)},
)))
print(json.dumps([before, loaded()]))
"""


@pytest.mark.smoke
def test_the_registry_entry_point_loads() -> None:
    (point,) = [p for p in entry_points(group="dagster_dg_cli.registry_modules") if p.name == "dagster_weblake"]
    assert point.load() is dagster_weblake
    assert [name for name in dagster_weblake.__all__ if not hasattr(dagster_weblake, name)] == []


@pytest.mark.smoke
def test_the_example_of_the_readme_loads() -> None:
    (code,) = codes((ROOT / "dagster_resources/README.md").read_text(), "python")
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    assert {"docs", "pages", "pages_job"} <= {key.to_user_string() for key in defs.resolve_all_asset_keys()}


#: What Dagster itself loads for definitions of every kind is not ours.
_DAGSTER_ALONE = """
import json, sys
import dagster as dg

def check(defs):
    dg.Definitions.validate_loadable(defs)
    defs.get_repository_def().get_implicit_global_asset_job_def()

@dg.multi_asset(specs=[dg.AssetSpec("plain")])
def plain(): ...

@dg.asset_check(asset="plain")
def checked(): ...

@dg.sensor(target="*")
def ticks(): ...

class Plain(dg.Component, dg.Model, dg.Resolvable):
    def build_defs(self, context):
        return dg.Definitions()

manager = dg.FilesystemIOManager()
check(dg.Definitions(assets=[plain], asset_checks=[checked], sensors=[ticks], resources={"x": manager}))
dg.ComponentTree.for_test()
loaded = lambda: [name for name in json.loads(sys.argv[1]) if name in sys.modules]
before = loaded()
"""


@pytest.mark.system
@pytest.mark.parametrize("heavy", [False, True], ids=["a code location", "control: one that reads"])
def test_a_code_location_with_every_kind_of_definition_loads_nothing_heavy(heavy: bool) -> None:
    more = "from weblake import orchestration; orchestration.table_schema('documents')\n" if heavy else ""
    program = _DAGSTER_ALONE + more + _CODE_LOCATION
    arguments = [sys.executable, "-c", program, json.dumps(HEAVY)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert "pyarrow" not in before, "Dagster itself loads it now: then this proves nothing"
    assert (sorted(set(after) - set(before)) != []) == heavy, (before, after)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.place)
def test_remedies_name_assets_and_the_resource(template: Template) -> None:
    assert not names_command_line_term(str(template.text).format(**_terms_and_values(template)))


def _terms_and_values(template: Template) -> dict[str, str]:
    return {**asdict(DAGSTER), **dict.fromkeys(template.values or (), "a value")}


def test_the_interface_has_every_term() -> None:
    assert isinstance(DAGSTER, Interface)
    assert all(asdict(DAGSTER).values())

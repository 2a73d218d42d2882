"""Tests that the modules of the package import with every declared dependency, and what a code location loads."""

import json
import subprocess
import sys

import pytest
from module_imports import import_all

#: Libraries of data, servers, browsers and command lines: nothing that loads definitions needs one of them.
HEAVY = [
    *("pyarrow", "pandas", "polars", "numpy", "duckdb", "deltalake", "pyiceberg", "fsspec", "boto3", "starlette"),
    *("uvicorn", "typer", "rich", "httpx", "playwright", "websockets", "aiohttp", "opentelemetry", "lxml", "pypdfium2"),
    *("openpyxl", "weblake_service"),
]

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


@pytest.mark.system
@pytest.mark.smoke
def test_every_module_imports() -> None:
    assert import_all("dagster_weblake") > 30


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

"""Tests that Airflow finds the provider by its entry point, and that its metadata is valid and correct."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.sdk import BaseHook, BaseOperator, BaseOperatorLink, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from airflow_provider_weblake.get_provider_info import get_provider_info

pytestmark = pytest.mark.system

PACKAGE = Path(import_module("airflow_provider_weblake").__file__ or "").parent
#: Where users import from, and what they find there (design, section 4).
PROMISED = {
    "airflow_provider_weblake.hooks.weblake": {"WeblakeHook": BaseHook},
    "airflow_provider_weblake.operators.weblake": dict.fromkeys(
        (
            "WeblakeLandOperator",
            "WeblakeScrapeOperator",
            "WeblakeParseOperator",
            "WeblakeBatchScrapeOperator",
            "WeblakeCrawlOperator",
            "WeblakeMapOperator",
            "WeblakeInteractOperator",
            "WeblakeUsageOperator",
            "WeblakeActivityOperator",
        ),
        BaseOperator,
    ),
    "airflow_provider_weblake.sensors.weblake": {
        "WeblakeBatchScrapeSensor": BaseSensorOperator,
        "WeblakeCrawlSensor": BaseSensorOperator,
    },
    "airflow_provider_weblake.triggers.weblake": {"WeblakeJobTrigger": BaseTrigger},
    "airflow_provider_weblake.links.weblake": {"WeblakeJobLink": BaseOperatorLink},
}


def schema(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((Path(airflow.__file__).parent / name).read_text())
    return found


def run(code: str) -> str:
    """Runs a program in an interpreter of its own, where a deprecation of Airflow's is an error."""
    preamble = (
        "import warnings\n"
        "from airflow.exceptions import AirflowProviderDeprecationWarning, RemovedInAirflow4Warning\n"
        "warnings.simplefilter('error', AirflowProviderDeprecationWarning)\n"
        "warnings.simplefilter('error', RemovedInAirflow4Warning)\n"
        "warnings.filterwarnings('error', module='airflow_provider_weblake')\n"
        "import logging; logging.captureWarnings(False)\n"
    )
    done = subprocess.run([sys.executable, "-c", preamble + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "airflow_provider_weblake" not in done.stderr, done.stderr
    return done.stdout.strip().splitlines()[-1]


def dotted_paths(node: object) -> set[str]:
    """Every text in a description that names something of this package."""
    if isinstance(node, dict):
        return set().union(*map(dotted_paths, node.values()))
    if isinstance(node, list):
        return set().union(*map(dotted_paths, node))
    return {node} if isinstance(node, str) and node.startswith("airflow_provider_weblake.") else set()


def test_the_entry_point_gives_a_valid_description_and_imports_nothing() -> None:
    code = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "from importlib.metadata import entry_points, version\n"
        "version('apache-airflow')  # what it takes to read a version, Airflow has loaded for its list of providers\n"
        "(point,) = [p for p in entry_points(group='apache_airflow_provider') if 'weblake' in p.value]\n"
        "known = set(sys.modules)\n"
        "info = point.load()()\n"
        "print(json.dumps([info, sorted(set(sys.modules) - known)]))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    info, imported = json.loads(out)
    assert imported == ["airflow_provider_weblake", "airflow_provider_weblake.get_provider_info"]
    assert info == get_provider_info()
    jsonschema.validate(info, schema("provider_info.schema.json"))
    assert info["package-name"] == "airflow-provider-weblake"


def test_the_connection_form_is_valid_by_the_schema_that_spells_it() -> None:
    """provider_info.schema.json lets any `conn-fields` pass; the schema of provider.yaml does not."""
    whole = schema("provider.yaml.schema.json")
    part = whole["properties"]["connection-types"] | {"definitions": whole["definitions"]}  # type: ignore[index, operator]
    types = get_provider_info()["connection-types"]
    jsonschema.validate(types, part)
    wrong = json.loads(json.dumps(types))
    wrong[0]["ui-field-behaviour"]["hidden-fields"].append("no_such_field")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, part)


def test_the_description_has_no_deprecated_or_unknown_keys() -> None:
    known = schema("provider_info.schema.json")["properties"]
    assert isinstance(known, dict)
    assert {name for name in get_provider_info() if name not in known or "deprecated" in known[name]} == set()


def test_every_import_path_in_the_description_exists() -> None:
    missing = []
    for path in sorted(dotted_paths(get_provider_info())):
        try:
            import_module(path)
        except ModuleNotFoundError as error:
            module, _, name = path.rpartition(".")
            if error.name not in (path, module) or not hasattr(import_module(module), name):
                missing.append(f"{path}: {error}")
    assert missing == []


@pytest.mark.parametrize("module", PROMISED)
def test_the_public_names_exist(module: str) -> None:
    found = vars(import_module(module))
    wrong = [name for name, base in PROMISED[module].items() if not issubclass(found.get(name, object), base)]
    assert wrong == []
    described = json.dumps(get_provider_info())
    assert module in described


def test_airflow_knows_the_provider_as_it_is_described() -> None:
    code = (
        "import json\n"
        "from airflow.providers_manager import ProvidersManager\n"
        "from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime\n"
        "pm, runtime = ProvidersManager(), ProvidersManagerTaskRuntime()\n"
        "hook = pm.hooks['weblake']\n"
        "print(json.dumps({\n"
        "    'hook': [hook.hook_class_name, hook.connection_id_attribute_name, hook.hook_name],\n"
        "    'testable': hook.connection_testable,\n"
        "    'widgets': sorted(n for n in pm.connection_form_widgets if n.startswith('extra__weblake__')),\n"
        "    'behaviour': pm.field_behaviours['weblake'],\n"
        "    'links': [n for n in pm.extra_links_class_names if 'weblake' in n],\n"
        "    'runtime hook': runtime.hooks['weblake'].hook_class_name,\n"
        "    'assets': [\n"
        "        getattr(registry.get('weblake'), '__name__', None)\n"
        "        for registry in (\n"
        "            runtime.asset_uri_handlers, runtime.asset_to_openlineage_converters,\n"
        "            pm.asset_uri_handlers, pm.asset_to_openlineage_converters,\n"
        "        )\n"
        "    ],\n"
        "}))\n"
    )
    found = json.loads(run(code))
    hook = "airflow_provider_weblake.hooks.weblake.WeblakeHook"
    assert found["hook"] == [hook, "weblake_conn_id", "weblake"]
    assert found["testable"] is True
    assert found["runtime hook"] == hook
    names = ("ca_bundle", "call_timeout_s", "client_certificate", "client_key", "insecure", "job_url", "proxy")
    assert found["widgets"] == [f"extra__weblake__{name}" for name in names]
    assert found["behaviour"]["relabeling"] == {"host": "Base URL", "password": "API key"}
    assert set(found["behaviour"]["hidden_fields"]) == {"login", "port", "schema", "extra"}
    assert found["behaviour"]["placeholders"]["host"] == "https://api.example.com"
    assert found["links"] == ["airflow_provider_weblake.links.weblake.WeblakeJobLink"]
    assert found["assets"] == ["sanitize_uri", "convert_asset_to_openlineage"] * 2

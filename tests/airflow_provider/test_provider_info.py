"""Airflow finds the provider by its entry point, and the description is valid by Airflow's own schema."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import jsonschema


def test_the_entry_point_gives_a_valid_description_and_imports_nothing() -> None:
    code = (
        "import json, sys\n"
        "from importlib.metadata import entry_points\n"
        "(point,) = [p for p in entry_points(group='apache_airflow_provider') if 'weblake' in p.value]\n"
        "info = point.load()()\n"
        "print(json.dumps([info, sorted(m for m in sys.modules if m.partition('.')[0] in ('airflow', 'pyarrow'))]))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    info, imported = json.loads(out)
    assert imported == []
    import airflow

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(info, schema)
    assert info["package-name"] == "airflow-provider-weblake"


def test_the_name_is_registered_once() -> None:
    found = [point for point in entry_points(group="apache_airflow_provider") if "weblake" in point.value]
    assert len(found) == 1

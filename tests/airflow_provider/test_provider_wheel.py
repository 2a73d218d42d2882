"""Tests of the provider's wheel: its content, and that it works without other packages of the repository."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from catalogue import proves

ROOT = Path(__file__).parents[2]
NAME = "airflow_provider_weblake"
SOURCE = ROOT / "airflow_provider" / "src" / NAME


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    uv = shutil.which("uv")
    assert uv is not None, "uv runs these tests"
    command = [uv, "build", "--package", "airflow-provider-weblake", "--wheel", "--offline", "-o", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (found,) = out.glob(f"{NAME}-*.whl")
    return found


def inside(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}


def text_of(wheel: Path, ending: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(ending))
    return archive.read(name).decode()


def test_the_wheel_contains_every_module_and_no_test(wheel: Path) -> None:
    modules = {f"{NAME}/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*.py")}
    assert f"{NAME}/operators/weblake.py" in modules
    names = inside(wheel)
    assert {name for name in names if name.endswith(".py")} == modules
    assert f"{NAME}/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {Path(name).parts[0] for name in names} == {NAME, next(n for n in names if ".dist-info" in n).split("/")[0]}
    assert [name for name in names if "test" in name.lower() or name.endswith((".pyc", ".env", ".db"))] == []


def test_airflow_finds_the_provider_by_its_entry_point(wheel: Path) -> None:
    points = configparser.ConfigParser()
    points.read_string(text_of(wheel, ".dist-info/entry_points.txt"))
    assert dict(points["apache_airflow_provider"]) == {
        "provider_info": "airflow_provider_weblake.get_provider_info:get_provider_info"
    }
    assert "airflow.plugins" not in points


def test_o10_the_metadata_declares_requirements_and_classifiers(wheel: Path) -> None:
    metadata = Parser().parsestr(text_of(wheel, ".dist-info/METADATA"))
    needs = metadata.get_all("Requires-Dist") or []
    assert any(need.startswith("apache-airflow") and ">=3.0.6" in need and "<4" in need for need in needs)
    assert any(need.startswith("weblake") for need in needs)
    assert not [need for need in needs if "openlineage" in need and "extra ==" not in need]
    extras = {"amazon", "google", "microsoft-azure", "openlineage", "delta", "iceberg"}
    assert set(metadata.get_all("Provides-Extra") or []) == extras
    assert metadata["License-Expression"] == "Apache-2.0"
    readme = str(metadata.get_payload())
    assert "WeblakeBatchScrapeOperator" in readme
    assert "](docs/" not in readme, "a relative link leads nowhere outside the repository"


@pytest.mark.parametrize(
    ("release", "fits"),
    [("2.11.2", False), ("3.0.3", False), ("3.0.5+local", False), ("3.0.6", True), ("3.0.6rc1", True), ("3.10", True)],
)
@proves(
    "O10",
    at="airflow_provider/src/airflow_provider_weblake/__init__.py",
    line="if numbers and tuple(int(part or 0) for part in numbers.groups()) < _OLDEST:",
    becomes="if False:",
    case="2.11.2-False",
)
def test_o10_an_older_airflow_is_reported_at_the_import(tmp_path: Path, release: str, fits: bool) -> None:
    """As after an installation without dependencies: the first import tells, not the first name that is missing."""
    metadata = tmp_path / f"apache_airflow-{release}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: apache-airflow\nVersion: {release}\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", f"import {NAME}"], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (run.returncode == 0) == fits, run.stderr
    if not fits:
        assert f"needs Apache Airflow 3.0.6 or later, and this is {release}" in run.stderr

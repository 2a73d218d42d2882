"""Tests that the wheels contain exactly the source tree, and that the core works without the integrations."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "weblake": ROOT / "src",
    "airflow_provider_weblake": ROOT / "airflow_provider" / "src",
    "dagster_weblake": ROOT / "dagster_resources" / "src",
}
#: Registries' hosts, put together here so that this file does not name one either.
HOSTS = ["pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js.org"]


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_holds_its_packages_and_nothing_else(name: str, wheels: dict[str, Path]) -> None:
    listed = [item for item in zipfile.ZipFile(wheels[name]).namelist() if not item.endswith("/")]
    inside = {item for item in listed if ".dist-info/" not in item}
    source = SOURCES[name]
    expected = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == expected
    assert f"{name}/py.typed" in inside
    assert any(item.endswith(".dist-info/entry_points.txt") for item in listed)
    assert any(item.endswith("licenses/LICENSE") for item in listed)


@pytest.mark.parametrize("name", ["airflow_provider_weblake", "dagster_weblake"])
def test_the_integrations_require_the_core_of_their_release(name: str, wheels: dict[str, Path]) -> None:
    archive = zipfile.ZipFile(wheels[name])
    metadata = next(item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
    needs = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or []
    assert any(re.fullmatch(r"weblake(\[\w+\])?\s*[(<>=,.0-9)]+", need) for need in needs), needs


@pytest.mark.system
def test_the_core_imports_without_integrations_and_extras(wheels: dict[str, Path], tmp_path: Path) -> None:
    zipfile.ZipFile(wheels["weblake"]).extractall(tmp_path)
    blocked = ("airflow", "dagster", "starlette", "uvicorn", "selectolax", "pandas", "polars", "s3fs", "yaml")
    blocked += ("isal",)
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "import weblake\n"
        f"assert weblake.__file__.startswith({str(tmp_path)!r}), weblake.__file__\n"
        "for name in weblake.__all__:\n"
        "    if name != 'testing': getattr(weblake, name)\n"
        "from weblake.cli import main\n"
        "sys.argv = ['weblake', '--help']\n"
        "main()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("command", "or_another"), [(["scrape", "http://127.0.0.1:9/"], True), (["serve"], False)], ids=["scrape", "serve"]
)
def test_a_missing_extra_is_named(tmp_path: Path, command: list[str], or_another: bool) -> None:
    code = (
        "import sys\n"
        "sys.modules['uvicorn'] = None\n"
        f"sys.argv = ['weblake', *{command!r}]\n"
        "from weblake.cli import main\n"
        "main()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert run.returncode == 1
    assert "weblake[local]" in run.stderr
    assert ("WEBLAKE_BASE_URL" in run.stderr) is or_another, "another service does not help one who starts one"
    assert "Traceback" not in run.stderr


def test_a_pyarrow_that_does_not_go_with_numpy_is_named(tmp_path: Path) -> None:
    """pyarrow 26 next to NumPy 1.26, as on Airflow 3.0 with its constraints."""
    code = (
        "import sys\n"
        "class Refusing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pyarrow': raise ImportError('pyarrow requires NumPy 2.0 or newer, found 1.26.4')\n"
        "sys.meta_path.insert(0, Refusing())\n"
        f"sys.argv = ['weblake', 'table', 'add', {str(tmp_path)!r}, 'delta']\n"
        "from weblake.cli import main\n"
        "main()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert run.returncode == 1
    assert "found 1.26.4. Install versions of pyarrow and NumPy" in " ".join(run.stderr.split())
    assert "Traceback" not in run.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        ("weblake.client, weblake.jobs.polling, weblake.loads.starts", ["pyarrow", "pandas"]),
        (
            "weblake.loads.landing, weblake.loads.load, weblake.loads.staging",
            ["pyarrow.compute", "pyarrow.dataset", "pandas"],
        ),
    ],
    ids=["waiting for a job", "landing a small one"],
)
def test_importing_weblake_loads_no_heavy_module(imported: str, unwanted: list[str]) -> None:
    code = f"import sys, {imported}; print([name for name in {unwanted} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240).stdout
    assert out.strip() == "[]"


def test_no_file_names_a_registry() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "uv.lock" not in tracked
    for name in tracked:
        text = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        assert not [host for host in HOSTS if host.encode() in text], name

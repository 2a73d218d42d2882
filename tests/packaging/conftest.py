"""The wheels of the three distributions, built once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("wheels")
    uv = shutil.which("uv")
    assert uv is not None, "uv runs these tests"
    built = subprocess.run(
        [uv, "build", "--all-packages", "--wheel", "--offline", "-o", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert built.returncode == 0, built.stderr
    return {path.name.partition("-")[0]: path for path in out.glob("*.whl")}

"""Fixtures that set a separate Dagster home without telemetry before Dagster is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"

# Modules that only these tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))
from in_process import Bench
from in_process import bench as open_bench

if TYPE_CHECKING:
    from weblake.testing import WeblakeService


@pytest.fixture(autouse=True)
def _no_dagster_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that wants an instance on disk makes its own."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.fixture
def bench(weblake_service: WeblakeService, tmp_path: Path) -> Iterator[Bench]:
    """An instance on disk, the embedded service, and a dataset."""
    with open_bench(weblake_service, tmp_path) as found:
        yield found

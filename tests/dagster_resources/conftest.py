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
    from alembic.config import Config

    from weblake.testing import WeblakeService


@pytest.fixture(autouse=True)
def _without_user_dagster_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove DAGSTER_HOME: a test that needs an instance on disk creates its own."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.fixture(autouse=True, scope="session")
def _cache_migrations() -> Iterator[None]:
    """Keep what alembic read of Dagster's migrations.

    Each instance reads them anew, to compare or set a database's revision: two thirds of its CPU time.
    """
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    kept: dict[str, ScriptDirectory] = {}

    def from_config(config: Config) -> ScriptDirectory:
        place = str(config.get_main_option("script_location"))
        if place not in kept:
            kept[place] = read(config)
        return kept[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture
def bench(weblake_service: WeblakeService, tmp_path: Path) -> Iterator[Bench]:
    """An instance on disk, the embedded service, and a dataset."""
    with open_bench(weblake_service, tmp_path) as found:
        yield found

"""Fixtures of the tests of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from task_lab import TaskLab, task_lab

from weblake.tables import synchronization


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    """A dataset of its own, and the service that fills it."""
    with task_lab(tmp_path) as lab:
        yield lab


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts of a commit follow each other without a pause."""
    monkeypatch.setattr(synchronization, "PAUSE_S", 0.0)

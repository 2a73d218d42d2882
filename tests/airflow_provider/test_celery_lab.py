"""Tests of the lab with CeleryExecutor: its servers are real, and a worker that dies loses no task.

`nightly`: test_shards_on_celery.py kills a worker of this lab under `system`.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from celery_lab import CeleryLab
from supervised_processes import lives

pytestmark = pytest.mark.nightly


def test_celery_loses_a_worker(tmp_path: Path) -> None:
    text = f"canary-{uuid.uuid4()}"
    with CeleryLab(tmp_path / "celery", Path(__file__).parent / "lab_dags") as lab:
        lab.wait_for_dags({"lab_trivial", "lab_busy", "lab_deferred"})
        run = lab.trigger("lab_trivial", {"text": text})
        assert lab.wait_run("lab_trivial", run) == "success", lab.describe("lab_trivial", run)
        assert any(place.startswith("row xcom.value") for place in lab.grep(text))
        # Celery's results lie in Postgres, and Redis knows the queues: the search reaches both.
        results = "row celery_taskmeta.status"
        lab.until("Celery's result", lambda: any(each.startswith(results) for each in lab.grep("SUCCESS")), 30)
        assert any(place.startswith("queue _kombu.binding") for place in lab.grep("default"))

        held = lab.trigger("lab_busy", {"pid_file": str(tmp_path / "pid")})
        process = lab.wait_worker("lab_busy", held, "hold")
        number = lab.worker_of("lab_busy", held, "hold")
        assert number in (1, 2)
        lab.kill_worker(number)
        assert not lives(process)
        assert lab.wait_run("lab_busy", held, timeout=90) == "success", lab.describe("lab_busy", held)
        assert lab.task("lab_busy", held, "hold")["try_number"] == 2
        lab.start_worker(number)
        pids = lab.pids()
        assert len(pids) > 10
    assert not [pid for pid in pids if lives(pid)], "processes outlived the lab"

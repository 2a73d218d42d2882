"""Tests of the lab: its Dagster is real, its answers are correct, and no process outlives it.

`nightly`: if the lab fails, the tests that use it fail, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster_lab import DagsterLab, is_alive

HERE = Path(__file__).parent
pytestmark = pytest.mark.nightly

#: One process for the run and its steps: half as long as the multiprocess executor.
IN_PROCESS = {"execution": {"config": {"in_process": {}}}}


#: Dagster repeats no failed run by itself that has this tag.
NO_RETRY = {"dagster/max_retries": "0"}


def wait_gone(*pids: int, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.05)


def holding(file: str) -> dict[str, object]:
    """The run config of `held`."""
    return {"ops": {"held": {"config": {"file": file}}}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the definitions look at."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[DagsterLab]:
    code = tmp_path_factory.mktemp("code") / "lab_definitions.py"
    shutil.copy(HERE / "lab_definitions.py", code)
    with DagsterLab(tmp_path_factory.mktemp("dagster"), code, {"LAB_FILES": str(files)}) as lab:
        yield lab


def test_a_materialization_as_the_pages_show_it(lab: DagsterLab) -> None:
    text = f"ünïcode-{uuid.uuid4()}"
    config = {**IN_PROCESS, "ops": {"lab__told": {"config": {"text": text}}}}
    run = lab.launch(["lab/told"], run_config=config, tags={"lab/why": "to tell"})
    assert lab.wait_status(run) == "SUCCESS"
    assert [each.run_id for each in lab.runs({"lab/why": "to tell"})] == [run]
    assert lab.runs({"lab/why": "to tell"}, ["FAILURE"]) == []

    (event,) = lab.materializations("lab/told")
    assert (event.run_id, event.partition) == (run, None)
    assert abs(event.timestamp - time.time()) < 300
    assert event.metadata == {
        "dagster/row_count": 2**40,
        "dagster/uri": "memory://lab",
        "dagster/column_schema": {"url": "string", "n": "int64"},
        "preview": [{"url": "a", "n": 1}],
        "plot": "**bold**",
        "ratio": 0.5,
        "complete": True,
        "counts": {"stored": [1, 2]},
        "nothing": None,
    }
    (seen,) = lab.observations("lab/told")
    assert seen.metadata == {"seen": len(text)}
    check = lab.asset_checks("lab/told")["long_enough"]
    assert check is not None
    assert (check.status, check.run_id, check.metadata) == ("SUCCEEDED", run, {"length": len(text)})
    assert lab.events(run)[-1]["message"].startswith("Process for run exited")

    assert f"printed {text}" in lab.output(run)
    found = lab.grep(text)
    assert any(place.startswith("file ") and "compute_logs" in place for place in found)
    assert any("row runs.run_body" in place for place in found)
    assert any("row snapshots.snapshot_body" in place for place in lab.grep("quincunx"))
    assert lab.grep(str(uuid.uuid4())) == []


def test_a_refused_or_late_request_gives_the_reason(lab: DagsterLab) -> None:
    with pytest.raises(AssertionError, match="no_such_asset"):
        lab.launch(["no_such_asset"])
    with pytest.raises(AssertionError, match=r"(?s)RunConfigValidationInvalid.*Missing required config"):
        lab.launch(["held"])
    with pytest.raises(AssertionError, match=r"(?s)run .* to be SUCCESS: not within 0 s.*RUN_ENQUEUED"):
        lab.wait_status(lab.launch(["first"], run_config=IN_PROCESS), {"SUCCESS"}, timeout=0)


def test_a_backfill_of_three_partitions(lab: DagsterLab) -> None:
    letters = lab.backfill(["lettered"], ["a", "b", "c"], IN_PROCESS)
    assert lab.wait_backfill(letters) == "COMPLETED_SUCCESS"
    assert lab.backfill_counts(letters) == {"lettered": {"targeted": 3, "materialized": 3, "failed": 0}}
    events = lab.materializations("lettered")
    assert {event.partition: event.metadata["letter"] for event in events} == {"a": "a", "b": "b", "c": "c"}
    assert {run.run_id for run in lab.runs({"dagster/backfill": letters})} == {event.run_id for event in events}


def test_a_partition_added_while_dagster_runs(lab: DagsterLab) -> None:
    lab.add_dynamic_partition("sites", "a.test")
    lab.wait_status(lab.launch(["visited"], "a.test", IN_PROCESS), {"SUCCESS"})
    assert [(event.partition, event.metadata["site"]) for event in lab.materializations("visited")] == [
        ("a.test", "a.test")
    ]
    with pytest.raises(AssertionError, match="DuplicateDynamicPartitionError"):
        lab.add_dynamic_partition("sites", "a.test")


def test_a_user_terminates(lab: DagsterLab) -> None:
    run = lab.launch(["held"], run_config=holding("never"))
    step, worker = lab.wait_step(run), lab.wait_worker(run)
    assert step != worker
    lab.terminate(run)
    canceled = lab.wait_event(run, lambda event: event["eventType"] == "RUN_CANCELED")
    assert "DagsterExecutionInterruptedError" in canceled["error"]["message"]
    assert lab.wait_status(run) == "CANCELED"  # the event comes first
    wait_gone(step, worker)
    assert lab.worker_pid(run) is None
    assert lab.step_pids(run) == {}
    assert lab.runs({"dagster/parent_run_id": run}) == []


def test_a_lost_machine_and_the_run_retry(lab: DagsterLab, files: Path) -> None:
    run = lab.launch(["held"], run_config=holding("after the loss"))
    step = lab.wait_step(run)
    killed = lab.kill_run(run)
    assert step in killed
    assert len(killed) > 1
    retry = lab.wait_retry(run)
    assert lab.run(run).status == "FAILURE"
    assert (retry.root, retry.parent, retry.tags["dagster/retry_number"]) == (run, run, "1")
    assert lab.wait_step(retry.run_id) not in killed
    (files / "after the loss").touch()
    assert lab.wait_status(retry.run_id) == "SUCCESS"
    assert lab.materializations("held", limit=1)[0].metadata["pid"] not in killed


def test_the_step_of_a_killed_worker_continues(lab: DagsterLab, files: Path) -> None:
    run = lab.launch(["held"], run_config=holding("after the worker"), tags=NO_RETRY)
    step = lab.wait_step(run)
    worker = lab.wait_worker(run)
    assert lab.kill_run(run, steps=False) == {worker}
    assert lab.wait_status(run) == "FAILURE"
    assert lab.step_pids(run) == {"held": step}
    (files / "after the worker").touch()
    wait_gone(step)
    assert lab.materializations("held", limit=1)[0].metadata == {"pid": step}


def test_an_eviction(lab: DagsterLab) -> None:
    run = lab.launch(["held"], run_config=holding("never"), tags=NO_RETRY)
    step = lab.wait_step(run)
    worker = lab.evict_run(run)
    assert lab.wait_status(run) == "FAILURE"
    assert "No user initiated termination request" in lab.describe(run)
    wait_gone(step, worker)


def test_a_user_repeats_a_run(lab: DagsterLab, files: Path) -> None:
    run = lab.launch(["first", "second"], run_config=IN_PROCESS, tags=NO_RETRY)
    with pytest.raises(AssertionError, match=r"(?s)the run is FAILURE.*there is no such file yet"):
        lab.wait_status(run, {"SUCCESS"})
    (files / "second may pass").touch()
    again = lab.reexecute(run)
    lab.wait_status(again, {"SUCCESS"})
    assert (lab.run(again).root, lab.run(again).parent) == (run, run)
    everything = lab.reexecute(run, "ALL_STEPS")
    lab.wait_status(everything, {"SUCCESS"})
    mine = {run, again, everything}
    assert [event.run_id for event in lab.materializations("first") if event.run_id in mine] == [everything, run]
    assert [event.run_id for event in lab.materializations("second")] == [everything, again]


def test_a_sensor(lab: DagsterLab, files: Path) -> None:
    lab.until("a tick", lambda: lab.ticks("inbox"))
    (files / "one.mail").write_text(json.dumps("hello"))
    (run,) = lab.wait_sensor_runs("inbox")
    lab.wait_status(run, {"SUCCESS"})
    assert lab.materializations("mailed")[0].metadata == {"mail": "hello"}
    assert lab.ticks("inbox")[-1]["skipReason"] == "no mail"


def test_new_code_is_loaded(lab: DagsterLab) -> None:
    assert isinstance(lab.code, Path)
    later = "@dg.asset\ndef later() -> None:\n    pass\n\n\nclass Hold("
    lab.code.write_text(lab.code.read_text().replace("class Hold(", later).replace("mailed]", "mailed, later]"))
    lab.reload()
    assert lab.asset_checks("later") == {}


def test_nothing_outlives_a_lab(tmp_path: Path) -> None:
    lab = DagsterLab(tmp_path / "dagster", HERE / "lab_definitions.py", {"LAB_FILES": str(tmp_path)})
    lab.start()
    try:
        run = lab.launch(["held"], run_config=holding("never"))
        step = lab.wait_step(run)
        lab.kill_run(run, steps=False)
        pids = lab.pids()
        assert step in pids
        assert len(pids) > 5
        os.kill(lab.dev_pid(), signal.SIGKILL)
        with pytest.raises(AssertionError, match=r"(?s)waiting for the sun, but: dagster dev ended with -9.*Serving"):
            lab.until("the sun", lambda: False, timeout=20)
    finally:
        lab.stop()
    wait_gone(*pids, timeout=0)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", lab.port)) != 0
    assert not lab.scratch.exists()
    assert (tmp_path / "dagster" / "dagster.yaml").exists()
    lab.stop()


def test_a_failed_start_gives_the_reason_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('these definitions are broken')\n")
    lab = DagsterLab(tmp_path / "dagster", "broken", {"PYTHONPATH": str(tmp_path)})
    with pytest.raises(AssertionError, match="these definitions are broken"):
        lab.start()
    assert not lab.scratch.exists()
    environments = (Path(entry.path, "environ") for entry in os.scandir("/proc") if entry.name.isdigit())
    for environment in environments:
        with contextlib.suppress(OSError):
            assert f"DAGSTER_HOME={lab.home}".encode() not in environment.read_bytes()

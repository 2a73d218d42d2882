"""Tests of the lab: its Airflow is real, its answers are correct, and no process outlives it.

Tests that need an Airflow of their own are `nightly`: if the lab fails, the tests that use it fail, too.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

sys.path.insert(0, str(Path(__file__).parent))

import database_search
import supervised_processes
from airflow_lab import AirflowLab
from supervised_processes import descendants, lives

HERE = Path(__file__).parent
pytestmark = pytest.mark.system


def poll(done: Callable[[], object], timeout: float = 20) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def orphans() -> list[int]:
    """Processes that tasks left behind."""
    return []


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, orphans: list[int]) -> Iterator[AirflowLab]:
    dags = tmp_path_factory.mktemp("dags")
    shutil.copy(HERE / "lab_dags" / "lab_dags.py", dags)
    with AirflowLab(tmp_path_factory.mktemp("airflow"), dags) as lab:
        lab.wait_for_dags({"lab_trivial", "lab_deferred", "lab_busy"})
        yield lab
        pids = lab.pids() | set(orphans)
        assert len(pids) > 4
    assert not [pid for pid in pids if lives(pid)], "processes outlived the lab"


@pytest.mark.nightly
def test_a_run_its_xcom_its_log_and_where_a_text_stands(lab: AirflowLab) -> None:
    text = f"ünïcode-{uuid.uuid4()}"
    run = lab.trigger("lab_trivial", {"text": text})
    assert lab.wait_run("lab_trivial", run) == "success"
    said = lab.xcom("lab_trivial", run, "say")
    assert said["text"] == text
    assert said["pid"] not in (os.getpid(), lab.pid_of("scheduler"))
    assert "said on a worker" in lab.log("lab_trivial", run, "say")

    found = lab.grep(text)
    assert any("attempt=1.log" in place for place in found)
    assert any(place.startswith("row xcom.value") for place in found)
    assert any(place.startswith("row dag_run.conf") for place in found)
    assert lab.grep(str(uuid.uuid4())) == []

    lab.clear("lab_trivial", run, ["say"])
    assert lab.wait_task("lab_trivial", run, "say", {"success"}, try_number=2)["try_number"] == 2
    assert "said on a worker" in lab.log("lab_trivial", run, "say", try_number=2)


@pytest.mark.nightly
def test_a_file_is_read_when_it_is_new_and_when_it_changed(lab: AirflowLab) -> None:
    file = lab.dags / "later.py"
    for name in ("lab_new", "lab_changed"):
        file.write_text(f"from airflow.sdk import DAG\nwith DAG({name!r}, schedule=None):\n    pass\n")
        lab.wait_for_dags({name}, timeout=60)


@pytest.mark.nightly
def test_waiting_in_the_triggerer_outlives_its_restart(lab: AirflowLab) -> None:
    run = lab.trigger("lab_deferred", {"seconds": 6})
    lab.wait_task("lab_deferred", run, "wait", {"deferred"})
    assert lab.worker_pids("lab_deferred", run, "wait") == []
    # A word that stands in the trigger's arguments only, which Airflow encrypts.
    assert any(place.startswith("row trigger.kwargs") for place in lab.grep("end_from_trigger"))
    old = lab.pid_of("triggerer")
    lab.restart_triggerer()
    assert not lives(old)
    assert lab.pid_of("triggerer") != old
    assert lab.wait_run("lab_deferred", run) == "success", lab.describe("lab_deferred", run)
    log = lab.log("lab_deferred", run, "wait")
    assert log.index("Pausing task as DEFERRED") < log.index("Trigger fired event") < log.index("resumed on a worker")


@pytest.mark.nightly
def test_a_killed_triggerer_is_replaced(lab: AirflowLab) -> None:
    run = lab.trigger("lab_deferred", {"seconds": 1})
    lab.wait_task("lab_deferred", run, "wait", {"deferred"})
    pids = {lab.pid_of("triggerer"), *descendants(lab.pid_of("triggerer"))}
    lab.kill_triggerer()
    assert not [pid for pid in pids if lives(pid)]
    lab.start_triggerer()
    assert lab.wait_run("lab_deferred", run, timeout=60) == "success"


@pytest.mark.nightly
def test_marks_of_a_user(lab: AirflowLab) -> None:
    run, other = (lab.trigger("lab_deferred", {"seconds": 600}) for _ in range(2))
    lab.wait_task("lab_deferred", run, "wait", {"deferred"})
    with pytest.raises(AssertionError, match=r"(?s)the run is running.*wait.*deferred.*Pausing task as DEFERRED"):
        lab.wait_run("lab_deferred", run, timeout=0)
    lab.mark_task("lab_deferred", run, "wait", "failed")
    assert lab.wait_run("lab_deferred", run) == "failed"
    lab.wait_task("lab_deferred", other, "wait", {"deferred"})
    lab.mark_run("lab_deferred", other, "success")
    assert lab.wait_run("lab_deferred", other) == "success"


@pytest.mark.nightly
def test_the_process_of_a_task(lab: AirflowLab, orphans: list[int], tmp_path: Path) -> None:
    """Its death is noticed at once, its supervisor's by missing heartbeats; what it started may stay behind."""
    first, second = (lab.trigger("lab_busy", {"pid_file": str(tmp_path / name)}) for name in "ab")
    killed = lab.wait_worker("lab_busy", first, "hold")
    poll(lambda: (tmp_path / "a").exists() and (tmp_path / "a").read_text())
    child = int((tmp_path / "a").read_text())
    orphans.append(child)
    assert set(lab.worker_pids("lab_busy", first, "hold")) == {killed, child}
    os.kill(killed, signal.SIGKILL)

    lab.wait_worker("lab_busy", second, "hold")
    supervisor = lab.supervisor_pid("lab_busy", second, "hold")
    assert supervisor in descendants(lab.pid_of("scheduler"))
    os.kill(supervisor, signal.SIGKILL)

    for run in (first, second):
        assert lab.wait_run("lab_busy", run, timeout=60) == "success", lab.describe("lab_busy", run)
        assert lab.task("lab_busy", run, "hold")["try_number"] == 2
        assert lab.worker_pids("lab_busy", run, "hold") == []
    assert lives(child)


OWNER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from supervised_processes import Processes
processes = Processes()
processes.remove_at_end(Path({directory!r}))
# One that leaves the session, whose parent then ends: only the token finds it.
script = "(setsid sh -c 'echo $$ > {pids}/lost; exec sleep 600' &); sleep 600 & echo $! > {pids}/child; wait $!"
print(processes.start("one", ["sh", "-c", script], {{"PATH": "/usr/bin:/bin"}}, Path({pids!r}, "log")), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_their_owner(tmp_path: Path, number: int) -> None:
    pids, directory = tmp_path / "pids", tmp_path / "gone later"
    pids.mkdir()
    directory.mkdir()
    code = OWNER.format(here=str(Path(supervised_processes.__file__).parent), directory=str(directory), pids=str(pids))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        leader = int(owner.stdout.readline())
        poll(lambda: all((pids / name).exists() and (pids / name).read_text() for name in ("lost", "child")))
        family = [leader, int((pids / "lost").read_text()), int((pids / "child").read_text())]
        assert all(lives(pid) for pid in family)
        owner.send_signal(number)
        owner.wait(20)
    poll(lambda: not any(lives(pid) for pid in family) and not directory.exists())


def test_the_end_of_one_process_leaves_the_others(tmp_path: Path) -> None:
    processes = supervised_processes.Processes()
    try:
        env = {"PATH": "/usr/bin:/bin"}
        stubborn = processes.start("stubborn", ["sh", "-c", "trap '' TERM; sleep 600 & wait"], env, tmp_path / "log")
        quiet = processes.start("quiet", ["sleep", "600"], env, tmp_path / "log")
        broken = processes.start("broken", ["sh", "-c", "echo what happened; exit 3"], env, tmp_path / "log")
        poll(lambda: processes.dead())
        assert set(processes.dead()) == {"broken"}
        assert "ended with 3" in processes.dead()["broken"]
        assert "what happened" in processes.dead()["broken"]
        poll(lambda: len(processes.pids("stubborn")) == 2)
        family = processes.pids("stubborn")
        processes.end("stubborn", grace=0.2)
        assert not any(lives(pid) for pid in {stubborn, broken, *family})
        assert processes.pids() == {quiet}
    finally:
        processes.close()
    assert not lives(quiet)


def test_what_is_wrapped_is_searched(tmp_path: Path) -> None:
    key = Fernet.generate_key().decode()
    text = 'a "quoted" ünïcode needle'
    secret = Fernet(key).encrypt(f"{{{text}}}".encode())
    wrapped = {
        "plain": text.encode(),
        "json": b'{"a": "a \\"quoted\\" \\u00fcn\\u00efcode needle"}',
        "compressed": zlib.compress(b"x" * 100 + text.encode()),
        "encrypted": secret,
        "queued": b'{"body": "' + base64.b64encode(b"[[" + text.encode() * 3 + b"]]") + b'"}',
        "encrypted and compressed": zlib.compress(secret),
    }
    for name, data in wrapped.items():
        assert database_search.in_bytes(data, text, key), name
        assert not database_search.in_bytes(data, "another", key), name
    assert not database_search.in_bytes(secret, text, Fernet.generate_key().decode())
    (tmp_path / "a needle in a name").write_text("nothing")
    (tmp_path / "file").write_bytes(b"\xff\x00" + text.encode())
    assert len(database_search.in_files([tmp_path], "needle")) == 2

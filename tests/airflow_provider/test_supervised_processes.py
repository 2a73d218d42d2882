"""Tests of the helpers for processes and searches: no process outlives its owner, and a wrapped secret is found."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import airflow_lab
import database_search
import pytest
import supervised_processes
from airflow_lab import AirflowLab
from cryptography.fernet import Fernet
from supervised_processes import is_alive

pytestmark = pytest.mark.system


def poll(done: Callable[[], object], timeout: float = 120) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


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
        assert all(is_alive(pid) for pid in family)
        owner.send_signal(number)
        owner.wait(120)
    poll(lambda: not any(is_alive(pid) for pid in family) and not directory.exists())


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
        assert not any(is_alive(pid) for pid in {stubborn, broken, *family})
        assert processes.pids() == {quiet}
    finally:
        processes.close()
    assert not is_alive(quiet)


def test_a_scheduler_that_ended_by_a_race_of_airflow_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "test -e raced && exec sleep 600; touch raced; echo StaleDataError; exit 1"
    components = {"scheduler": ("-c", script), "triggerer": ("-c", "echo StaleDataError; exit 1")}
    monkeypatch.setattr(airflow_lab, "AIRFLOW", "sh")
    monkeypatch.setattr(AirflowLab, "components", lambda _: components)
    monkeypatch.setattr(AirflowLab, "_prepare", lambda _: None)
    monkeypatch.setattr(AirflowLab, "_healthy", lambda _: True)
    with AirflowLab(tmp_path, tmp_path) as lab:
        ended = lab.pid_of("scheduler")
        poll(lambda: "triggerer" in lab.dead() and lab.pid_of("scheduler") != ended)
        assert set(lab.dead()) == {"triggerer"}
        assert is_alive(lab.pid_of("scheduler"))


def test_wrapped_commands_are_searched(tmp_path: Path) -> None:
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

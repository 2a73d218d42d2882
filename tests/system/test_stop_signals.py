"""A load that gets a stop signal, once or twice, or whose parent dies, removes its staging and does not cancel its job.

Under `system` each signal is sent at some of the changes, under `nightly` at each.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from crash_lab import WEBLAKE, Lab
from failpoint_runs import important_points
from polling import until
from supervised_processes import is_alive
from tiers import part, swept

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

CODES = {"INT": 130, "TERM": 143, "HUP": 129}


def staging(root: Path) -> list[str]:
    return [path.name for path in (root / "_weblake/tmp").glob("*")]


@proves(
    "P9",
    at="src/weblake/cli/interrupts.py",
    line="            signal.signal(number, end)",
    becomes="            pass",
    case="TERM-part",
)
@swept(8)
@pytest.mark.parametrize("name", CODES)
def test_p9_a_load_stopped_at_a_change_drops_its_staging(lab: Lab, name: str, one_in: int) -> None:
    whole = lab.runs(lab.root("whole"), lab.batch(lab.root("whole"))).points
    # Without removals: the temporary file of a record may stay, and is removed with those of dead runs.
    points = [at for at in important_points(whole) if not whole[at - 1].startswith("os.remove")]
    chosen, started = part(points, one_in, seed=name), lab.starts()
    for at in chosen:
        root = lab.root(f"{name} {at}")
        interrupted_run = lab.runs(root, lab.batch(root), at, sent=getattr(signal, f"SIG{name}"))
        where = f"SIG{name} at {whole[at - 1]}"
        assert interrupted_run.code == CODES[name], f"{where}: exit {interrupted_run.code}: {interrupted_run.err}"
        assert "Traceback" not in interrupted_run.err, where
        assert "weblake: interrupted" in interrupted_run.err, where
        assert staging(root) == [], f"{where}: staging was left behind"
        lab.check_whole_or_absent(root, where)
        lab.repeat(lab.batch(root), root)
    assert lab.starts() - started == len(chosen)
    assert lab.service.counts().get("batch_scrape_cancelled", 0) == 0


@pytest.fixture
def held(lab: Lab) -> Lab:
    """Return a lab whose service delays its response to each poll of a job by half a minute, until `ended_well`."""
    hold(lab, 30)
    return lab


def hold(lab: Lab, seconds: int) -> None:
    effect = {"latency_ms": 1000 * seconds}
    lab.service.faults({"match": {"method": "GET", "path": "/v2/batch/scrape/.*"}, "times": None, "effect": effect})


def ended_well(lab: Lab, root: Path, job_id: str) -> None:
    """Assert that the job was not cancelled, and that the same command lands it."""
    lab.service.faults()
    assert lab.service.counts().get("batch_scrape_cancelled", 0) == 0
    assert lab.repeat(lab.batch(root), root)["job_id"] == job_id
    assert lab.starts() == 2  # the lab's own job, and this one


@proves(
    "P9",
    at="src/weblake/cli/interrupts.py",
    line='SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))',
    becomes="SIGNALS = (signal.SIGTERM,)",
    case="signals2-129",
)
@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGTERM,), 143), ((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGHUP,), 129)],
)
def test_p9_a_load_stopped_while_waiting_leaves_its_job(
    held: Lab, weblake_command: Any, signals: tuple[int, ...], code: int
) -> None:
    root = held.root("lake")
    process = weblake_command.start(*held.batch(root)[:-1])
    job_id = process.stderr.readline().split()[-1]  # recorded; the wait for it has begun
    for number in signals:
        process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err) == (code, False), err
    assert f"weblake cancel batch {job_id}" in err
    assert (
        len(signals) > 1 or staging(root) == []
    )  # the next test sends each second Ctrl-C at a point where it could do harm
    ended_well(held, root, job_id)


#: The command line, with a second Ctrl-C as soon as the first one has led to a call.
LATE = """
import os, shutil, signal, sys
from weblake import cli
from weblake.cli import landing
of, name = {of}, "{name}"
call, struck = getattr(of, name), []
def late(*given, **options):
    if not struck and {when}:
        struck.append(True)
        print("second", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGINT)
    return call(*given, **options)
setattr(of, name, late)
cli.main()
"""


@proves(
    "P9",
    at="src/weblake/cli/interrupts.py",
    line="            signal.signal(signal.SIGINT, _ignore)",
    becomes="            pass",
    case="how-to-go-on",
)
@proves(
    "P9",
    at="src/weblake/storage/scratch.py",
    line="        except BaseException:  # a second Ctrl-C",
    becomes="        except OSError:  #",
    case="staging",
)
@pytest.mark.parametrize(
    ("of", "name", "when"),
    [
        pytest.param("landing", "_interrupted_error", "True", id="how-to-go-on"),
        pytest.param("shutil", "rmtree", "'/_weblake/tmp/' in str(given[0])", id="staging"),
    ],
)
def test_p9_a_second_ctrl_c_stops_at_once(held: Lab, weblake_command: Any, of: str, name: str, when: str) -> None:
    root = held.root("lake")
    late = LATE.format(of=of, name=name, when=when)
    process = replace(weblake_command, program=("-c", late)).start(*held.batch(root)[:-1])
    job_id = process.stderr.readline().split()[-1]
    until(lambda: staging(root))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err, err.count("second")) == (130, False, 1), err
    assert f"weblake cancel batch {job_id}" in err
    assert staging(root) == []
    ended_well(held, root, job_id)


#: Starts a load with its own pipes, prints its process id and its job, and waits for it.
PARENT = """
import json, subprocess, sys
child = subprocess.Popen(json.loads(sys.argv[1]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
print(child.pid, child.stderr.readline().split()[-1], flush=True)
child.wait()
"""


def test_p9_a_load_whose_parent_dies_is_stopped(lab: Lab) -> None:
    """Its output is no longer read: it lands what was paid for, or ends with its staging removed."""
    hold(lab, 3)  # each poll, until the parent is dead
    root = lab.root("lake")
    command = [*WEBLAKE, *lab.batch(root)[:-1]]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps(command)], env=lab.env, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid, job_id = parent.stdout.readline().split()
        parent.kill()
    lab.service.faults()
    until(lambda: not is_alive(int(pid)))
    assert staging(root) == []
    lab.check_whole_or_absent(root)
    ended_well(lab, root, job_id)

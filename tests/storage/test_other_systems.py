"""Tests of a system without POSIX: datasets are read, and landing is refused before anything is paid or written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import weblake
from weblake.testing import WeblakeService, WeblakeSite

#: What Python has on Linux and not on Windows. Libraries that were built for Linux are loaded before.
_WINDOWS = """
import os, signal, sys
import httpx, numpy, pandas, pyarrow.dataset, pyarrow.parquet, rich, typer

for name in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in (
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_TMPFILE chown fchmod fork forkpty geteuid getpgid getuid killpg "
    "mkfifo nice pipe2 posix_fadvise pread pwrite register_at_fork sched_getaffinity setsid statvfs sync sysconf"
).split():
    if hasattr(os, name):
        delattr(os, name)
for name in (
    "ITIMER_REAL SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGUSR1 alarm pthread_kill pthread_sigmask setitimer sigwait"
).split():
    if hasattr(signal, name):
        delattr(signal, name)
"""
_PROGRAM = """
import json
import weblake
from weblake.errors import FeatureMissing

root, base_url, key = sys.argv[1:]
refusals = []

def refused(work):
    try:
        work()
    except FeatureMissing as error:
        refusals.append(str(error))

def embedded():
    os.environ["XDG_STATE_HOME"] = root + "-state"
    weblake.Client().list_activity()

with weblake.Client(base_url, key, insecure=True) as client:
    for to in (root, root + "-new", "memory://new"):
        refused(lambda: weblake.land_batch(["http://127.0.0.1:9/"], to=to, client=client))
refused(embedded)
rows = weblake.read(root).to_table().num_rows, len(weblake.read(root).to_pandas()), len(list(weblake.changes(root)))
sys.argv = ["weblake", "loads", root]
from weblake.cli import main
try:
    main()
except SystemExit as end:
    code = end.code or 0
import dagster_weblake
print(json.dumps([rows, refusals, code]))
"""


@pytest.mark.system
def test_windows_reads_and_refuses_to_land_before_anything_is_paid(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    with weblake_service.client() as client:
        landed = weblake.land_batch(weblake_site.urls()[:2], to=root, client=client)
    files, started = set(root.rglob("*")), weblake_service.counts()
    arguments = [str(root), weblake_service.url, weblake_service.key]
    program = [sys.executable, "-c", _WINDOWS + _PROGRAM, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows, refusals, code = json.loads(done.stdout.splitlines()[-1])
    assert (rows, code) == ([2, 2, 2], 0)
    assert landed.load_id in done.stdout
    assert len(refusals) == 4
    for each in refusals:
        assert "Linux and macOS only" in each
        assert "WSL" in each
    assert weblake_service.counts() == started
    assert set(root.rglob("*")) == files

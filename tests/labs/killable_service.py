"""Runs service_process.py: a service in a process that a test can kill and start again on the same database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

PROCESS = Path(__file__).parent / "service_process.py"


@contextmanager
def service_process(
    db: Path, log: Path, *, headers: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Yield a service process and a client of it; the process is killed at the end if it is alive.

    `log` is the file to which the process appends each requested page.
    """
    child = subprocess.Popen(
        [sys.executable, str(PROCESS), str(db), str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())["url"]
        with httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False, verify=False) as client:
            yield child, client
    finally:
        child.kill()
        child.wait(20)
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()

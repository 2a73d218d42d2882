"""Runs pytest on changed sources in forks of a process that has imported the large libraries already.

A run takes as long as its tests, without the seconds in which pyarrow and Dagster are imported. The process itself
never imports weblake: each fork imports it anew, from the sources that the run names.

    python tests/labs/forked_pytest.py        the process: reads one JSON request a line, writes one JSON response
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
#: What is put before the installed packages.
SOURCES = ("src", "airflow_provider/src", "dagster_resources/src")
#: Imported once; none of them reads the environment that tests set, which Airflow does.
LIBRARIES = ("pytest", "hypothesis", "pyarrow.parquet", "pyarrow.dataset", "httpx", "msgspec", "fsspec", "dagster")


@dataclass(frozen=True)
class Ended:
    """The exit code of a run of pytest, None after its deadline, and what it printed."""

    code: int | None
    output: str


class ForkedPytest:
    """A process that runs pytest in forks, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, sources: Path, arguments: Sequence[str], deadline_s: float) -> Ended:
        """Run pytest with the sources below a directory."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"sources": str(sources), "arguments": list(arguments), "deadline_s": deadline_s}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        response = json.loads(self._process.stdout.readline())
        return Ended(response["code"], response["output"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def __enter__(self) -> ForkedPytest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def linked_sources() -> Iterator[Path]:
    """Make a directory with hard links of all sources and their byte code.

    Replace a file there, never write into it: it is the file of the working tree.
    """
    with tempfile.TemporaryDirectory(prefix=".weblake-sources-", dir=REPOSITORY / ".venv") as directory:
        command = ["cp", "--archive", "--link", "--parents", *SOURCES, directory]
        subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
        yield Path(directory)


def _run_in_fork(sources: Path, arguments: Sequence[str], output: int) -> None:
    os.setsid()  # so that a run that does not end can be killed with its children
    os.dup2(output, 1)
    os.dup2(output, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    paths = [str(sources / source) for source in SOURCES]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(sources / "hypothesis")
    os.environ["COLUMNS"] = "500"  # the width of the line that says what failed
    import pytest

    code = int(pytest.main(list(arguments)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait(pid: int, deadline_s: float) -> int | None:
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], deadline_s)
    finally:
        os.close(descriptor)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    assert "weblake" not in sys.modules
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as output:
            pid = os.fork()
            if pid == 0:
                try:
                    _run_in_fork(Path(request["sources"]), request["arguments"], output.fileno())
                finally:
                    os._exit(70)
            code = _wait(pid, request["deadline_s"])
            output.seek(0)
            printed = output.read().decode(errors="replace")
        print(json.dumps({"code": code, "output": printed}), flush=True)


if __name__ == "__main__":
    main()

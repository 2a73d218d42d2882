"""Runs of a command under strace, which list the calls that change a directory, and cause a fault at any one of them.

A fault is aimed by the paths of the call (`-P`) and by its number among the calls of this name on these paths, so other
files of the process do not matter. strace kills before the kernel performs the call. `meant` says whether the intended
call was hit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Calls that can change a directory. `openat` counts only if it creates or truncates.
WATCHED = (
    *("open", "openat", "creat", "write", "writev", "pwrite64", "pwritev", "fsync", "fdatasync", "link", "linkat"),
    *("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "truncate", "ftruncate"),
    *("fallocate", "symlink", "symlinkat", "copy_file_range", "sendfile"),
)
_LINE = re.compile(r"^(\d+)\s+([a-z0-9_]+)\((.*)$")
_OPENS = {"open", "openat", "creat"}
_WRITES = {"write", "writev", "pwrite64", "pwritev"}

#: Skips a test without strace; `.ci/run` installs it.
traced = pytest.mark.skipif(shutil.which("strace") is None, reason="NOT PROVEN HERE: strace is not installed")


@dataclass(frozen=True)
class Call:
    """One call that changes something below a root."""

    name: str
    #: What it changes, below the root, without the parts that differ between roots.
    what: str
    #: The same, unchanged.
    paths: tuple[str, ...]
    #: Its number among the calls of this name in its thread that touch one of these paths.
    nth: int
    #: Whether the kernel performed it, and whether it failed.
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.name}#{self.nth} {self.what}"

    @property
    def plain(self) -> tuple[str, str]:
        return self.name, self.what

    def aim(self, root: Path, effect: str) -> list[str]:
        """Return strace's arguments that apply `effect` (such as `signal=KILL`) to this call of a run on a root."""
        paths = [part for path in self.paths for part in ("-P", f"{root}{path}")]
        return [*paths, "-e", f"inject={self.name}:{effect}:when={self.nth}"]


@dataclass(frozen=True)
class _Line:
    """One line of a trace that names a root."""

    thread: str
    name: str
    rest: str
    #: Paths below the root.
    paths: tuple[str, ...]

    @property
    def what(self) -> str:
        return " -> ".join(dict.fromkeys(map(_plain, self.paths)))


def _lines(trace: str, root: Path) -> Iterator[_Line]:
    for line in trace.splitlines():
        match = _LINE.match(line)
        # A successful open names its file twice: as requested and as returned.
        paths = re.findall(rf'[<"]{re.escape(str(root))}(/[^">]*|)[">]', match[3]) if match else []
        if match and paths:
            yield _Line(match[1], match[2], match[3], tuple(dict.fromkeys(paths)))


def changes(trace: str, root: Path) -> list[Call]:
    """Return the changing calls of a trace that concern a root, in order."""
    seen: list[_Line] = []
    found = []
    for line in _lines(trace, root):
        seen.append(line)
        if line.name not in _OPENS or "O_CREAT" in line.rest or "O_TRUNC" in line.rest:
            same = [each for each in seen if (each.thread, each.name) == (line.thread, line.name)]
            nth = sum(not set(line.paths).isdisjoint(each.paths) for each in same)
            failed = re.search(r"\) += -1 ", line.rest) is not None
            found.append(Call(line.name, line.what, line.paths, nth, failed))
    return found


def _plain(path: str) -> str:
    text = re.sub(r"\d+-[0-9a-f]{16}(\.part)?", lambda m: "PART" if m[1] else "STAGING", path)
    text = re.sub(r"=\d{4}-\d\d-\d\d", "=DAY", text)
    return re.sub(r"[0-9a-f]{16}", "ID", text) or "/"


def points(calls: Iterable[Call]) -> list[Call]:
    """Return where faults are caused: at every change; of the writes to one file at the first and the last."""
    calls = list(calls)
    kept = []
    for n, call in enumerate(calls):
        before = calls[n - 1].plain if n else None
        after = calls[n + 1].plain if n + 1 < len(calls) else None
        if call.name not in _WRITES or before != call.plain or after != call.plain:
            kept.append(call)
    return kept


def important_points(calls: Iterable[Call]) -> list[Call]:
    """Return the points of a sweep without opens: the kill before the first write leaves an empty file as well."""
    return [call for call in points(calls) if call.name not in _OPENS]


def only(calls: Iterable[Call], name: str, what: str) -> Call:
    """Return the only call of this name whose path ends with this text."""
    calls = list(calls)
    found = [call for call in calls if call.name == name and call.what.endswith(what)]
    assert len(found) == 1, f"{name} {what}: {[str(call) for call in found or calls]}"
    return found[0]


@dataclass(frozen=True)
class TracedRun:
    """The result of a traced run; `code` is negative for the signal that ended it."""

    code: int
    out: str
    err: str
    #: All calls of a run without faults; otherwise those on the paths of the intended call.
    changes: list[Call]
    trace: str
    root: Path

    def meant(self, call: Call) -> bool:
        """Return whether the intended call was hit."""
        named = [line.what for line in _lines(self.trace, self.root) if line.name == call.name]
        return named[call.nth - 1 : call.nth] == [call.what]


def run(
    command: Sequence[str],
    root: Path,
    log: Path,
    env: Mapping[str, str],
    inject: Sequence[str] = (),
    then: Callable[[subprocess.Popen[str]], object] | None = None,
) -> TracedRun:
    """Run a command under strace; `inject` is the result of `Call.aim`, and `then` runs meanwhile."""
    traced = ["strace", "-f", "-y", "-s", "8", "-o", str(log), "-e", f"trace={','.join(WATCHED)}", *inject]
    process = subprocess.Popen(
        [*traced, "--", *command],
        # Byte code is written by the first process that imports a module, and would shift the count.
        env={**os.environ, **env, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if then is not None:
            then(process)
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait(10)
    trace = log.read_text()
    return TracedRun(process.returncode, out, err, changes(trace, root), trace, root)


def each_of(calls: Sequence[Call], trial: Callable[[Call], None], at_once: int = 2) -> list[str]:
    """Run a trial for each call, some at a time, and return the failures."""

    def one(call: Call) -> str:
        try:
            trial(call)
        except AssertionError as error:
            return f"{call}: {error}"
        return ""

    with ThreadPoolExecutor(at_once) as pool:
        return [failure for failure in pool.map(one, calls) if failure]

"""Runs a command under strace: lists the calls by which it changes a directory, and strikes it at any one of them.

`when=N` of an injection counts the calls of one name in one thread, from the first of the process. So a plan is traced
once, and a struck run must have made the very same changes up to the call that was meant: `prefix` says so or fails.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

#: What can change a directory. `openat` counts only where it creates or truncates.
WATCHED = (
    *("open", "openat", "creat", "write", "writev", "pwrite64", "pwritev", "fsync", "fdatasync", "link", "linkat"),
    *("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "truncate", "ftruncate"),
    *("fallocate", "symlink", "symlinkat", "copy_file_range", "sendfile"),
)
_LINE = re.compile(r"^(\d+)\s+([a-z0-9_]+)\((.*)$")
_OPENS = {"open", "openat", "creat"}
_WRITES = {"write", "writev", "pwrite64", "pwritev"}


@dataclass(frozen=True)
class Call:
    """One call that changes something below a root."""

    name: str
    #: Its number among the calls of this name in its thread.
    nth: int
    #: What it touches, below the root, without what differs from run to run.
    what: str
    #: Whether the kernel did it, and it failed.
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.name}#{self.nth} {self.what}"

    @property
    def plain(self) -> tuple[str, str]:
        return self.name, self.what


def changes(trace: str, root: Path) -> list[Call]:
    """The changing calls of a trace that touch a root, in their order."""
    counted: Counter[tuple[str, str]] = Counter()
    found = []
    for line in trace.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        thread, name, rest = match.groups()
        counted[thread, name] += 1
        paths = re.findall(rf'[<"]{re.escape(str(root))}(/[^">]*|)[">]', rest)
        if paths and (name not in _OPENS or "O_CREAT" in rest or "O_TRUNC" in rest):
            failed = re.search(r"\) += -1 ", rest) is not None
            # An open that succeeds names its file twice: as what was asked for and as what was returned.
            plain = dict.fromkeys(map(_plain, paths))
            found.append(Call(name, counted[thread, name], " -> ".join(plain), failed))
    return found


def _plain(path: str) -> str:
    text = re.sub(r"\d+-[0-9a-f]{16}(\.part)?", lambda m: "PART" if m[1] else "STAGING", path)
    text = re.sub(r"=\d{4}-\d\d-\d\d", "=DAY", text)
    return re.sub(r"[0-9a-f]{16}", "ID", text) or "/"


def points(calls: Iterable[Call]) -> list[Call]:
    """Where to strike: at every change, of the writes to one file at the first and the last."""
    calls = list(calls)
    kept = []
    for n, call in enumerate(calls):
        before = calls[n - 1].plain if n else None
        after = calls[n + 1].plain if n + 1 < len(calls) else None
        if call.name not in _WRITES or before != call.plain or after != call.plain:
            kept.append(call)
    return kept


@dataclass(frozen=True)
class Struck:
    """How a traced run ended. `code` is negative for the signal that ended it."""

    code: int
    out: str
    err: str
    changes: list[Call]
    trace: str


def run(command: Sequence[str], root: Path, log: Path, env: Mapping[str, str], strike: str = "") -> Struck:
    """Runs a command under strace; `strike` is an injection such as `link:signal=KILL:when=3`."""
    traced = ["strace", "-f", "-y", "-s", "8", "-o", str(log), "-e", f"trace={','.join(WATCHED)}"]
    if strike:
        traced += ["-e", f"inject={strike}"]
    ended = subprocess.run(
        [*traced, "--", *command],
        # Byte code is written by whoever comes first, and would shift the count.
        env={**os.environ, **env, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        # A runner in the background has SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    trace = log.read_text()
    return Struck(ended.returncode, ended.stdout, ended.stderr, changes(trace, root), trace)


def prefix(struck: Struck, whole: Sequence[Call], call: Call) -> None:
    """Asserts that a struck run did what the traced one did, up to the call that was meant."""
    at = whole.index(call)
    did, meant = [each.plain for each in struck.changes], [each.plain for each in whole]
    assert did[:at] == meant[:at], f"the run went another way before {call}"
    assert len(did) <= at or did[at] == call.plain, f"{call} was not what was struck"


def as_meant(struck: Struck, whole: Sequence[Call], call: Call) -> bool:
    """Whether a struck run did what the traced one did, up to the call that was meant."""
    try:
        prefix(struck, whole, call)
    except AssertionError:
        return False
    return True


def each_of(calls: Sequence[Call], trial: Callable[[Call], None], at_once: int = 2) -> list[str]:
    """Runs a trial for each call, some at a time, and returns what failed."""

    def one(call: Call) -> str:
        try:
            trial(call)
        except AssertionError as error:
            return f"{call}: {error}"
        return ""

    with ThreadPoolExecutor(at_once) as pool:
        return [failure for failure in pool.map(one, calls) if failure]

"""A soak: the embedded service, a site and one landing client as separate processes, measured from outside.

Faults affect one request in twenty, all the time. Between two rounds nothing is in progress, so what is held then was
left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from unittest import mock

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake.testing.process import WeblakeServiceProcess
from weblake.testing.webhooks import SECRET

#: The share of requests of each fault; one in twenty together.
FAULTS: list[tuple[float, dict[str, object]]] = [
    (0.020, {"status": 503}),
    (0.010, {"status": 429, "retry_after": 0}),
    (0.008, {"drop_after": True}),
    (0.006, {"drop_before": True}),
    (0.006, {"truncate": 30}),
]
#: The number of loads of a small round, and the interval of rounds with a very large batch.
LOADS, HUGE_EVERY = 20, 3
#: Makes allocators return freed memory. What they cache per thread by default is no leak, and would hide one.
GIVEN_BACK = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "262144",
    "MALLOC_TRIM_THRESHOLD_": "262144",
}
#: The longest time in seconds of one round on a busy machine.
_PATIENCE = 600.0


@dataclass(frozen=True)
class ProcessResources:
    """What a process holds at one time."""

    #: Private memory in bytes. A share of file pages (PSS) would rise when another process that uses Arrow ends.
    own_kb: int
    sockets: int
    files: int
    threads: int

    @classmethod
    def of_process(cls, pid: int) -> ProcessResources:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        open_ones = [_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        sockets = sum(each.startswith("socket:") for each in open_ones)
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return cls(int(rollup.partition("\nAnonymous:")[2].split()[0]), sockets, len(open_ones) - sockets, threads)


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:  # closed meanwhile
        return ""


@dataclass(frozen=True)
class Measurement:
    """Both processes after a round, and the remaining files."""

    round: int
    loads: int
    client: ProcessResources
    service: ProcessResources
    #: Entries of the directory for temporary files, and of `_weblake/tmp`.
    temporary: int
    staging_files: int
    #: Live Python objects of the client.
    objects: int

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass
class Soak:
    """The running processes, and the measurements."""

    service: WeblakeServiceProcess
    client: subprocess.Popen[str]
    root: Path
    temporary: Path
    measurements: list[Measurement] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    def round(self, loads: int = LOADS, *, huge: bool = False) -> Measurement:
        """Run one round and measure what is left of it."""
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        self.client.stdin.write(json.dumps({"loads": loads, "huge": huge}) + "\n")
        self.client.stdin.flush()
        late = threading.Timer(_PATIENCE, self.client.kill)
        late.start()
        line = self.client.stdout.readline()
        late.cancel()
        assert line, "the client ended"
        self.totals = json.loads(line)
        assert self.service.pid is not None
        staging_files = self.root / "_weblake" / "tmp"
        measurement = Measurement(
            len(self.measurements),
            self.totals["loads"],
            ProcessResources.of_process(self.client.pid),
            ProcessResources.of_process(self.service.pid),
            len(list(self.temporary.iterdir())),
            len(list(staging_files.iterdir())) if staging_files.is_dir() else 0,
            self.totals.pop("objects"),
        )
        self.measurements.append(measurement)
        return measurement


def answer(asked: LoopbackRequest) -> LoopbackResponse:
    """/p/NAME and /s/NAME are small pages, /b/NAME is one of 100 KB, /c/NAME/ the home page of a site of six."""
    kind, _, name = asked.path.strip("/").partition("/")
    if kind not in ("p", "s", "b", "c"):
        return LoopbackResponse(404, headers={"Content-Type": "text/html; charset=utf-8"})
    words = f"The page {name} says what it is called. " * (2500 if kind == "b" else 12)
    links = "".join(f'<a href="/c/{name}/{n}">{n}</a>' for n in range(5)) if kind == "c" and "/" not in name else ""
    html = f"<title>{name}</title><main><h1>{name}</h1><p>{words}</p>{links}</main>"
    return LoopbackResponse(200, html.encode(), {"Content-Type": "text/html; charset=utf-8"})


@contextmanager
def running_soak(directory: Path) -> Iterator[Soak]:
    """Start the three processes, and end them."""
    temporary = directory / "temporary"
    for each in (temporary, directory / "service"):
        each.mkdir()
    root = directory / "lake"
    config = {"seed": 1, "webhook_secret": SECRET}
    env = os.environ | {"TMPDIR": str(temporary)} | GIVEN_BACK
    with mock.patch.dict(os.environ, env), WeblakeServiceProcess(directory / "service", config) as service:
        add_faults(service)
        with child("soak_lab.py", env) as site, child("soak_client.py", env) as client:
            assert site.stdout is not None
            assert client.stdin is not None
            asked = {"url": service.url, "key": service.key, "site": site.stdout.readline().strip()}
            client.stdin.write(json.dumps(asked | {"root": str(root), "secret": SECRET}) + "\n")
            client.stdin.flush()
            yield Soak(service, client, root, temporary)


def add_faults(service: WeblakeServiceProcess) -> None:
    for seed, (share, effect) in enumerate(FAULTS):
        service.faults.add(path="^/v2/", probability=share, times=None, seed=seed, **effect)
    # Faults for pages of batches only: a single scrape that fails is repeated, and that is another start.
    service.faults.add(fail_page=True, path="/p/", probability=0.02, times=None, seed=100)
    service.faults.add(duplicate_webhook=True, event="completed", probability=0.1, times=None, seed=101)


@contextmanager
def child(program: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a program that ends when its standard input is closed."""
    command = [sys.executable, str(Path(__file__).with_name(program))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield process
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Serve the site and print its URL, until standard input is closed."""
    with LoopbackServer(answer) as site:
        print(site.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

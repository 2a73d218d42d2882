"""Every pair of crashes: a batch is killed at one change, and its repeat at another.

    uv run python tests/system/crash_pairs.py                 all pairs, by failpoints (no strace is needed)
    uv run python tests/system/crash_pairs.py --seed 6 --only 40
    uv run python tests/system/crash_pairs.py --done FILE     resumes an earlier run with this file

The repeat is traced after each first crash, because its calls differ from those of the first run. After the second
crash only a complete load may be visible, and a third run must land it: its documents once, with one start.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path

from crash_lab import Lab, crash_lab
from failpoint_runs import Runs, every, failpoint_runs

from weblake_service.server import LocalService

Pair = tuple[int, int]


@dataclass
class Pairs:
    """The crash pairs of one kind of run."""

    lab: Lab
    runs: Runs
    #: The first points that were traced, and the points of the repeat after each.
    reruns: dict[int, list[str]]

    def plan(self) -> list[str]:
        """Return the points of a run without faults."""
        root = self.lab.root("unharmed")
        ran = self.runs(root, self.lab.batch(root))
        assert ran.code == 0, ran.err
        return ran.points

    def second(self, first: int) -> list[str]:
        """Return the points of the run after one that was killed at this point."""
        if first not in self.reruns:
            root = self.killed_once(first)
            ran = self.runs(root, self.lab.batch(root))
            assert ran.code == 0, ran.err
            self.reruns[first] = ran.points
        return self.reruns[first]

    def killed_once(self, first: int) -> Path:
        """Return a new root after a run that was killed at this point."""
        root = self.lab.root(f"pair {first} {next(self.runs.count)}")
        assert self.runs(root, self.lab.batch(root), first).killed, f"point {first} was not reached"
        return root

    def trial(self, pair: Pair) -> None:
        """Kill a run and its repeat, check the root after each, and run it again."""
        first, second = pair
        started, root = self.lab.starts(), self.killed_once(first)
        seen = self.lab.check_whole_or_absent(root, f"after {pair}")
        ran = self.runs(root, self.lab.batch(root), second)
        assert ran.killed, f"{pair}: the second point was not reached: {ran.err}"
        assert ran.points == self.second(first)[:second], f"{pair}: the repeat made other changes"
        assert self.lab.check_whole_or_absent(root, f"after {pair}") >= seen, f"{pair}: a published load is gone"
        self.runs.repeat(self.lab, root, self.lab.batch(root))
        assert self.lab.starts() - started == 1, f"{pair}: paid {self.lab.starts() - started} times"
        shutil.rmtree(root)

    def some(self, count: int, seed: str) -> list[Pair]:
        """Return a seeded selection of pairs, so that only the selected first crashes are traced."""
        choice, firsts = random.Random(seed), every(self.plan())
        found: list[Pair] = []
        while len(found) < count:
            first = choice.choice(firsts)
            seconds = every(self.second(first))
            found += (
                [(first, choice.choice(seconds))] if seconds else []
            )  # after the last point there is nothing left to do
        return found

    def all(self) -> Iterator[Pair]:
        for first in every(self.plan()):
            for second in every(self.second(first)):
                yield first, second


@contextmanager
def pairs_lab() -> Iterator[Pairs]:
    """Yield the pairs with a service, a site and a directory."""
    from conftest import CANARY, Site

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    site.daemon_threads = True
    threading.Thread(target=site.serve_forever, args=(0.05,), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="weblake-pairs-") as directory:
        tmp = Path(directory)
        with LocalService(tmp / "service.db", keys=CANARY) as service:
            env = {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": service.key, "NO_COLOR": "1"}
            with (
                crash_lab(service, f"http://127.0.0.1:{site.server_port}", env, tmp) as lab,
                failpoint_runs(lab.env, tmp) as runs,
            ):
                yield Pairs(lab, runs, {})
    site.shutdown()
    site.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, metavar="N", help="a choice of so many pairs")
    parser.add_argument("--seed", default="6", help="the seed of that choice")
    parser.add_argument("--done", type=Path, metavar="FILE", help="where pairs that held are kept, one a line")
    args = parser.parse_args()
    done: set[Pair] = set()
    if args.done is not None and args.done.exists():
        done = {(int(a), int(b)) for a, b in map(str.split, args.done.read_text().splitlines())}
    begun, tried, broken = time.monotonic(), 0, 0
    with pairs_lab() as pairs, suppress(KeyboardInterrupt):
        for pair in pairs.some(args.only, args.seed) if args.only else pairs.all():
            if pair in done:
                continue
            tried += 1
            try:
                pairs.trial(pair)
            except AssertionError as error:
                broken += 1
                print(f"BROKEN {pair}: {error}", flush=True)
                continue
            if args.done is not None:
                with args.done.open("a") as file:
                    file.write(f"{pair[0]} {pair[1]}\n")
            if tried % 25 == 0:
                print(f"{tried} pairs, {broken} broken, last {pair}, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{tried} pairs tried and {len(done)} before; {broken} broken; {time.monotonic() - begun:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes the one-line change of each proof in a copy of the sources, and checks that its test fails.

    uv run python tests/sabotage.py              every proof
    uv run python tests/sabotage.py H8 P5 1.2    some of them
    uv run python tests/sabotage.py --tenth 3    a tenth of them, each of 0 to 9 another one; 13, 23, … in another order
    uv run python tests/sabotage.py --seconds 90 starts no further one after so many seconds
    uv run python tests/sabotage.py --list       which test proves what, and by which change

Each test first has to pass without its change: a test that fails anyway shows nothing. A proof whose test passes under
its change is named, and the command ends with 1. The working tree is never changed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).parent / "labs"))
from catalogue import FAULTS, REPOSITORY, Proof, proofs
from forked_pytest import ForkedPytest, linked_sources

#: Changes that are tried at a time.
WORKERS = 2
#: Seconds for one run of pytest.
DEADLINE_S = 900.0
#: Seconds that a test may take longer under its change, which lets some run on: three times as long, and these.
CHANGED_DEADLINE_S = 30.0
ARGUMENTS = (
    "-q",
    "-m",
    "",
    "-n",
    "0",
    "-x",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "--tb=short",
    "--disable-warnings",
)
#: Shuffles the proofs before they are divided into tenths, so that each tenth has proofs of all parts.
SEED = 20261125


def reason(output: str) -> str:
    """The line in which a run of pytest says what failed."""
    told = re.findall(r"^(?:FAILED|ERROR) \S+(?:\[.*?\])?(?: at \w+ of \S+)? - (.+)$", output, re.MULTILINE)
    return str(told[0]) if told else next((line for line in output.splitlines() if line.startswith("E  ")), "")


def fails(proof: Proof, pytest: ForkedPytest) -> tuple[bool, str]:
    """Return whether a test passes without its change and fails under it, and what it reports."""
    with linked_sources() as copy:
        started = time.monotonic()
        ended = pytest.run(copy, [*ARGUMENTS, proof.node], DEADLINE_S)
        deadline_s = CHANGED_DEADLINE_S + 3 * (time.monotonic() - started)
        if ended.code != 0:
            return False, f"it does not pass without the change: {ended.output[-1500:]}"
        changed = copy / proof.at
        text = proof.sabotaged(changed.read_text())
        changed.unlink()  # a hard link: the file of the working tree stays
        changed.write_text(text)
        # A property test gets all its examples: it ends at the first that fails.
        ended = pytest.run(copy, [*ARGUMENTS, "--hypothesis-profile=nightly", proof.node], deadline_s)
    if ended.code is None:
        return True, f"it does not end in {deadline_s:.0f} s"
    if ended.code == 1:
        return True, reason(ended.output)
    # 0 means passed; 2 to 5 mean that the test could not be imported or found, which proves nothing.
    return False, "it passes under the change" if ended.code == 0 else ended.output[-1500:]


def in_tenth(chosen: Sequence[Proof], number: int) -> list[Proof]:
    """Return one of ten disjoint parts of the proofs; its order depends on the number, too."""
    shuffled = list(chosen)
    random.Random(SEED).shuffle(shuffled)
    part = shuffled[number % 10 :: 10]
    random.Random(number).shuffle(part)
    return part


def listed(chosen: Sequence[Proof]) -> None:
    for proof in chosen:
        print(f"{proof.number:5} {FAULTS.get(proof.number, 'docs/development/promises.md')}\n      {proof.node}")
        print(f"      {proof.at}: {proof.line.strip()}  ->  {proof.becomes.strip()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="rows of the catalogue, sentences of promises.md")
    parser.add_argument("--tenth", type=int, metavar="N", help="a tenth of them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further one after this time")
    parser.add_argument("--list", action="store_true", help="show what would be changed, and change nothing")
    parser.add_argument("--in", dest="within", default="", metavar="PATH", help="only tests below such a path")
    parser.add_argument("--not-in", action="append", default=[], metavar="PATH", help="none below such a path")
    args = parser.parse_args()
    chosen = [proof for proof in proofs() if not args.numbers or proof.number in args.numbers]
    chosen = [proof for proof in chosen if args.within in proof.file]
    chosen = [proof for proof in chosen if not any(path in proof.file for path in args.not_in)]
    if args.tenth is not None:
        chosen = in_tenth(chosen, args.tenth)
    if not chosen:
        print("No proof has such a number.", file=sys.stderr)
        return 2
    if args.list:
        listed(chosen)
        return 0
    for proof in chosen:
        proof.sabotaged((REPOSITORY / proof.at).read_text())  # before anything takes its time
    started, survived, left = time.monotonic(), 0, 0
    idle: SimpleQueue[ForkedPytest] = SimpleQueue()

    def checked(proof: Proof) -> tuple[bool, str] | None:
        if time.monotonic() - started > args.seconds:
            return None
        pytest = idle.get()
        try:
            return fails(proof, pytest)
        finally:
            idle.put(pytest)

    with ForkedPytest() as first, ForkedPytest() as second, ThreadPoolExecutor(WORKERS) as pool:
        idle.put(first)
        idle.put(second)
        for proof, result in zip(chosen, pool.map(checked, chosen), strict=True):
            if result is None:
                left += 1
                continue
            failed, report = result
            survived += not failed
            print(f"{proof.number:5} {'fails' if failed else 'PASSES':6} {proof.test}: {report[:400]}", flush=True)
    seconds = time.monotonic() - started
    tried = len(chosen) - left
    rest = f"; {left} were not tried, for want of time" if left else ""
    print(f"{tried - survived} of {tried} changes made their test fail, in {seconds:.0f} s{rest}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())

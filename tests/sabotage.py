"""Makes the one-line change of each proof in a copy of the sources, and checks that its test fails.

    uv run python tests/sabotage.py              every proof
    uv run python tests/sabotage.py H8 P5 1.2    some of them
    uv run python tests/sabotage.py --list       which test proves what, and by which change
    uv run python tests/sabotage.py --write      the same as docs/fault-catalogue.md

First all the tests run on an unchanged copy and must pass, because a test that fails anyway proves nothing. A proof
whose test passes under its change is named, and the command ends with 1. The working tree is never changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "labs"))
from catalogue import FAULTS, REPOSITORY, Proof, page, proofs

#: The folders that are copied, and put before the installed packages.
SOURCES = ("src", "airflow_provider/src", "dagster_resources/src")
#: The number of changes that are tried at the same time.
AT_ONCE = 2
#: Seconds for one run of pytest.
PATIENCE = 900


def pytest_on(copy: Path, nodes: Sequence[str], *more: str) -> subprocess.CompletedProcess[str]:
    """Run tests on a copy of the sources."""
    path = os.pathsep.join(str(copy / source) for source in SOURCES)
    env = os.environ | {"PYTHONPATH": path, "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / "hypothesis")}
    env["COLUMNS"] = "500"  # the width of the line that reports a failure
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:randomly", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--tb=short", *more, *nodes],
        cwd=REPOSITORY,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def copied(to: Path) -> Path:
    """Copy the sources to a directory; byte code stays valid for unchanged files."""
    for source in SOURCES:
        shutil.copytree(REPOSITORY / source, to / source)
    return to


def reason(output: str) -> str:
    """Return the line in which a run of pytest reports a failure."""
    told = re.findall(r"^(?:FAILED|ERROR) \S+(?:\[.*?\])?(?: at \w+ of \S+)? - (.+)$", output, re.MULTILINE)
    return str(told[0]) if told else next((line for line in output.splitlines() if line.startswith("E  ")), "")


def red(proof: Proof) -> tuple[bool, str]:
    """Return whether a test fails under its change, and its message."""
    with tempfile.TemporaryDirectory(prefix="weblake-sabotage-") as directory:
        copy = copied(Path(directory))
        changed = copy / proof.at
        changed.write_text(proof.sabotaged(changed.read_text()))
        try:
            ended = pytest_on(copy, [proof.node], "-n", "0", "-x")
        except subprocess.TimeoutExpired:
            return False, f"it did not end in {PATIENCE} s"
    if ended.returncode == 1:
        return True, reason(ended.stdout)
    # 0: the test passed; 2 to 5: the test itself cannot be imported or found, which proves nothing.
    return False, "it stayed green" if ended.returncode == 0 else ended.stdout[-1500:] + ended.stderr[-500:]


def listed(chosen: Sequence[Proof]) -> None:
    for proof in chosen:
        print(f"{proof.number:5} {FAULTS.get(proof.number, 'docs/promise.md')}\n      {proof.node}")
        print(f"      {proof.at}: {proof.line.strip()}  ->  {proof.becomes.strip()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="rows of the catalogue, sentences of promise.md")
    parser.add_argument("--list", action="store_true", help="show what would be changed, and change nothing")
    parser.add_argument("--in", dest="within", default="", metavar="PATH", help="only tests below such a path")
    parser.add_argument("--not-in", default="", metavar="PATH", help="none below such a path")
    parser.add_argument("--write", action="store_true", help="make docs/fault-catalogue.md anew, and change nothing")
    args = parser.parse_args()
    if args.write:
        (REPOSITORY / "docs/fault-catalogue.md").write_text(page(proofs()))
        return 0
    chosen = [proof for proof in proofs() if not args.numbers or proof.number in args.numbers]
    chosen = [proof for proof in chosen if args.within in proof.file]
    chosen = [proof for proof in chosen if not args.not_in or args.not_in not in proof.file]
    if not chosen:
        print("No proof has such a number.", file=sys.stderr)
        return 2
    if args.list:
        listed(chosen)
        return 0
    for proof in chosen:
        proof.sabotaged((REPOSITORY / proof.at).read_text())  # fails early on a line that does not occur
    with tempfile.TemporaryDirectory(prefix="weblake-unharmed-") as directory:
        unharmed = pytest_on(copied(Path(directory)), list(dict.fromkeys(proof.node for proof in chosen)))
    if unharmed.returncode:
        print(unharmed.stdout[-4000:] + unharmed.stderr[-1000:])
        print("Red without any change: nothing can be shown.", file=sys.stderr)
        return 1
    print(f"unharmed: {unharmed.stdout.strip().splitlines()[-1]}", flush=True)
    begun, green = time.monotonic(), 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for proof, (is_red, told) in zip(chosen, pool.map(red, chosen), strict=True):
            green += not is_red
            print(f"{proof.number:5} {'red' if is_red else 'GREEN':5} {proof.test}: {told[:400]}", flush=True)
    print(f"{len(chosen) - green} of {len(chosen)} changes turned their test red in {time.monotonic() - begun:.0f} s")
    return 1 if green else 0


if __name__ == "__main__":
    sys.exit(main())

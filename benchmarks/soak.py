"""An hour's worth of jobs, with faults in one of twenty requests: what is left behind, and whether it adds up.

    uv run python benchmarks/soak.py --minutes 10
    uv run python benchmarks/soak.py --minutes 60 --table     the lines of docs/development/soak.md

The embedded service, a site and one client are a process each. The client lands batches, crawls, single pages, jobs
that were started before and are told of by webhooks, and now and then a huge batch; on six threads and an event loop.
After each round of loads both are measured from outside. The command ends with 1 where something grew or is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("system", "labs")]

from soak_accounting import check_counts, growth  # noqa: E402
from soak_lab import HUGE_EVERY, LOADS, Measurement, ProcessResources, running_soak  # noqa: E402

HELD = "sockets | files | threads"
HEAD = f"| round | loads | objects | client MB | {HELD} | service MB | {HELD} | temporary |"


def line(each: Measurement) -> str:
    """One row of the table."""

    def held(by: ProcessResources) -> str:
        return f"{by.own_kb / 1024:.1f} | {by.sockets} | {by.files} | {by.threads}"

    left = each.temporary + each.staging_files
    return f"| {each.round + 1} | {each.loads} | {each.objects} | {held(each.client)} | {held(each.service)} | {left} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--loads", type=int, default=LOADS, help="loads of one round")
    parser.add_argument(
        "--table", action="store_true", help="print the first, middle and last round as in docs/development/soak.md"
    )
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weblake-soak-") as directory, running_soak(Path(directory)) as soak:
        print(HEAD, flush=True)
        while len(soak.measurements) < 3 or time.monotonic() - begun < 60 * args.minutes:
            print(line(soak.round(args.loads, huge=len(soak.measurements) % HUGE_EVERY == HUGE_EVERY - 1)), flush=True)
        taken = time.monotonic() - begun
        struck = soak.service.faults.rules()
        requests = sum(rule["hit"] for rule in struck)
        counts = check_counts(soak)
        sizes = [(soak.root, "lake"), (Path(directory, "service"), "database")]
        counts |= {
            f"{name} MB": round(sum(f.stat().st_size for f in at.rglob("*") if f.is_file()) / 1e6) for at, name in sizes
        }
    grown = growth(soak.measurements)
    print(f"\n{taken:.0f} s, load average {os.getloadavg()[1]:.1f}; {counts}; {requests} faults")
    if args.table:
        measurements = soak.measurements
        print(
            "\n".join(
                [HEAD, *(line(measurements[n]) for n in (len(measurements) // 3, 2 * len(measurements) // 3, -1))]
            )
        )
    print("\n".join(grown) or "Nothing grew.")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())

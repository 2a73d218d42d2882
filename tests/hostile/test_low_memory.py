"""A landing with too little memory lands, or fails with a reason, and no partial load is visible."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import proves
from landing_commands import KEY, published, rows
from scripted_job import JOB, Job, page
from scripted_service import ScriptedService

pytestmark = pytest.mark.system

#: Lands with so many megabytes of address space beyond what the process has after its imports.
CAPPED = """
import contextlib, io, resource, sys
import pyarrow as pa, pyarrow.compute, pyarrow.parquet
import weblake.landing, weblake.loads.load
from weblake import cli
from weblake.cli import landing
megabytes, *words = sys.argv[1:]
sys.argv[1:] = ["land", "batch", "--help"]  # imports what a command line needs: imports may die as they like
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    cli.main()
sys.argv[1:] = words
pa.set_cpu_count(1)
pa.set_io_thread_count(1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, [used + (int(megabytes) << 20)] * 2)
cli.main()
"""
TEXT = "word " * 600_000
COUNT = 16
#: A chunk has 9 MB: from less than one chunk to plenty, in steps that exhaust memory at each stage of a landing.
CAPS = (*range(10, 100, 12), 512)


def land(service: ScriptedService, root: Path, megabytes: int) -> subprocess.CompletedProcess[str]:
    command = ["land", "batch", JOB, "--to", str(root), "--json", "--timeout", "60"]
    env = os.environ | {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": KEY, "NO_COLOR": "1"}
    env["MALLOC_ARENA_MAX"] = "1"
    return subprocess.run(
        [sys.executable, "-c", CAPPED, str(megabytes), *command], env=env, capture_output=True, text=True, timeout=120
    )


@proves(
    "P12",
    at="src/weblake/cli/__init__.py",
    line="    except (MemoryError, RuntimeError, OSError) as error:",
    becomes="    except (RuntimeError, OSError) as error:",
)
def test_p12_with_little_memory_a_load_lands_or_fails_with_a_reason(service: ScriptedService, tmp_path: Path) -> None:
    documents = [page(n, markdown=f"{n} {TEXT}") for n in range(COUNT)]
    Job(service, documents, cut=3)
    root = tmp_path / "lake"
    codes = []
    for megabytes in CAPS:
        ended = land(service, root, megabytes)
        codes.append(ended.returncode)
        if ended.returncode:
            assert ended.returncode == 1, f"with {megabytes} MB: {ended.stderr[-500:]}"
            assert len(ended.stderr.strip().splitlines()) == 1, f"with {megabytes} MB: {ended.stderr[-500:]}"
            error = json.loads(ended.stdout)["error"]
            assert error["hint"], f"with {megabytes} MB: {error}"
            assert published(root) == [], f"with {megabytes} MB something is visible"
    assert codes[0] == 1, "the smallest size was enough: this proves nothing"
    assert codes[-1] == 0, "the largest size was not enough"
    assert [markdown for _, markdown in rows(root)] == sorted(each["markdown"] for each in documents)


#: Builds a column of sixteen texts of 3 MB, with so many megabytes of address space beyond what the process has.
COLUMN = """
import resource, sys
import pyarrow as pa
from weblake.arrow import arrays
texts = ["word " * 600_000 for _ in range(16)]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, [used + (int(sys.argv[1]) << 20)] * 2)
try:
    print(len(arrays.column(pa.string(), texts)))
except MemoryError as error:
    print(error)
"""


@proves(
    "P12",
    at="src/weblake/arrow/arrays.py",
    line="    if len(built) != len(values):",
    becomes="    if False:",
    case="30",
)
@pytest.mark.parametrize("megabytes", [20, 30])
def test_p12_a_column_without_memory_for_all_its_texts_is_an_error(megabytes: int) -> None:
    """Arrow's builder returns the texts for which it had memory, without an error."""
    ended = subprocess.run(
        [sys.executable, "-c", COLUMN, str(megabytes)],
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.fullmatch(r"\d+ of 16 values of a column are missing\n", ended.stdout), (ended.stdout, ended.stderr)

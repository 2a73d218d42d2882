"""A column for which there was not enough memory is an error, and not a shorter column."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from catalogue import proves

pytestmark = pytest.mark.system

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

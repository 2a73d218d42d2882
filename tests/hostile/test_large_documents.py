"""Documents of 10 and 100 MB land completely, and memory holds one of them, never the whole job."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from catalogue import proves
from landing_commands import PEAKS, Lake, published
from scripted_job import JOB, Job, page
from scripted_service import Play, ReceivedRequest, ScriptedService, each, reply

pytestmark = pytest.mark.system

#: Memory in KB of a command that has done nothing, with pyarrow imported; a generous bound.
BASE = 200_000


def text(n: int, megabytes: int) -> str:
    """Return document N; all differ, and are fast to make."""
    return f"{n:09d} " * (megabytes * 100_000)


def told(service: ScriptedService, sizes: list[int]) -> None:
    """Make a job with documents of so many megabytes, each in its own chunk, made when it is requested."""
    job = Job(service, [{}] * len(sizes), cut=1)

    def play(seen: ReceivedRequest) -> Play:
        skip = int(found[1]) if (found := re.search(r"skip=(\d+)", seen.query)) else 0
        return reply(job.chunks[skip] | {"data": [page(skip, markdown=text(skip, sizes[skip]))]})

    for skip in job.chunks:
        service.on(job.at(skip), each(play))


def landed(root: Path, sizes: list[int]) -> None:
    """Assert that each document is stored unchanged, without holding all of them."""
    (file,) = published(root)
    rows = duckdb.connect().execute(
        "select position, length(markdown), md5(markdown) from read_parquet(?) order by position", [str(file)]
    )
    expected = duckdb.connect()
    for n, (position, length, digest) in enumerate(rows.fetchall()):
        assert (position, length) == (n, sizes[n] * 1_000_000)
        assert expected.execute("select md5(?)", [text(n, sizes[n])]).fetchone() == (digest,)
    with pq.ParquetFile(file) as parquet:
        assert parquet.metadata.num_rows == len(sizes)
        # 32-bit offsets end at 2 GB a column: a reader of the whole column in one piece needs 64-bit offsets.
        assert parquet.schema_arrow.field("markdown").type == pa.large_string()
        groups = [parquet.metadata.row_group(n) for n in range(parquet.metadata.num_row_groups)]
        assert all(group.total_byte_size < 120_000_000 for group in groups)
        at = parquet.schema_arrow.names.index("markdown")
        assert not any(group.column(at).is_stats_set for group in groups)
    file.unlink()  # or the search for the key reads its hundreds of megabytes once more


@proves(
    "H27",
    at="src/weblake/jobs/result_pages.py",
    line="MAX_CHUNK = 256 << 20",
    becomes="MAX_CHUNK = 10 << 20",
    case="hundred",
)
@pytest.mark.parametrize("sizes", [[1, 10, 1, 12], [1, 100, 1]], ids=["ten", "hundred"])
def test_h27_documents_larger_than_a_chunk_land(service: ScriptedService, lake: Lake, sizes: list[int]) -> None:
    told(service, sizes)
    outcome = lake.land(job=JOB, process=True, timeout=300)
    assert outcome.code == 0, outcome.err
    assert outcome.json["stored"] == len(sizes)
    landed(lake.root, sizes)
    # The response, the text, its column, the compressed page: a few copies of the largest document.
    assert PEAKS[-1] < BASE + 8 * 1000 * max(sizes), PEAKS


@proves(
    "H27",
    at="src/weblake/loads/staging.py",
    line="            if self._batches.pending_bytes >= BATCH_BYTES:",
    becomes="            if False:",
)
@proves(
    "H27",
    at="src/weblake/arrow/schemas.py",
    line='("markdown", pa.large_string()),',
    becomes='("markdown", pa.string()),',
)
def test_h27_memory_does_not_grow_with_the_documents(service: ScriptedService, lake: Lake) -> None:
    sizes = [10] * 30
    told(service, sizes)
    outcome = lake.land(job=JOB, process=True, timeout=300)
    assert outcome.code == 0, outcome.err
    assert PEAKS[-1] < BASE + 15 * 10_000, PEAKS
    landed(lake.root, sizes)

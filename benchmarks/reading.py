"""What reading a lake costs through weblake.read, against a DuckDB glob over the same files.

    uv run --group bench python benchmarks/reading.py                 both lakes, about half an hour
    uv run --group bench python benchmarks/reading.py --only loads    one of: loads documents
    uv run --group bench python benchmarks/reading.py --write         also docs/development/reading-figures.md

Each reading is a fresh process; its imports are not counted. Readers come in turns (A B C, A B C), and the medians
count. Lakes are made below /tmp/weblake-benchmarks (made_lakes.py). Times hang on the machine: what counts is the
ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmark_report import BEGIN, DOCS, END, machine
from made_lakes import SHAPES, make

CACHE = Path(tempfile.gettempdir()) / "weblake-benchmarks"
PAGE = DOCS / "reading-figures.md"

#: What is asked: in words, of DuckDB over a glob, and of weblake.read in each of its forms. Each gives the rows.
GLOB = "read_parquet('{root}/documents/**/*.parquet', hive_partitioning = true)"
ASKED: dict[str, tuple[str, dict[str, str]]] = {
    "count": (
        f"select count(*) from {GLOB}",
        {
            "count_rows": "read(root).count_rows()",
            "dataset": "read(root).to_dataset().count_rows()",
            "Polars lazy": "read(root).to_polars_lazy().select(pl.len()).collect().item()",
        },
    ),
    "one column": (
        f"select url from {GLOB}",
        {
            "table": "read(root, columns=['url']).to_table().num_rows",
            "batches": "sum(batch.num_rows for batch in read(root, columns=['url']).to_batches())",
            "dataset": "read(root).to_dataset().to_table(columns=['url']).num_rows",
            "Polars lazy": "read(root).to_polars_lazy().select('url').collect().height",
            "pandas": "len(read(root, columns=['url']).to_pandas())",
        },
    ),
    "one day": (
        f"select url, markdown from {GLOB} where load_date = '{{day}}'",
        {
            "table": "read(root, columns=['url', 'markdown'], keys={'load_date': day}).to_table().num_rows",
            "dataset": "read(root).to_dataset().to_table(['url', 'markdown'], ds.field('load_date') == day).num_rows",
            "Polars lazy": "read(root).to_polars_lazy().filter(pl.col('load_date') == day)"
            ".select('url', 'markdown').collect().height",
        },
    ),
    "one load": (
        f"select url, markdown from {GLOB} where load_id = '{{load}}'",
        {
            "table": "read(root, columns=['url', 'markdown'], loads=[load]).to_table().num_rows",
            "dataset": "read(root, loads=[load]).to_dataset().to_table(columns=['url', 'markdown']).num_rows",
            "Polars lazy": "read(root, loads=[load]).to_polars_lazy().select('url', 'markdown').collect().height",
        },
    ),
    "every column": (
        f"select * from {GLOB}",
        {
            "batches": "sum(batch.num_rows for batch in read(root).to_batches())",
            "dataset": "sum(batch.num_rows for batch in read(root).to_dataset().to_batches())",
        },
    ),
}

READER = """
import json, resource, sys, time
root, day, load, how, what = sys.argv[1:]
if how == "duckdb":
    import duckdb, pyarrow
    db = duckdb.connect()
    def ask():
        found = db.sql(what).to_arrow_reader(1024) if "count(" not in what else db.sql(what).fetchall()[0][0]
        return found if isinstance(found, int) else sum(batch.num_rows for batch in found)
else:
    import pyarrow.dataset as ds, polars as pl
    from weblake import read
    def ask():
        return eval(what)
began, cpu = time.perf_counter(), time.process_time()
rows = ask()
told = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu, "rows": rows}
print(json.dumps(told | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


@dataclass
class Lake:
    """One lake as it is read, and what readings of it measured, by what was asked and how."""

    root: Path
    files: int
    megabytes: float
    runs: dict[tuple[str, str], list[dict[str, float]]] = field(default_factory=dict)

    def median(self, asked: str, how: str, what: str) -> float:
        return statistics.median(run[what] for run in self.runs[asked, how])


def contest(name: str, rounds: int) -> Lake:
    """Every reading of a lake, in turns."""
    root = make(CACHE, name)
    files = sorted((root / "documents").glob("*/*.parquet"))
    lake = Lake(root, len(files), sum(path.stat().st_size for path in files) / 1e6)
    some = files[len(files) // 2]
    day, load = some.parent.name.partition("=")[2], some.name.partition("-")[0]
    for number in range(rounds):
        for asked, (query, forms) in ASKED.items():
            for how, what in {"duckdb": query.format(root=root, day=day, load=load), **forms}.items():
                run = one(str(root), day, load, how, what)
                lake.runs.setdefault((asked, how), []).append(run)
                shown = " ".join(f"{key} {value:.2f}" for key, value in run.items())
                print(f"  {name} {number + 1}/{rounds} {asked}, {how}: {shown}", file=sys.stderr)
    for asked in ASKED:
        rows = {run["rows"] for (what, _), runs in lake.runs.items() if what == asked for run in runs}
        assert len(rows) == 1, f"{asked}: readers differ: {rows}"
    return lake


def one(*args: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", READER, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{args} failed:\n{done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def report(name: str, lake: Lake) -> list[str]:
    """The table of one lake, as Markdown."""
    shape = SHAPES[name]
    lines = [
        f"### {shape.loads:,} loads of {shape.documents:,} documents, over {shape.days} days",
        "",
        f"{lake.files:,} files of {lake.megabytes:.0f} MB.",
        "",
        "| asked | reader | s | against DuckDB | CPU s | peak MB |",
        "|---|---|---|---|---|---|",
    ]
    for asked, (_, forms) in ASKED.items():
        for how in ("duckdb", *forms):
            wall = lake.median(asked, how, "wall")
            cells = [f"{wall:.2f}", f"{wall / lake.median(asked, 'duckdb', 'wall'):.2f}"]
            cells += [f"{lake.median(asked, how, 'cpu'):.2f}", f"{lake.median(asked, how, 'peak_mb'):.0f}"]
            reader = "DuckDB, glob" if how == "duckdb" else f"`weblake.read`, {how}"
            lines.append(f"| {asked} | {reader} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--only", nargs="+", choices=("loads", "documents", "tiny"), default=["loads", "documents"])
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    CACHE.mkdir(exist_ok=True)
    lines = [machine(given.rounds), ""]
    for name in given.only:
        lines += [*report(name, contest(name, given.rounds)), ""]
    print("\n".join(lines))
    if given.write:
        text = PAGE.read_text()
        before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        PAGE.write_text("\n".join([before, "", *lines, after]))


if __name__ == "__main__":
    main()

"""What the newest versions of pages cost: a thousand loads with a million rows, each of another page (the worst case).

    uv run --group bench python benchmarks/newest.py

Each figure is of a fresh process, in seconds and in megabytes above its imports. The lake is made below
/tmp/weblake-benchmarks (made_lakes.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from made_lakes import make

ASKED = {
    "latest().count_rows()": "weblake.read(root).latest().count_rows()",
    "latest().to_batches(), two columns": "sum(batch.num_rows for batch in "
    "weblake.read(root, columns=['page_key', 'title']).latest().to_batches())",
    "latest().to_polars_lazy(), a filter": "weblake.read(root).latest().to_polars_lazy()"
    ".filter(pl.col('language') == 'de').select(pl.len()).collect().item()",
    "changes(since=the 900th load)": "len(weblake.changes(root, since))",
    "changes() since the beginning": "len(weblake.changes(root))",
}
RUN = """
import json, sys, time
from pathlib import Path
import polars as pl, pyarrow.acero, pyarrow.compute, pyarrow.dataset
import weblake, weblake.dataset.changes
from weblake.dataset.history import history
from weblake.dataset.root import open_dataset
def memory(name):
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024
root, asked = sys.argv[1:]
since = [load.receipt.load_id for load in history(open_dataset(root))][899] if "since" in asked else ""
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
began, cpu = time.perf_counter(), time.process_time()
rows = eval(asked)
took, used = time.perf_counter() - began, time.process_time() - cpu
print(json.dumps([rows, round(took, 1), round(used, 1), round(memory("VmHWM") - before)]))
"""


def main() -> None:
    """Print the table."""
    lake = make(Path(tempfile.gettempdir()) / "weblake-benchmarks", "nights")
    print("| asked | rows | wall s | CPU s | peak MB |\n|---|---|---|---|---|")
    for named, asked in ASKED.items():
        done = subprocess.run([sys.executable, "-c", RUN, str(lake), asked], capture_output=True, text=True, check=True)
        rows, took, used, peak = json.loads(done.stdout)
        print(f"| {named} | {rows:,} | {took} | {used} | {peak:,} |", flush=True)


if __name__ == "__main__":
    main()

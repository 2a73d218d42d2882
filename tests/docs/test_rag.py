"""The program of the page about chunks for RAG, run literally over a dataset that changes."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from page_blocks import files
from versions_lab import BEGAN, land, page

from weblake.dataset.root import open_dataset

PAGE = (Path(__file__).parents[2] / "docs/site/tasks/rag.md").read_text()
PROGRAM = files(PAGE)["rag.py"]
QUESTION, OUTPUT = re.findall(r'```sh\npython rag.py "(.+?)"\n```\n\n```text\n(.*?)```', PAGE, re.DOTALL)[0]
SHOP = {
    "": "# Shop\n\nTea and cups",
    "tea": "# Tea\n\nA tin of green tea costs 8 euros.",
    "cups": "# Cups\n\nA cup of porcelain costs 12 euros.",
}


def run(folder: Path, program: str = PROGRAM, *question: str) -> str:
    command = [sys.executable, "-c", program, *question]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def land_shop(folder: Path, load: str, pages: dict[str, str], statuses: dict[str, int]) -> None:
    rows = [
        page(0) | {"source_url": f"http://shop.test/{name}", "url": f"http://shop.test/{name}", "markdown": text}
        for name, text in pages.items()
    ]
    for row, name in zip(rows, pages, strict=True):
        row["status_code"] = statuses.get(name, 200)
    land(open_dataset(folder / "lake"), load * 16, BEGAN + timedelta(days=int(load)), rows)


def texts(folder: Path) -> list[str]:
    with duckdb.connect(str(folder / "chunks.duckdb")) as store:
        return sorted(text for (text,) in store.execute("SELECT text FROM chunks").fetchall())


@pytest.mark.system
def test_the_chunks_follow_the_pages(tmp_path: Path) -> None:
    open_dataset(tmp_path / "lake").layout.claim("documents", ("load_date",))
    land_shop(tmp_path, "1", SHOP, {})
    assert run(tmp_path, PROGRAM, QUESTION) == OUTPUT
    before = texts(tmp_path)
    assert before == sorted(SHOP.values())
    fails = PROGRAM.replace("vectors = [[0.0]", "raise OSError('the model is away')\n    vectors = [[0.0]")
    assert run(tmp_path, fails).startswith("{'new': 0, 'changed': 0, 'gone': 0}")
    assert texts(tmp_path) == before

    longer = "# Tea\n\n" + "A long text about tea. " * 60 + "\n\nA tin costs 9 euros.\n\n## Black\n\nNone."
    land_shop(tmp_path, "2", {"": SHOP[""], "tea": longer, "cups": "Not here", "pots": "# Pots"}, {"cups": 404})
    with pytest.raises(subprocess.CalledProcessError):
        run(tmp_path, fails)
    assert texts(tmp_path) == before
    for counts in ("{'new': 1, 'changed': 1, 'gone': 1}", "{'new': 0, 'changed': 0, 'gone': 0}"):
        assert run(tmp_path).startswith(counts)
        tea = [each for each in texts(tmp_path) if each.startswith("# Tea\n\n")]
        assert sorted(set(texts(tmp_path)) - set(tea)) == sorted([SHOP[""], "# Pots", "## Black\n\nNone."])
        assert "".join(tea).count("A long text about tea.") == 59
        assert "9 euros" in "".join(tea)
        assert max(map(len, tea)) < 1_020

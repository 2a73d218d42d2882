"""`weblake parse FILE --to ROOT`: files land, and are paid once although processes are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parse_lab
import pyarrow.parquet as pq
import pytest
from command_in_process import run_command


@pytest.fixture
def new_parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for parsing in parse_lab.serve():
        monkeypatch.setenv("WEBLAKE_BASE_URL", parsing.service.url)
        monkeypatch.setenv("WEBLAKE_API_KEY", parse_lab.KEY)
        yield parsing


def files(*names: str) -> list[str]:
    return [str(parse_lab.DOCUMENTS / name) for name in names]


def landed(lake: Path) -> list[dict[str, Any]]:
    rows = [row for path in lake.glob("documents/**/*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: row["url"])


def run(*arguments: str) -> tuple[int, str, str]:
    return run_command(["parse", *arguments], {})


@pytest.mark.system
def test_files_are_printed_as_markdown(new_parsing: Any) -> None:
    code, out, _ = run(*files("tides.docx", "gauges.xls"))
    assert code == 0
    assert "**spring tide**" in out
    assert "| Sum | 8.1 |  |" in out


@pytest.mark.smoke
def test_files_land_once(new_parsing: Any, tmp_path: Path) -> None:
    three = files("tides.docx", "tides.pdf", "gauges.xls")
    for _ in range(2):
        code, out, _ = run(*three, "--to", str(tmp_path), "--json")
        assert code == 0
        assert [load["credits_used"] for load in json.loads(out)["loads"]] == [1, 2, 1]
    rows = landed(tmp_path)
    assert [row["url"] for row in rows] == ["file:///gauges.xls", "file:///tides.docx", "file:///tides.pdf"]
    assert "潮位は正常" in rows[1]["markdown"]
    assert dict(rows[2]["metadata"])["numPages"] == "2"
    assert (new_parsing.credits_used(), new_parsing.service.counts()["parse_started"]) == (4, 3)


@pytest.mark.system
def test_one_failed_file_does_not_prevent_the_others(new_parsing: Any, tmp_path: Path) -> None:
    code, _, err = run(*files("encrypted.pdf", "tides.docx"), "--to", str(tmp_path))
    assert code == 1
    assert "protected with a password" in err
    assert len(landed(tmp_path)) == 1


@pytest.mark.system
@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.5])
def test_a_killed_and_repeated_command_pays_once(new_parsing: Any, tmp_path: Path, after_s: float) -> None:
    new_parsing.service.faults({"match": {"path": "/v2/parse$"}, "times": 1, "effect": {"latency_ms": 300}})
    command = [sys.executable, "-m", "weblake", "parse", *files("tides.pdf"), "--to", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("_weblake/ledger/*.start-1.json")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        due = time.monotonic() + after_s
        while time.monotonic() < due and killed.poll() is None:
            time.sleep(0.005)
        killed.kill()
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    assert len(landed(tmp_path)) == 1
    assert (new_parsing.credits_used(), new_parsing.service.counts()["parse_started"]) == (2, 1)

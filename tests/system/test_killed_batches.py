"""`weblake batch` is killed during the response to its start, or runs many times at once: one start at the service.

test_failpoints.py kills it before each change of its root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from catalogue import proves
from polling import until

pytestmark = pytest.mark.system


def visible(root: Path) -> list[Any]:
    if not list(root.glob("documents/**/*.parquet")):
        return []
    query = f"select load_id, source_url from read_parquet('{root}/documents/**/*.parquet')"
    return duckdb.sql(query).fetchall()


@proves(
    "3.2",
    at="src/weblake/loads/load_request.py",
    line="        if self.new:",
    becomes="        if True:",
)
def test_a_batch_killed_during_the_response_to_its_start_lands_once(
    weblake_command: Any, service: Any, site: str, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    command = ("batch", *(f"{site}/{n}" for n in range(3)), "--to", str(root), "--json")
    # The job is started, and the response is held back while the process lives.
    match = {"method": "POST", "path": "/v2/batch/scrape$"}
    service.faults({"match": match, "times": 99, "effect": {"drop_after": True}})
    process = weblake_command.start(*command)
    until(lambda: service.counts().get("batch_scrape_started"))
    process.kill()
    process.communicate()
    service.faults()
    again = weblake_command(*command)
    assert (again.code, again.json["stored"], len(visible(root))) == (0, 3, 3), again.err
    assert service.counts()["batch_scrape_started"] == 1, "started twice"


def test_p5_the_same_command_many_times_at_once_lands_once(
    weblake_command: Any, service: Any, site: str, tmp_path: Path
) -> None:
    urls = [f"{site}/{n}" for n in range(6)]
    command = ("batch", *urls, "--to", str(tmp_path / "lake"), "--json")
    running = [weblake_command.start(*command) for _ in range(4)]
    ended = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0] * 4, [err for _, err in ended]
    assert len(visible(tmp_path / "lake")) == 6
    assert service.counts()["batch_scrape_started"] == 1

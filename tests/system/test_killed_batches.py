"""`weblake batch` is killed with SIGKILL at some moment and repeated: one load, one start at the service.

Three moments under `system`, eleven under `nightly`; test_crash_sweep.py kills at chosen calls instead.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from catalogue import proves
from tiers import part, swept

pytestmark = pytest.mark.system

#: Moments at which the first run is killed, as shares of the duration of a complete run.
MOMENTS = [0.3, 0.45, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]


def visible(root: Path) -> list[Any]:
    if not list(root.glob("documents/**/*.parquet")):
        return []
    query = f"select load_id, source_url from read_parquet('{root}/documents/**/*.parquet')"
    return duckdb.sql(query).fetchall()


@swept(5)  # proves no row of the catalogue: no moment is sure to be between the start and the landing
def test_p1_a_batch_killed_at_any_moment_and_repeated_lands_once(
    weblake_command: Any, service: Any, site: str, tmp_path: Path, one_in: int
) -> None:
    urls = [f"{site}/{n}" for n in range(12)]
    begun = time.monotonic()
    assert weblake_command("batch", *urls, "--to", str(tmp_path / "whole"), "--json").code == 0
    whole = time.monotonic() - begun
    for n, moment in enumerate(part(MOMENTS, one_in)):
        started = service.counts().get("batch_scrape_started", 0)
        root = tmp_path / f"lake-{n}"
        command = ("batch", *urls, "--to", str(root), "--json")
        first = weblake_command.start(*command)
        with suppress(subprocess.TimeoutExpired):  # it is still running, as expected
            first.wait(timeout=moment * whole)
        first.kill()
        first.communicate()
        assert len(visible(root)) in (0, 12), f"killed at {moment}: a partial load is visible"
        again = weblake_command(*command)
        assert again.code == 0, again.err
        rows = visible(root)
        assert sorted(url for _, url in rows) == sorted(urls), f"killed at {moment}"
        assert {load_id for load_id, _ in rows} == {again.json["load_id"]}
        assert service.counts()["batch_scrape_started"] == started + 1, f"killed at {moment}: started twice"


@proves(
    "3.2",
    at="src/weblake/loads/load_request.py",
    line="        if self.new:",
    becomes="        if True:",
    case=".start-1",
)
@pytest.mark.parametrize("record", ["", ".start-1", ".job", ".done"])
def test_a_batch_killed_after_a_record_is_written_lands_once(
    weblake_command: Any, service: Any, site: str, tmp_path: Path, record: str
) -> None:
    root = tmp_path / "lake"
    command = ("batch", *(f"{site}/{n}" for n in range(3)), "--to", str(root), "--json")
    if record == ".start-1":  # the job is started, and the response is held back while the process lives
        match = {"method": "POST", "path": "/v2/batch/scrape$"}
        service.faults({"match": match, "times": 99, "effect": {"drop_after": True}})
    process = weblake_command.start(*command)
    until = time.monotonic() + 240
    while not list(root.glob(f"_weblake/ledger/{'[0-9a-f]' * 16}{record}.json")) or (
        record == ".start-1" and not service.counts().get("batch_scrape_started")
    ):
        assert time.monotonic() < until
        assert process.poll() in (None, 0)
        time.sleep(0.001)
    process.kill()
    process.communicate()
    service.faults()
    again = weblake_command(*command)
    assert (again.code, again.json["stored"], len(visible(root))) == (0, 3, 3), again.err
    assert service.counts()["batch_scrape_started"] == 1, "started twice"


@pytest.mark.parametrize("times", [4])
def test_p5_the_same_command_many_times_at_once_lands_once(
    weblake_command: Any, service: Any, site: str, tmp_path: Path, times: int
) -> None:
    urls = [f"{site}/{n}" for n in range(6)]
    command = ("batch", *urls, "--to", str(tmp_path / "lake"), "--json")
    running = [weblake_command.start(*command) for _ in range(times)]
    ended = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0] * times, [err for _, err in ended]
    assert len(visible(tmp_path / "lake")) == 6
    assert service.counts()["batch_scrape_started"] == 1

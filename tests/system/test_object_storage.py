"""The same promises on an S3 server over a socket: whole loads, found again, one winner of two processes."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import Any

import pytest

import weblake

pytestmark = pytest.mark.system


def sources(root: str) -> list[str]:
    return sorted(weblake.read(root, columns=["source_url"]).to_table()["source_url"].to_pylist())


def test_a_batch_lands_once_on_s3_and_is_found_again(
    weblake_command: Any, service: Any, site: str, s3_root: str
) -> None:
    urls = [f"{site}/{n}" for n in range(5)]
    command = ("batch", *urls, "http://127.0.0.1:9/", "--to", s3_root, "--json")
    first = weblake_command(*command)
    assert first.code == 0, first.err
    assert (first.json["stored"], first.json["failed"]) == (5, 1)
    requests = len(service.requests())
    again = weblake_command(*command)
    assert again.json == first.json
    assert "landed already" in again.err
    assert len(service.requests()) == requests  # the service was not called
    assert sources(s3_root) == sorted(urls)
    errors = weblake.read(s3_root, "page_errors").to_table()
    assert errors["outcome"].to_pylist() == ["failed"]
    assert errors["load_date"].to_pylist() == weblake.read(s3_root).to_table()["load_date"].to_pylist()[:1]


def test_a_batch_killed_on_s3_and_repeated_lands_once(
    weblake_command: Any, service: Any, site: str, s3_root: str
) -> None:
    urls = [f"{site}/{n}" for n in range(8)]
    for n, seconds in enumerate((0.8, 1.3, 1.8)):
        root = f"{s3_root}/{n}"
        command = ("batch", *urls, "--to", root, "--json")
        first = weblake_command.start(*command)
        with suppress(subprocess.TimeoutExpired):
            first.wait(timeout=seconds)
        first.kill()
        first.communicate()
        assert len(sources(root)) in (0, 8)
        assert weblake_command(*command).code == 0
        assert sources(root) == sorted(urls)
    assert service.counts()["batch_scrape_started"] == 3


def test_two_processes_at_once_land_one_load_on_s3(weblake_command: Any, service: Any, site: str, s3_root: str) -> None:
    urls = [f"{site}/{n}" for n in range(6)]
    command = ("batch", *urls, "--to", s3_root, "--json")
    running = [weblake_command.start(*command) for _ in range(2)]
    ended = [process.communicate(timeout=240) for process in running]
    assert [process.returncode for process in running] == [0, 0], [err for _, err in ended]
    assert sources(s3_root) == sorted(urls)
    assert service.counts()["batch_scrape_started"] == 1

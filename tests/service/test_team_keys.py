"""Several keys and teams: the keys file, and the separation of teams."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from weblake.errors import InvalidOption
from weblake_service.config import Plan, ServiceConfig, ServiceKey, TeamPlan
from weblake_service.keys_file import read_keys_file
from weblake_service.serve import serve

A, B = "http://site.test/a", "http://site.test/b"
RED, BLUE = {"Authorization": "Bearer test-key-red"}, {"Authorization": "Bearer test-key-blue"}
KEYS = [ServiceKey("test-key-red", "one", "red"), ServiceKey("test-key-blue", "one", "blue")]
TOML = """
[[keys]]
name = "etl"
key_env = "ETL_KEY"
team = "red"

[[keys]]
name = "adhoc"
key = "test-key-2"

[teams.red]
credits = 100
requests_per_minute = 7
concurrency = 2
zero_data_retention = true
webhook_secret_env = "RED_SECRET"
"""
ENVIRONMENT = {"ETL_KEY": "test-key-1", "RED_SECRET": "test-secret"}


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_service_for_tests_is_refused_with_several_teams(tmp_path: Path) -> None:
    keys = [{"name": name, "key": f"test-key-{name}", "team": name} for name in ("red", "blue")]
    file = written(tmp_path / "keys.json", json.dumps({"keys": keys}))
    with pytest.raises(InvalidOption, match="several teams, and with --testing each key rules all of them"):
        serve(data=tmp_path / "d", keys_file=file, config=ServiceConfig(testing=True))
    assert not (tmp_path / "d").exists()


def test_a_keys_file_sets_keys_and_team_plans(tmp_path: Path) -> None:
    file = read_keys_file(written(tmp_path / "keys.toml", TOML), ENVIRONMENT)
    assert file.keys == [ServiceKey("test-key-1", "etl", "red"), ServiceKey("test-key-2", "adhoc", "local")]
    assert file.warning is None
    config = ServiceConfig(plan_credits=5, teams=file.teams)
    assert config.plan("red") == Plan(100, 7, 1750, 2, 1_000_000, True, "test-secret")
    assert config.plan("local") == Plan(5, None, None, 10, 1_000_000, False, None)
    assert "test-secret" not in repr(config)
    assert "test-key" not in repr(file.keys)
    as_json = {"keys": [{"name": "etl", "key": "test-key-1", "team": "red"}], "teams": {"red": {"credits": 100}}}
    same = read_keys_file(written(tmp_path / "keys.json", json.dumps(as_json)), {})
    assert (same.keys, same.teams) == (file.keys[:1], {"red": TeamPlan(credits=100)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[keys]]\nname="a"\nkey="test-key"\nkay=1', "unknown field `kay`"),
        ('[[keys]]\nname="a"', "needs either `key` or `key_env`"),
        ('[[keys]]\nname="a"\nkey="test-key"\nkey_env="ETL_KEY"', "needs either"),
        ('[[keys]]\nname="a"\nkey=""', "is empty"),
        ('[[keys]]\nname="a"\nkey_env="UNSET"', "UNSET, which is not set"),
        ('[[keys]]\nname=""\nkey="test-key"', "keys[0].name"),
        ('[[keys]]\nname="a"\nkey="test-key"\nteam="x\\ny"', "keys[0].team"),
        ("keys = []", "length >= 1"),
        ('[[keys]]\nname="a"\nkey="test-key"\n[teams.local]\nconcurrency=0', ">= 1"),
        ('[[keys]]\nname="a"\nkey="test-key"\n[teams.local]\ncredits=-1', ">= 0"),
        ('[[keys]]\nname="a"\nkey="test-key"\n[teams.other]\ncredits=1', "the team 'other' has limits and no key"),
        ('[[keys]]\nname="a"\nkey="test-key"\n[[keys]]\nname="b"\nkey="test-key"', "Two API keys are equal"),
        ('[[keys]]\nname="a"\nkey="test-key"\n[[keys]]\nname="a"\nkey="test-key-2"', "the same name"),
        ('[[keys]]\nname="a"\nkey="test-key with spaces"', "no HTTP header"),
        ('[[keys]]\nname="a"\nkey="test-key', "cannot be decoded"),
        ('[[keys]]\nname="a"\nkey=test-key-without-quotes', "cannot be decoded"),
        ("x" * (1 << 20) + "x", "larger than"),
    ],
)
def test_an_invalid_keys_file_is_refused_without_showing_its_keys(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        read_keys_file(written(tmp_path / "keys.toml", text), {"ETL_KEY": "test-key-1"})
    assert told in str(caught.value)
    assert "test-key" not in str(caught.value)


def test_a_keys_file_accessible_to_others_gives_a_warning(tmp_path: Path) -> None:
    literal = '[[keys]]\nname="a"\nkey="test-key"\n'
    warned = read_keys_file(written(tmp_path / "a.toml", literal, 0o644)).warning
    assert warned is not None
    assert "chmod 600" in warned
    only_names = '[[keys]]\nname="a"\nkey_env="ETL_KEY"\n'
    assert read_keys_file(written(tmp_path / "b.toml", only_names, 0o644), ENVIRONMENT).warning is None
    with pytest.raises(InvalidOption, match="may change it"):
        read_keys_file(written(tmp_path / "c.toml", only_names, 0o666), ENVIRONMENT)
    for missing in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InvalidOption, match="cannot be read"):
            read_keys_file(missing)
    # A secret store may provide the file as a pipe: then nothing is on disk, and nobody else can read it.
    reading, writing = os.pipe()
    os.write(writing, literal.encode())
    os.close(writing)
    assert read_keys_file(f"/dev/fd/{reading}").keys == [ServiceKey("test-key", "a")]
    os.close(reading)


def test_a_team_sees_nothing_of_another(make_bench: Any) -> None:
    bench = make_bench(keys=KEYS)
    bench.web.held.add(B)
    done, running = bench.batch(A), bench.batch(B)
    crawl = bench.crawl(A)
    scrape_id = bench.wait_until_ended(done)["data"][0]["metadata"]["scrapeId"]
    bench.wait_until_ended(crawl, "crawl")

    def ask(method: str, path: str) -> tuple[int, Any]:
        reply = bench.http.request(method, path, headers=BLUE)
        return reply.status_code, reply.json().get("success")

    for path in (f"batch/scrape/{done}", f"batch/scrape/{running}", f"crawl/{crawl}", f"scrape/{scrape_id}"):
        assert ask("GET", f"/v2/{path}") == (404, False)
    for path in (f"batch/scrape/{done}", f"crawl/{crawl}"):
        assert ask("GET", f"/v2/{path}/errors") == (403, False)
        assert ask("DELETE", f"/v2/{path}") == (403, False)
    assert ask("DELETE", f"/v2/batch/scrape/{running}") == (403, False)
    append = bench.http.post("/v2/batch/scrape", json={"urls": [A], "appendToId": running}, headers=BLUE)
    assert append.status_code == 404
    assert bench.status(running)["status"] == "scraping"
    for path, name in (
        ("crawl/active", "crawls"),
        ("team/activity", "data"),
        ("team/credit-usage/historical", "periods"),
    ):
        assert bench.http.get(f"/v2/{path}", headers=BLUE).json()[name] == []
    queue = bench.http.get("/v2/team/queue-status", headers=BLUE).json()
    assert (queue["jobsInQueue"], queue["mostRecentSuccess"]) == (0, None)
    assert bench.http.get("/v2/concurrency-check", headers=BLUE).json()["concurrency"] == 0
    assert bench.http.get("/v2/concurrency-check").json()["concurrency"] == 1
    bench.web.held.clear()


def test_idempotency_keys_are_separate_per_team(make_bench: Any) -> None:
    bench = make_bench(keys=[*KEYS, ServiceKey("test-key-red-2", "two", "red")])

    def start(url: str, **headers: str) -> Any:
        return bench.http.post(
            "/v2/batch/scrape",
            json={"urls": [url]},
            headers={"x-idempotency-key": "00000000-0000-4000-8000-000000000001", **headers},
        )

    first = start(A, **RED).json()["id"]
    assert start(A, Authorization="Bearer test-key-red-2").json()["id"] == first
    assert start(B, **RED).status_code == 409
    other = start(B, **BLUE)
    assert (other.status_code, other.json()["id"] != first) == (200, True)


def test_a_key_and_a_keys_file_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="both a key and a keys file"):
        serve(data=":memory:", key="test-key", keys_file=tmp_path / "keys.toml")

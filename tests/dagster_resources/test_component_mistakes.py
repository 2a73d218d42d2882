"""Tests of mistakes in a defs.yaml: the errors of `dg check yaml` and `dg check defs` have no traceback."""

from __future__ import annotations

from collections.abc import Mapping

import jsonschema
import pytest
from component_files import loaded, refused

from dagster_weblake import WeblakeCrawlComponent, WeblakeUsageComponent

CRAWL, USAGE = WeblakeCrawlComponent.__name__, WeblakeUsageComponent.__name__
DOCS = {"asset": "docs", "url": "https://docs.example.com/"}


@pytest.mark.parametrize(
    ("kind", "lines", "place"),
    [
        (CRAWL, 'to: "{{ env.NOT_SET }}/lake"', "to"),
        (CRAWL, 'max_credits: "{{ env.NOT_SET }}"', "max_credits"),
        (CRAWL, 'asset:\n  key: docs\n  group_name: "{{ env.NOT_SET }}"', "asset.group_name"),
        (CRAWL, 'asset: docs\nretry_policy:\n  delay: "{{ env.NOT_SET }}"', "retry_policy.delay"),
        (CRAWL, 'asset: docs\ndeadline: "{{ env.NOT_SET }}"', "deadline"),
        (CRAWL, 'asset: docs\noptions:\n  include_paths: ["{{ env.NOT_SET }}/.*"]', "options.include_paths.0"),
        (CRAWL, 'asset: docs\nresource:\n  root: "{{ env.NOT_SET }}/lake"', "resource.root"),
        (USAGE, 'asset: docs\nbudget: "{{ env.NOT_SET }}"', "budget"),
    ],
)
def test_a_variable_that_is_not_set_is_a_message_with_its_line(
    monkeypatch: pytest.MonkeyPatch, kind: str, lines: str, place: str
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    head = "" if kind == USAGE else "url: https://docs.example.com/\n"
    asset = "" if "asset:" in lines else "asset: docs\n"
    text = refused(kind, f"{head}{asset}{lines}")
    assert f" - attributes.{place}\n" in text
    assert "The environment variable NOT_SET is not set" in text
    assert "Traceback" not in text
    monkeypatch.setenv("NOT_SET", "web" if "group_name" in lines else "3")
    with loaded(kind, f"{head}{asset}{lines}"):
        pass


def test_secrets_may_be_unset_where_the_code_is_only_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    late = {
        **DOCS,
        "resource": {"api_key": "{{ env.NOT_SET }}", "root": "{{ env.NOT_SET }}"},
        "options": {"scrape_options": {"headers": {"Cookie": "{{ env.NOT_SET }}"}}},
    }
    with loaded(CRAWL, late):
        pass


@pytest.mark.parametrize("lines", ["deadline: 6 hours", "partitions_def: daily", "deadline: 0"])
def test_a_wrong_value_is_a_message_without_a_traceback(lines: str) -> None:
    text = refused(CRAWL, f"asset: docs\nurl: https://docs.example.com/\n{lines}")
    assert f" - attributes.{lines.partition(':')[0]}\n" in text
    assert "Give " in text or "give " in text
    assert "Traceback" not in text


def complaints(attributes: Mapping[str, object]) -> list[tuple[str, str]]:
    """What `dg check yaml` says of attributes: where and what."""
    model = WeblakeCrawlComponent.get_model_cls()
    assert model is not None
    found = jsonschema.Draft202012Validator(model.model_json_schema()).iter_errors({**DOCS, **attributes})
    return [(".".join(map(str, each.absolute_path)), each.message) for each in found]


def test_the_schema_tells_a_wrong_deadline_and_takes_every_right_one() -> None:
    for right in ("6h", "90m", "1h30m", "2d", "1.5h", "3600", " 6h ", 3600, 0.5, "{{ env.DEADLINE }}"):
        assert complaints({"deadline": right}) == []
    for wrong in ("6 hours", "soon", "", 0, -1, None):
        ((place, _),) = complaints({"deadline": wrong})
        assert place == "deadline"


def test_the_schema_names_the_field_that_partitions_lack() -> None:
    assert complaints({"partitions_def": {"type": "daily"}}) == [
        ("partitions_def", "'start_date' is a required property")
    ]
    assert complaints({"partitions_def": {"type": "dynamic"}}) == [("partitions_def", "'name' is a required property")]
    ((place, text),) = complaints({"partitions_def": {"type": "daily", "start_date": "2026-11-01", "strt": 1}})
    assert (place, "'strt' was unexpected" in text) == ("partitions_def", True)
    ((place, text),) = complaints({"partitions_def": {"type": "fortnightly"}})
    assert (place, "'fortnightly' is not one of ['hourly'" in text) == ("partitions_def.type", True)
    assert complaints({"backfill_policy": {"type": "multi_run", "max_partitions_per_run": 2}}) == []
    ((place, text),) = complaints({"backfill_policy": {"type": "multi_run", "partitions": 2}})
    assert (place, "'partitions' was unexpected" in text) == ("backfill_policy", True)
    for right in (
        None,
        "{{ partitions }}",
        {"type": "daily", "start_date": "2026-11-01", "end_date": None, "hour_offset": 2},
        {"type": "monthly", "start_date": "2026-01-01"},
        {"type": "static", "partition_keys": ["a"]},
        {"type": "time_window", "start_date": "2026-11-01", "fmt": "%Y", "cron_schedule": "@daily"},
        {"type": "dynamic", "name": "sites"},
    ):
        assert complaints({"partitions_def": right}) == []

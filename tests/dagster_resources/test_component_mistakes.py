"""Tests of mistakes in a defs.yaml: the errors of `dg check yaml` and `dg check defs` have no traceback."""

from __future__ import annotations

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
def test_an_unset_variable_is_reported_with_its_line(
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


def test_secrets_may_be_unset_while_code_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    late = {
        **DOCS,
        "resource": {"api_key": "{{ env.NOT_SET }}", "root": "{{ env.NOT_SET }}"},
        "options": {"scrape_options": {"headers": {"Cookie": "{{ env.NOT_SET }}"}}},
    }
    with loaded(CRAWL, late):
        pass

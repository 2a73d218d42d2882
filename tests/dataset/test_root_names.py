"""Tests of a root with several names: each name gives the same dataset, and a landed load is not paid again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from landing_lab import LandingLab, landing_lab
from upath import UPath

import weblake

URLS = ["http://pages.test/1"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LandingLab]:
    with landing_lab(LandingLab, tmp_path / "lake") as made:
        yield made


def landed(lab: LandingLab, names: list[Any]) -> None:
    """Under each name the same load, and one start in all."""
    receipts = [weblake.land_batch(URLS, to=name, client=lab.client) for name in names]
    assert len({receipt.load_id for receipt in receipts}) == 1
    assert lab.service.counts()["batch_scrape_started"] == 1
    assert weblake.read(names[0]).to_table().num_rows == 1


@proves(
    "3.8",
    at="src/weblake/loads/load_request.py",
    line='load_id=load_id_of("request", kind, body, self.new_key or self.key, partition),',
    becomes="load_id=new_load_key(),",
)
def test_a_directory(lab: LandingLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    real = tmp_path / "real"
    names = [real, str(real), f"{real}/", "real", "./real", tmp_path / "link", f"file://{real}", f"FILE://{real}"]
    landed(lab, [*names, UPath(real), UPath(f"file://{real}")])


def test_a_directory_that_was_moved(lab: LandingLab, tmp_path: Path) -> None:
    first = weblake.land_batch(URLS, to=tmp_path / "before", client=lab.client)
    (tmp_path / "before").rename(tmp_path / "after")
    assert weblake.land_batch(URLS, to=tmp_path / "after", client=lab.client) == first
    assert lab.service.counts()["batch_scrape_started"] == 1


@pytest.mark.system
def test_a_bucket(lab: LandingLab, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landed(lab, [s3_root, f"{s3_root}/", UPath(s3_root)])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    landed(lab, [UPath(s3_root), s3_root])
    assert os.listdir(".") == []

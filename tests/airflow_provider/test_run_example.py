"""Tests of `python -m airflow_provider_weblake.run_example`, which needs no configured Airflow.

tests/demo/test_demo_airflow.py also tests that a failed run shows its reason.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow_home import AIRFLOW_PATCHES, clean_environment

from weblake_service.server import LocalService

pytestmark = pytest.mark.system

if TYPE_CHECKING:
    from gated_site import GatedSite

#: Airflow's home is removed at the end; this keeps what was in it, so that it can be looked at.
KEEP = f"""
import os, runpy, shutil
runpy.run_path({str(AIRFLOW_PATCHES / "sitecustomize.py")!r})
remove = shutil.rmtree
def keep(path, *args, **kwargs):
    if os.path.basename(path).startswith("weblake-airflow-"):
        shutil.copytree(path, os.environ["KEEP_HOME"])
    remove(path, *args, **kwargs)
shutil.rmtree = keep
"""


def start(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_provider_weblake.run_example", *arguments],
        env=clean_environment() | env,
        capture_output=True,
        text=True,
        timeout=240,
    )


def connection(service: LocalService, key: str) -> str:
    return json.dumps({"conn_type": "weblake", "host": service.url, "password": key})


def test_a_run_prints_one_object_and_leaves_neither_home_nor_key(tmp_path: Path, site: GatedSite) -> None:
    key = f"test-canary-{secrets.token_hex(8)}"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(KEEP)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "urls.txt").write_text("\n".join(site.pages(3)))
    with LocalService(keys=key) as service:
        done = start(
            "nightly_batch_scrape",
            "--params",
            json.dumps({"urls": str(tmp_path / "urls.txt")}),
            AIRFLOW_CONN_WEBLAKE_DEFAULT=connection(service, key),
            WEBLAKE_ROOT=str(tmp_path / "lake"),
            TMPDIR=str(tmp_path / "scratch"),
            KEEP_HOME=str(tmp_path / "kept"),
            PYTHONPATH=str(tmp_path / "site"),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert service.counts()["batch_scrape_started"] == 1
    told = json.loads(done.stdout)
    assert (told["dag_id"], told["state"], told["tasks"]) == ("nightly_batch_scrape", "success", {"scrape": "success"})
    assert told["returned"]["scrape"]["stored"] == 3
    assert os.listdir(tmp_path / "scratch") == []
    kept = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert {"airflow.db", "nightly_batch_scrape.py"} <= {path.name for path in kept}
    for path in [*kept, *(path for path in (tmp_path / "lake").rglob("*") if path.is_file())]:
        assert key.encode() not in path.read_bytes(), path
    assert key not in done.stdout + done.stderr

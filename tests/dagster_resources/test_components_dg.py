"""Tests of the components with the real `dg`, in a project of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.system

NAMES = ("WeblakeBatchScrapeComponent", "WeblakeCrawlComponent", "WeblakeUsageComponent")
WRONG = """\
type: dagster_weblake.WeblakeCrawlComponent

attributes:
  asset:
    key: wrong
  url: https://docs.example.com/
  options:
    limit: 0
    scrape_options:
      formats:
        - markdwn
  checks:
    min_row: 3
  resource:
    rot: ./lake
  limt: 3
"""


@dataclass
class Project:
    """A dg project in a folder of its own."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def defs(self) -> Path:
        return self.folder / "site_lake" / "defs"

    def create(self) -> Project:
        self.defs.mkdir(parents=True)
        (self.folder / "dg.toml").write_text('directory_type = "project"\n\n[project]\nroot_module = "site_lake"\n')
        for name in ("__init__.py", "defs/__init__.py"):
            (self.folder / "site_lake" / name).touch()
        (self.folder / "site_lake" / "definitions.py").write_text(
            "from pathlib import Path\n\nimport dagster as dg\n\n\n@dg.definitions\n"
            "def defs():\n    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
        )
        (self.folder / "home").mkdir()
        (self.folder / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        return self

    def dg(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs the command with no other environment of Dagster or weblake than its own."""
        ours = {name: text for name, text in os.environ.items() if not name.startswith(("DAGSTER_", "WEBLAKE_"))}
        return subprocess.run(
            [str(Path(sys.executable).with_name("dg")), *arguments],
            cwd=self.folder,
            env={
                **ours,
                "DAGSTER_HOME": str(self.folder / "home"),
                "DAGSTER_DISABLE_TELEMETRY": "1",
                "COLUMNS": "300",
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def attributes(self, name: str) -> dict[str, object]:
        found: dict[str, object] = yaml.safe_load((self.defs / name / "defs.yaml").read_text())["attributes"]
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project").create()


def test_dg_lists_exactly_the_three_components(project: Project) -> None:
    done = project.dg("list", "components", "--json")
    assert done.returncode == 0, done.stderr
    listed = {item["key"]: item["summary"] for item in json.loads(done.stdout)["items"]}
    assert sorted(key for key in listed if "weblake" in key) == [f"dagster_weblake.{name}" for name in NAMES]
    assert "landed as Parquet" in listed["dagster_weblake.WeblakeCrawlComponent"]


def test_dg_reports_the_lines_of_invalid_attributes(project: Project) -> None:
    (project.defs / "wrong").mkdir()
    file = project.defs / "wrong" / "defs.yaml"
    file.write_text(WRONG)
    checked = project.dg("check", "yaml")
    assert checked.returncode == 1
    lines = WRONG.splitlines()
    for place, mark, words in (
        ("options.limit", "limit: 0", "0 is less than the minimum of 1"),
        ("options.scrape_options.formats.0", "- markdwn", "'markdwn' is not one of ['markdown'"),
        ("checks", "checks:", "is not valid under any of the given schemas"),
        ("resource.rot", "rot: ./lake", "'rot' was unexpected"),
        ("limt", "limt: 3", "'limt' was unexpected"),
    ):
        number = next(at for at, line in enumerate(lines, 1) if line.strip() == mark)
        wanted = f"{file}:{number} - dagster_weblake.WeblakeCrawlComponent attributes.{place} "
        assert any(line.startswith(wanted) and words in line for line in checked.stdout.splitlines()), checked.stdout


def test_errors_beyond_the_schema_are_reported_with_their_line_when_code_is_loaded(project: Project) -> None:
    (project.defs / "wrong").mkdir()
    file = project.defs / "wrong" / "defs.yaml"
    file.write_text(
        "type: dagster_weblake.WeblakeCrawlComponent\n\nattributes:\n  asset: wrong\n  url: https://docs.example.com/\n"
        "  options:\n    scrape_options:\n      wait_for: 60000\n"
    )
    loaded = project.dg("check", "defs")
    said = loaded.stdout + loaded.stderr
    assert loaded.returncode == 1
    assert f"{file}:6 - attributes.options" in said
    assert "give a shorter wait, or a longer timeout" in said

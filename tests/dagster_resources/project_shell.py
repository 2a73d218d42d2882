"""A shell without a configured Dagster, as a reader of the documentation has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Its environment, with scratch and home in this folder."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER_", "WEBLAKE_"))}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    (folder / "scratch").mkdir(exist_ok=True)
    return ours | {
        "PATH": f"{Path(sys.executable).parent}:{ours['PATH']}",
        "TMPDIR": str(folder / "scratch"),
        "HOME": str(folder),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        **more,
    }


def dagster_home(folder: Path) -> str:
    """An empty DAGSTER_HOME that tells nobody of itself."""
    home = folder / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return str(home)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a program, which must have succeeded."""
    assert done.returncode == 0, f"{done.args}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout

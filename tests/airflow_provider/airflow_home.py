"""The environment and the migrated database that an Airflow home needs before its first process.

The migrated database is in a directory of this user, where every lab of this machine can reuse it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

from lab_resources import cache

AIRFLOW = str(Path(sys.executable).with_name("airflow"))
#: Its `sitecustomize.py` changes what costs much time in tests and has no setting.
AIRFLOW_PATCHES = Path(__file__).with_name("airflow_patches")


def clean_environment() -> dict[str, str]:
    """Return our environment without any Airflow's settings. A component imports for 2 s with bytecode, 5 s without."""
    ours = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours | {"PYTHONPATH": os.pathsep.join(filter(None, (str(AIRFLOW_PATCHES), ours.get("PYTHONPATH"))))}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def template(name: str, suffix: str, make: Callable[[Path], None]) -> tuple[Path, bool]:
    """Return a file kept for this set of distributions, and whether this call has made it.

    :param make: writes the file, in a directory of its own; called by the first process that asks.
    """
    # Any distribution may bring migrations or rows that the migration writes.
    names = sorted(f"{dist.name}=={dist.version}" for dist in distributions() if "airflow" in dist.name.lower())
    kept = cache() / f"{name}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}{suffix}"
    with _locked(kept.with_suffix(".lock")):
        if kept.exists():
            return kept, False
        with tempfile.TemporaryDirectory(dir=cache()) as home:
            fresh = Path(home, f"fresh{suffix}")
            make(fresh)
            fresh.rename(kept)
    return kept, True


def template_database() -> Path:
    """A migrated SQLite database."""

    def make(fresh: Path) -> None:
        env = clean_environment() | {"AIRFLOW_HOME": str(fresh.parent), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        migrate(env | {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{fresh}"})
        # Readers need not wait for the writer then; the file remembers it.
        with contextlib.closing(sqlite3.connect(fresh)) as db:
            db.execute("PRAGMA journal_mode=WAL")

    return template("metadata-wal", ".db", make)[0]


def migrate(env: Mapping[str, str]) -> None:
    """Runs `airflow db migrate`."""
    done = subprocess.run([AIRFLOW, "db", "migrate"], env=dict(env), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"airflow db migrate failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

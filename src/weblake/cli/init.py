"""The command init, which makes a small project from the templates beside this module."""

from __future__ import annotations

import shlex
import shutil
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.cli.app import Json
from weblake.errors import StorageRefused

TEMPLATES = Path(__file__).with_name("templates")


class Kind(str, Enum):
    """What runs the project's loads: Python, Airflow or Dagster."""

    plain = "plain"
    airflow = "airflow"
    dagster = "dagster"


def init(
    kind: Annotated[
        Kind, typer.Argument(metavar="plain|airflow|dagster", help="A script, a DAG, or a Dagster project.")
    ] = Kind.plain,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to make it: a new or an empty folder.", show_default=False)
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Makes a project that runs at once: a list of URLs, a load of them, a test without the network, a README.

    Without FOLDER it is made in the current folder, which must be empty.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise StorageRefused(f"{folder.absolute()} is not an empty folder.", hint="Name a new or an empty one.")
        for name in ("common", kind.value):
            shutil.copytree(
                TEMPLATES / name, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
            )
    except OSError as error:
        raise StorageRefused(f"{folder.absolute()} cannot be written: {error.strerror or error}.") from None
    made = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    if as_json:
        output.show_json({"folder": str(folder.absolute()), "kind": kind.value, "files": made})
        return
    for name in made:
        output.show_text(str(folder / name))
    readme = shlex.quote(str(folder / "README.md"))
    output.note(f"Next: `weblake doctor`, then the commands in {escape(readme)}.")

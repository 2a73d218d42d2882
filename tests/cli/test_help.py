"""Tests of the help of each command in narrow terminals without colour, and of shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from command_in_process import run_command
from typer.main import get_command

from weblake import cli
from weblake.cli.app import MIN_TABLE_WIDTH, app

#: Words of the usage that have an ellipsis of their own.
USAGE = {"[URL…]...", "{URL…}...", "URL…", "{FILE…}...", "FILE…"}


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command below a group with its name."""
    yield names, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *names, name)


@pytest.mark.parametrize(("width", "markup"), [(60, None), (MIN_TABLE_WIDTH, "markdown")])
def test_each_help_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, markup: str | None
) -> None:
    cli._commands()  # adds the commands to the app
    monkeypatch.setattr(app, "rich_markup_mode", markup)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    root = get_command(app)
    for names, command in commands(root):
        root.main([*names, "--help"], prog_name="weblake", standalone_mode=False)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert max(len(line.rstrip()) for line in out.splitlines()) <= width, names
        texts = [command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)]
        cut = {word for word in out.replace("│", " ").split() if word.endswith(("…", "..."))}
        assert cut <= {"[ARGS]...", *USAGE, *" ".join(texts).split()}, names
        assert all(parameter.opts[0] in out for parameter in command.params if parameter.param_type_name == "option")


def test_a_narrow_terminal_gets_help_without_a_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weblake", "serve", "--help"],
        env={**os.environ, "COLUMNS": "60"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "  --requests-per-minute N  Maximum" in done.stdout


@pytest.mark.parametrize(
    ("line", "completed"),
    [("weblake orp", "orphans"), ("weblake batch --max-c", "--max-credits"), ("weblake init d", "dagster")],
)
def test_a_shell_completes_commands_options_and_values(line: str, completed: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert run_command([], {"_WEBLAKE_COMPLETE": "complete_bash", **words})[1].split() == [completed]

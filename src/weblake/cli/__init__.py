"""The entry point of the command line: its streams, its errors and its exit codes.

The module of a command is imported when the command is run, and imports most of what it needs then: `weblake serve`
does not load what lands data, and `weblake --help` does not load Arrow.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from weblake.cli import interrupts
from weblake.errors import InvalidOption, RetryLater, StorageRefused, WeblakeError

_JSON, _NEW = "--json", "--new"
#: The commands in the order of the help: their group, their module, and the functions; a name may end with `_`.
_COMMANDS = (
    ("", "single_pages", "scrape", "parse"),
    ("", "landing", "batch", "crawl", "land", "loads", "changes"),
    ("", "orphans", "orphans"),
    ("", "jobs", "status", "cancel", "errors"),
    ("", "discovery", "map_", "search", "crawls", "preview"),
    ("", "reports", "usage", "activity"),
    ("browser", "remote_browsers", "create", "list_", "execute", "close"),
    ("", "remote_browsers", "interact", "stop"),
    ("", "local", "serve", "demo"),
    ("", "init", "init"),
    ("", "doctor", "doctor"),
    ("table", "tables", "add", "sync", "status", "list_", "remove"),
    ("webhook", "local", "verify"),
)


def main() -> None:
    """Run the command line; exit with 0 (complete), 1 (failed), 2 (bad usage) or 130 (interrupted)."""
    with interrupts.end_on_ctrl_c():
        _open_streams()
        _run(_commands(*sys.argv[1:2]))


def _commands(name: str = "") -> Callable[..., object]:
    """Return the command line with the command or group of this name; with all of them if there is none."""
    from typer.main import get_command

    from weblake.cli.app import app

    for each in [each for each in _COMMANDS if name and name in (each[0], *each[2:])] or _COMMANDS:
        _add_commands(each)
    return get_command(app)


@cache
def _add_commands(commands: tuple[str, ...]) -> None:
    from weblake.cli.app import GROUPS, add_command

    group, module, *names = commands
    for name in names:
        add_command(GROUPS[group], getattr(import_module(f"weblake.cli.{module}"), name))


def _run(commands: Callable[..., object]) -> None:
    from weblake.cli.app import BAD_USAGE, FAILED, Interrupted
    from weblake.cli.remedies import in_command_line_terms
    from weblake.output import WARNINGS, show_error

    logging.getLogger("weblake").addHandler(WARNINGS)
    try:
        with in_command_line_terms():
            commands(prog_name="weblake")
    except WeblakeError as error:
        with _keep_exit_code():
            show_error(error, as_json=_JSON in sys.argv[1:])
        if isinstance(error, Interrupted):
            sys.exit(error.exit_code)
        sys.exit(BAD_USAGE if isinstance(error, InvalidOption) else FAILED)
    except SystemExit as end:
        if end.code == BAD_USAGE and _JSON in sys.argv[1:]:
            with _keep_exit_code():
                _show_bad_usage(end.__context__)
        raise
    except BrokenPipeError:
        # The reader of the output has ended; Python would report it again while it closes the stream.
        sys.stderr.close()
        sys.exit(FAILED)
    except (MemoryError, RuntimeError, OSError) as error:
        lack = _resource_error(error)
        if lack is None:
            raise
        show_error(lack, as_json=_JSON in sys.argv[1:] and not isinstance(error, OSError))
        if isinstance(error, OSError):
            sys.stdout = _open_null_device("w")  # its disk may be full, and Python would flush it again at the end
        sys.exit(FAILED)


@contextmanager
def _keep_exit_code() -> Iterator[None]:
    """Ignore that the block cannot write to standard output, whose reader has ended or whose disk is full."""
    try:
        yield
    except OSError:
        sys.stdout = _open_null_device("w")  # Python would flush it again at the end, and exit with another code


def _resource_error(error: Exception) -> WeblakeError | None:
    """Return the error for a lack of memory, disk or threads on this machine; None for any other exception."""
    hint = "No incomplete load is visible. Correct this and run the command again: it continues."
    if _NEW in sys.argv[1:]:  # the same command would pay for another job
        hint += " In place of --new give the --key that `weblake orphans` shows for this load."
    if isinstance(error, MemoryError):
        return RetryLater("There was not enough memory.", hint=hint)
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return StorageRefused(f"The system says: {error.strerror or error}{where}.", hint=hint)
    return RetryLater("The system cannot start another thread.", hint=hint) if "new thread" in str(error) else None


def _open_streams() -> None:
    """Open the null device for each closed standard stream, before another file gets its descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _open_null_device(mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is not an error


def _open_null_device(mode: str) -> IO[str]:
    return cast("IO[str]", Path(os.devnull).open(mode, encoding="utf-8"))


def _show_bad_usage(cause: BaseException | None) -> None:
    """Write the error as JSON; typer has written it as text."""
    from weblake.output import show_json

    words = getattr(cause, "format_message", None)  # typer's own errors have it, and no public class
    said = words() if callable(words) else "The command line is not valid."
    show_json({"error": InvalidOption(str(said), hint="See --help.").to_dict()})

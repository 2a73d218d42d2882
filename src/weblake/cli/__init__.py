"""The command line. Each group of commands is a room of its own; they import what they need when they run, so that
`weblake --help` does not wait for Arrow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from weblake.cli import interrupts
from weblake.errors import InvalidOption, RetryLater, StorageRefused, WeblakeError

_JSON = "--json"


def main() -> None:
    """Runs the command that was typed; exits with 0 (whole), 1 (failed), 2 (bad usage) or 130 (interrupted)."""
    with interrupts.ctrl_c_ends():
        _open_streams()
        _run(_commands())


def _commands() -> Callable[..., None]:
    """All commands in one tree."""
    from weblake.cli import compaction, discovery, jobs, landing, local, orphans, remote_browsers, reports, single_pages
    from weblake.cli.tree import app

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    for room in (single_pages, landing, orphans, compaction, jobs, discovery, reports, remote_browsers, local):
        room.register(app)
    return app


def _run(app: Callable[..., None]) -> None:
    from weblake.cli.remedies import in_command_line_terms
    from weblake.cli.tree import BAD_USAGE, FAILED, Interrupted
    from weblake.output import show_error

    try:
        with in_command_line_terms():
            app(prog_name="weblake")
    except WeblakeError as error:
        show_error(error, as_json=_JSON in sys.argv[1:])
        if isinstance(error, Interrupted):
            sys.exit(error.exit_code)
        sys.exit(BAD_USAGE if isinstance(error, InvalidOption) else FAILED)
    except SystemExit as end:
        if end.code == BAD_USAGE and _JSON in sys.argv[1:]:
            _show_bad_usage(end.__context__)
        raise
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more while it closes the stream.
        sys.stderr.close()
        sys.exit(FAILED)
    except (MemoryError, RuntimeError, OSError) as error:
        lack = _lack(error)
        if lack is None:
            raise
        show_error(lack, as_json=_JSON in sys.argv[1:] and not isinstance(error, OSError))
        if isinstance(error, OSError):
            sys.stdout = _nothing("w")  # it may be the one that is full, and Python would try once more at its end
        sys.exit(FAILED)


def _lack(error: Exception) -> WeblakeError | None:
    """What the machine did not give, in words. Of storages and services their own rooms speak before this."""
    hint = "Nothing half is visible. Mend that and run it again: it goes on from there."
    if isinstance(error, MemoryError):
        return RetryLater("There was not enough memory.", hint=hint)
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return StorageRefused(f"The system says: {error.strerror or error}{where}.", hint=hint)
    return RetryLater("The system starts no more threads.", hint=hint) if "new thread" in str(error) else None


def _open_streams() -> None:
    """Puts nothing in the place of a standard stream that is closed, before a file of ours gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nothing(mode))


def _nothing(mode: str) -> IO[str]:
    return cast("IO[str]", Path(os.devnull).open(mode, encoding="utf-8"))


def _show_bad_usage(cause: BaseException | None) -> None:
    """The object that a program waits for; the words for people have been printed."""
    from weblake.output import show_json

    words = getattr(cause, "format_message", None)  # typer's own errors have it, and no public class
    said = words() if callable(words) else "The command line is not valid."
    show_json({"error": InvalidOption(str(said), hint="See --help.").to_dict()})

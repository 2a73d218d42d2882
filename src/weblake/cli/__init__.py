"""The command line. Each group of commands is a room of its own; they import what they need when they run, so that
`weblake --help` does not wait for Arrow."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from weblake.errors import InvalidOption, RetryLater, WeblakeError

_JSON = "--json"


def main() -> None:
    """Runs the command that was typed; exits with 0 (whole), 1 (failed), 2 (bad usage) or 130 (interrupted)."""
    from weblake.cli import discovery, jobs, landing, local, orphans, remote_browsers, reports, single_pages
    from weblake.cli.tree import BAD_USAGE, FAILED, INTERRUPTED, Interrupted, app
    from weblake.shown import show_error

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    for room in (single_pages, landing, orphans, jobs, discovery, reports, remote_browsers, local):
        room.register(app)
    try:
        app(prog_name="weblake")
    except WeblakeError as error:
        show_error(error, as_json=_JSON in sys.argv[1:])
        if isinstance(error, Interrupted):
            sys.exit(error.exit_code)
        sys.exit(BAD_USAGE if isinstance(error, InvalidOption) else FAILED)
    except MemoryError:
        hint = "Nothing half is visible. Give it more memory and run it again: it goes on from there."
        show_error(RetryLater("There was not enough memory.", hint=hint), as_json=_JSON in sys.argv[1:])
        sys.exit(FAILED)
    except SystemExit as end:
        if end.code == BAD_USAGE and _JSON in sys.argv[1:]:
            _show_bad_usage(end.__context__)
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more while it closes the stream.
        sys.stderr.close()
        sys.exit(FAILED)


def _show_bad_usage(cause: BaseException | None) -> None:
    """The object that a program waits for; the words for people have been printed."""
    from weblake.shown import show_json

    words = getattr(cause, "format_message", None)  # typer's own errors have it, and no public class
    said = words() if callable(words) else "The command line is not valid."
    show_json({"error": InvalidOption(str(said), hint="See --help.").to_dict()})

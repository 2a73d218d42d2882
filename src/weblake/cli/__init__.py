"""The command line. Each group of commands is a room of its own; they import what they need when they run, so that
`weblake --help` does not wait for Arrow."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from weblake.errors import InvalidOption, WeblakeError

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130


def main() -> None:
    """Runs the command that was typed; exits with 0 (whole), 1 (failed) or 2 (bad usage)."""
    from weblake.cli import discovery, jobs, landing, local, remote_browsers, reports
    from weblake.cli.tree import app
    from weblake.shown import show_error

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    for room in (landing, jobs, discovery, reports, remote_browsers, local):
        room.register(app)
    try:
        app(prog_name="weblake")
    except WeblakeError as error:
        show_error(error, as_json="--json" in sys.argv[1:])
        sys.exit(BAD_USAGE if isinstance(error, InvalidOption) else FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more while it closes the stream.
        sys.stderr.close()
        sys.exit(FAILED)

"""The command line in the process of the test: a process of its own takes 0.5 s of CPU for imports."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from unittest import mock


def run_command(args: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run `weblake` with these arguments, `env` in addition to the environment, and an empty standard input.

    Return its exit code, standard output and standard error.
    """
    from weblake import cli

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    code = 0
    with (
        mock.patch.dict(os.environ, env),
        mock.patch.object(sys, "argv", ["weblake", *args]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return code, out, err

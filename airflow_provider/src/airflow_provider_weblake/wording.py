"""The core's hints in the words of a DAG: it speaks of flags of the command line, and here there are none.

Imports: weblake.errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weblake.errors import WeblakeError

#: Longest first: a flag may be the beginning of another.
_WORDS = (
    ("Run the same command again", "Retry or clear the task"),
    ("start afresh with --new", "trigger a new DAG run"),
    ("`weblake land` it", "land it with WeblakeLandOperator"),
    ("`weblake land`", "WeblakeLandOperator"),
    ("in `weblake activity`", "with WeblakeActivityOperator"),
    ("--new starts another job", "clearing the task starts another job"),
    ("--new starts another one", "clearing the task starts another one"),
    ("--new tries again", "clearing the task tries again"),
    ("Land this job with another --key.", "Land this job into another root."),
    ("--allow-partial", "allow_partial=True"),
    ("--missing-ratio", "missing_ratio"),
    ("--fail-ratio", "fail_ratio"),
    ("--max-credits", "max_credits"),
    ("--timeout", "deadline"),
    ("--column", "column"),
    (
        "with --insecure (WEBLAKE_INSECURE=1)",
        "in the connection's extra: insecure",
    ),
    ("from WEBLAKE_BASE_URL", "as the connection's host"),
    ("WEBLAKE_BASE_URL", "the connection's host"),
    ("WEBLAKE_API_KEY", "the connection's password"),
    ("--new", "a new DAG run"),
)


@contextmanager
def speaking() -> Iterator[None]:
    """Lets errors through with hints that a DAG's author can follow."""
    try:
        yield
    except WeblakeError as error:
        error.hint = in_words_of_a_dag(error.hint)
        raise


def in_words_of_a_dag(hint: str) -> str:
    """The hint with operator parameters in place of flags."""
    for flag, word in _WORDS:
        hint = hint.replace(flag, word)
    return hint

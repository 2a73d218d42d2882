"""The core's hints in the words of a Dagster project: it speaks of flags of the command line, and here are none.

Imports: weblake.errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weblake.errors import WeblakeError

#: Longest first: a flag may be the beginning of another.
_WORDS = (
    ("Run the same command again", "Re-execute the run from failure"),
    ("start afresh with --new", "materialize the asset anew"),
    ("`weblake land` it", "land it with an asset of a JobRequest"),
    ("in `weblake activity`", "with an asset of an ActivityRequest"),
    ("--new starts another job", "materializing the asset anew starts another job"),
    ("--new starts another one", "materializing the asset anew starts another one"),
    ("--new tries again", "materializing the asset anew tries again"),
    ("Land this job with another --key.", "Land this job into another root."),
    ("--allow-partial", "allow_partial=True"),
    ("--missing-ratio", "missing_ratio"),
    ("--fail-ratio", "fail_ratio"),
    ("--max-credits", "max_credits"),
    ("--timeout", "deadline"),
    ("--column", "column"),
    ("with --insecure (WEBLAKE_INSECURE=1)", "with WeblakeResource(insecure=True)"),
    ("--new", "a new run"),
)


@contextmanager
def speaking() -> Iterator[None]:
    """Lets errors through with hints that fit a Dagster project."""
    try:
        yield
    except WeblakeError as error:
        error.hint = in_words_of_dagster(error.hint)
        raise


def in_words_of_dagster(hint: str) -> str:
    """The hint with names of this package in place of flags."""
    for flag, word in _WORDS:
        hint = hint.replace(flag, word)
    return hint

"""Hints without a command line: the core speaks of flags and commands, and an integration has other names for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from weblake.errors import WeblakeError

#: Flags that every integration has as a parameter.
PARAMETERS = {
    "--allow-partial": "allow_partial=True",
    "--missing-ratio": "missing_ratio",
    "--fail-ratio": "fail_ratio",
    "--max-credits": "max_credits",
    "--timeout": "deadline",
    "--column": "column",
}


class Words:
    """How one integration says what the core's hints say."""

    def __init__(self, words: Mapping[str, str]) -> None:
        # Longest first: a flag may be the beginning of another text.
        self._words = sorted((PARAMETERS | dict(words)).items(), key=lambda pair: -len(pair[0]))

    def __call__(self, hint: str) -> str:
        """The hint in these words."""
        for text, word in self._words:
            hint = hint.replace(text, word)
        return hint

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Lets errors through with hints in these words."""
        try:
            yield
        except WeblakeError as error:
            error.hint = self(error.hint)
            raise

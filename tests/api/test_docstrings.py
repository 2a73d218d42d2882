"""Tests of the completion of docstrings; tests/docs/test_reference.py has those of all public classes and functions."""

from __future__ import annotations

from typing import Unpack

from weblake.api.docstrings import complete, document, entries
from weblake.options import ActivityOptions


class Base:
    """A base.

    :param to: Where
        to.
    :param again: Whether again.
    """

    def __init__(self, *, to: str, again: bool = False) -> None:
        self.to, self.again = to, again


class Derived(Base):
    """Does it.

    :param to: Elsewhere.
    """


def call(cursor: str, **options: Unpack[ActivityOptions]) -> None:
    """Call it.

    Args:
        cursor: Where it
            goes on.

    Raises:
        ValueError: Never.
    """


def test_a_class_gets_what_its_bases_describe_and_keeps_its_own() -> None:
    document(Derived)
    completed = "Does it.\n\n:param to: Elsewhere.\n:param again: Whether again. Default False."
    assert (Derived(to="x").__doc__, Derived.__doc__) == (completed, completed)
    assert complete(Derived).__doc__ == completed
    assert entries(Base) == {"to": "Where to.", "again": "Whether again."}


def test_a_function_gets_its_options_after_its_own_arguments() -> None:
    doc = complete(call).__doc__ or ""
    assert list(entries(call)) == ["cursor", "endpoint", "limit"]
    assert entries(call)["limit"] == "An integer from 1 to 100."
    assert doc.index("limit") < doc.index("Raises:") < doc.index("Never.")


def test_a_class_without_a_docstring_is_left_without_one() -> None:
    undocumented = type("Undocumented", (), {"__module__": "elsewhere"})
    document(undocumented)
    assert undocumented.__doc__ is None

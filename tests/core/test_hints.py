"""Hints in the words of an integration: what is said otherwise, and what goes through as it is."""

from __future__ import annotations

import pytest

from weblake.errors import LoadIncomplete, WeblakeError
from weblake.hints import Words

speaking = Words({"--new": "a new run", "--new starts another": "a new run starts another"}).speaking


def test_errors_go_through_with_their_hint_in_other_words_and_nothing_else_changed() -> None:
    error = LoadIncomplete("3 of 4 pages arrived.", hint="--allow-partial publishes what there is.")
    with pytest.raises(LoadIncomplete) as caught, speaking():
        raise error
    assert caught.value is error
    assert str(error) == "3 of 4 pages arrived. allow_partial=True publishes what there is."
    with pytest.raises(ZeroDivisionError), speaking():
        _ = 1 / 0


def test_an_error_without_a_hint_stays_without() -> None:
    with pytest.raises(WeblakeError) as caught, speaking():
        raise WeblakeError("It is over.")
    assert str(caught.value) == "It is over."

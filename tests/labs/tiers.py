"""The share of a sweep that each test tier runs: a seeded part in `.ci/run`, all of it in `.ci/nightly`."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import pytest

T = TypeVar("T")

#: The seed that selects the part. Another seed selects other points.
SEED = os.environ.get("WEBLAKE_SWEEP_SEED", "22")


def swept(one_in: int) -> pytest.MarkDecorator:
    """Parametrise a test with `one_in`: as given under the id "part", and 1 under "all", which is `nightly`."""
    everything = pytest.param(1, id="all", marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])
    return pytest.mark.parametrize("one_in", [pytest.param(one_in, id="part"), everything])


def part(points: Sequence[T], one_in: int, seed: str = "") -> list[T]:
    """Return every nth point from a seeded one on, and the last, which is beyond the commit, in their order."""
    first = random.Random(SEED + seed).randrange(min(one_in, len(points)))
    chosen = {*range(first, len(points), one_in), len(points) - 1}
    return [points[n] for n in sorted(chosen)]


def examples(nightly: int, one_in: int = 5) -> int:
    """Return how many examples a property test tries: all under hypothesis' profile `nightly`, else one in `one_in`."""
    with suppress(ModuleNotFoundError):  # the smoke tests run without it
        from hypothesis import settings

        if settings.get_current_profile_name() == "nightly":
            return nightly
    return max(1, nightly // one_in)

"""Many loads with faults in one of twenty requests: the counts add up, and nothing is left behind.

Three rounds under `system`, sixty under `nightly`. `uv run python benchmarks/soak.py --minutes 10` runs longer; its
figures are in docs/development/soak.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogue import proves
from soak_accounting import check_counts, growth
from soak_lab import running_soak


@proves(
    "2.5",
    at="src/weblake/loads/starts.py",
    line="operation = replace(operation, repeatable=True)",
    becomes="operation = replace(self._build(str(__import__('uuid').uuid4())), repeatable=True)",
    case="3",
)
@proves(
    "5.3",
    at="src/weblake/storage/scratch.py",
    line="            os.close(owner)",
    becomes="            pass",
    case="3",
)
@proves(
    "5.3",
    at="src/weblake/storage/scratch.py",
    line="    drop = partial(shutil.rmtree, directory, ignore_errors=True)",
    becomes="    drop = list",
    case="3",
)
@pytest.mark.system
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, marks=pytest.mark.timeout(1800)),
        pytest.param(60, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_the_counts_of_a_soak_add_up_and_nothing_is_left_behind(tmp_path: Path, rounds: int) -> None:
    with running_soak(tmp_path) as soak:
        # By chance alone, few starts would be lost in so short a time.
        soak.service.faults.add(drop_after=True, method="POST", path="/v2/batch/scrape$", times=3)
        for _ in range(rounds):
            soak.round(6)
        check_counts(soak)
    assert growth(soak.measurements) == []

"""Any order of writers, crashes, restarts, trouble and clears: what is visible is what was served, paid for once.

A few dozen orders by default, hundreds under `nightly`.
"""

from __future__ import annotations

import pytest
from catalogue import proves
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from lake_machine import LakeMachine

QUIET = settings(
    max_examples=30,
    stateful_step_count=20,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.fixture(autouse=True)
def haste() -> None:
    """The clock is virtual: the real waits cost nothing."""


@proves("2.2", at="src/weblake/loads/starts.py", line="    if found:", becomes="    if False:")
@proves(
    "2.2", at="src/weblake/loads/recovery.py", line="    for other in older:", becomes="    for other in older[:0]:"
)
@proves("2.2", at="src/weblake/loads/completeness.py", line='if receipt.status != "completed":', becomes="if False:")
def test_any_order_of_writers_and_crashes() -> None:
    run_state_machine_as_test(LakeMachine, settings=QUIET)


def test_a_case_plays_again_exactly() -> None:
    """The same requests at the same times with the same faults: else a case that fails cannot be made smaller."""

    def played() -> list[list[tuple[object, ...]]]:
        heard = []

        class Heard(LakeMachine):
            def teardown(self) -> None:
                super().teardown()
                heard.append(self.world.heard)

        few = settings(QUIET, max_examples=3, database=None, derandomize=True, phases=[Phase.generate])
        run_state_machine_as_test(Heard, settings=few)
        return heard

    first = played()
    assert sum(map(len, first)) > 100
    assert played() == first


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_any_order_of_writers_and_crashes_hundreds_of_times() -> None:
    run_state_machine_as_test(LakeMachine, settings=settings(QUIET, max_examples=400, stateful_step_count=30))

"""`tests/sabotage.py` distinguishes a change that breaks a promise from one that breaks none, or breaks the import.

Under `nightly` it makes every change of the catalogue.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from catalogue import TESTS, Proof, proofs
from forked_pytest import ForkedPytest

pytestmark = pytest.mark.system

COMMAND = TESTS / "sabotage.py"


@pytest.fixture(scope="module")
def sabotage() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sabotage", COMMAND)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def proof() -> Proof:
    return next(proof for proof in proofs() if proof.number == "H5" and proof.file == "tests/jobs/test_retry.py")


@pytest.fixture(scope="module")
def forked_pytest() -> Iterator[ForkedPytest]:
    with ForkedPytest() as running:
        yield running


def test_a_change_that_breaks_the_promise_fails(
    sabotage: ModuleType, proof: Proof, forked_pytest: ForkedPytest
) -> None:
    failed, report = sabotage.fails(proof, forked_pytest)
    assert failed, report
    assert report, "it does not say what failed"


def test_a_change_without_effect_passes(sabotage: ModuleType, proof: Proof, forked_pytest: ForkedPytest) -> None:
    changed = replace(proof, becomes=f"{proof.line}  # the same")
    assert sabotage.fails(changed, forked_pytest) == (False, "it passes under the change")


def test_a_change_that_breaks_the_import_proves_nothing(
    sabotage: ModuleType, proof: Proof, forked_pytest: ForkedPytest
) -> None:
    failed, report = sabotage.fails(replace(proof, becomes="if not (:"), forked_pytest)
    assert not failed
    assert "SyntaxError" in report or "invalid syntax" in report


def test_a_test_that_fails_anyway_proves_nothing(
    sabotage: ModuleType, proof: Proof, forked_pytest: ForkedPytest
) -> None:
    failed, report = sabotage.fails(replace(proof, test="test_that_is_not_there"), forked_pytest)
    assert not failed
    assert "does not pass without the change" in report


def test_the_tenths_are_disjoint_and_complete(sabotage: ModuleType) -> None:
    divided = [str(proof) for number in range(10) for proof in sabotage.in_tenth(proofs(), number)]
    assert set(map(str, sabotage.in_tenth(proofs(), 13))) == set(map(str, sabotage.in_tenth(proofs(), 3)))
    assert sorted(divided) == sorted(map(str, proofs()))


def test_the_command_reports_it_and_leaves_the_sources_unchanged(proof: Proof) -> None:
    before = {path: path.read_bytes() for path in (TESTS.parent / "src").rglob("*.py")}
    ran = subprocess.run([sys.executable, COMMAND, "2.1"], capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PASSES" not in ran.stdout
    assert len(re.findall(r"^2\.1   fails ", ran.stdout, re.MULTILINE)) == len(
        [each for each in proofs() if each.number == "2.1"]
    )
    assert before == {path: path.read_bytes() for path in (TESTS.parent / "src").rglob("*.py")}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", dict.fromkeys(proof.number for proof in proofs()))
def test_each_change_makes_its_test_fail(number: str) -> None:
    ran = subprocess.run([sys.executable, COMMAND, number], capture_output=True, text=True, timeout=3500)
    assert ran.returncode == 0, ran.stdout + ran.stderr

"""The command that shows the red: it tells a change that breaks a promise from one that breaks none, or breaks all.

Under `nightly` it makes every change of the catalogue.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from catalogue import TESTS, Proof, proofs

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


def test_a_change_that_breaks_the_promise_is_red(sabotage: ModuleType, proof: Proof) -> None:
    is_red, told = sabotage.red(proof)
    assert is_red, told
    assert told, "it does not say what failed"


def test_a_change_without_effect_is_green(sabotage: ModuleType, proof: Proof) -> None:
    assert sabotage.red(replace(proof, becomes=f"{proof.line}  # the same")) == (False, "it stayed green")


def test_a_change_that_breaks_the_import_proves_nothing(sabotage: ModuleType, proof: Proof) -> None:
    is_red, told = sabotage.red(replace(proof, becomes="if not (:"))
    assert not is_red
    assert "SyntaxError" in told or "invalid syntax" in told


def test_the_command_reports_it_and_leaves_the_sources_unchanged(proof: Proof) -> None:
    before = {path: path.read_bytes() for path in (TESTS.parent / "src").rglob("*.py")}
    ran = subprocess.run([sys.executable, COMMAND, "2.1"], capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "GREEN" not in ran.stdout
    assert ran.stdout.count("\n2.1   red ") == len([each for each in proofs() if each.number == "2.1"])
    assert before == {path: path.read_bytes() for path in (TESTS.parent / "src").rglob("*.py")}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", dict.fromkeys(proof.number for proof in proofs()))
def test_each_change_makes_its_test_fail(number: str) -> None:
    ran = subprocess.run([sys.executable, COMMAND, number], capture_output=True, text=True, timeout=3500)
    assert ran.returncode == 0, ran.stdout + ran.stderr

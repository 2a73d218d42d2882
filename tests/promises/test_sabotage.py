"""`tests/sabotage.py` distinguishes a change that breaks a promise from one that breaks none, or breaks the import.

Under `nightly` it makes every change of the catalogue.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from catalogue import REPOSITORY, TESTS, Proof, proofs
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


@pytest.mark.parametrize(
    ("change", "fails", "says"),
    [
        pytest.param({}, True, "", id="breaks the promise"),
        pytest.param({"becomes": "{line}  # the same"}, False, "it passes under the change", id="without effect"),
        pytest.param({"becomes": "if not (:"}, False, "invalid syntax", id="breaks the import"),
        pytest.param({"test": "test_that_is_not_there"}, False, "does not pass without the change", id="fails anyway"),
    ],
)
def test_only_a_change_that_breaks_the_promise_fails(
    sabotage: ModuleType, proof: Proof, forked_pytest: ForkedPytest, change: dict[str, str], fails: bool, says: str
) -> None:
    before = (REPOSITORY / proof.at).read_text()
    given = {name: text.format(line=proof.line) for name, text in change.items()}
    failed, report = sabotage.fails(replace(proof, **given), forked_pytest)
    assert failed == fails, report
    assert report, "it does not say what failed"
    assert says in report
    assert (REPOSITORY / proof.at).read_text() == before, "the sources are unchanged"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", dict.fromkeys(proof.number for proof in proofs()))
def test_each_change_makes_its_test_fail(number: str) -> None:
    ran = subprocess.run([sys.executable, COMMAND, number], capture_output=True, text=True, timeout=3500)
    assert ran.returncode == 0, ran.stdout + ran.stderr

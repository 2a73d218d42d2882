"""Every row of the fault catalogue and every sentence of docs/development/promises.md has a proof that can fail."""

from __future__ import annotations

import re

import pytest
from catalogue import COLLECTED, FAULTS, REPOSITORY, proofs

PROMISE = (REPOSITORY / "docs/development/promises.md").read_text()
#: The numbered entries of docs/development/promises.md: a sentence of a promise, or a row that cannot be proven.
SAID = dict(re.findall(r"^- \*\*(\d\.\d+|[HPOS]\d+)\*\* (.+)$", PROMISE, re.MULTILINE))
SENTENCES = {number: text for number, text in SAID.items() if number[0].isdigit()}
PROOFS = proofs()


@pytest.mark.parametrize("number", FAULTS)
def test_a_row_has_a_test_named_after_it_or_a_reason(number: str) -> None:
    mine = [proof for proof in PROOFS if proof.number == number]
    if not mine:
        assert number in SAID, f"{number} ({FAULTS[number]}) has no proof, and promises.md gives no reason"
    for proof in mine:
        assert f"_{number.lower()}_" in f"{proof.test}_", f"{proof.node} does not have {number} in its name"


@pytest.mark.parametrize("number", SENTENCES)
def test_a_sentence_names_a_file_that_contains_its_proof(number: str) -> None:
    text = SENTENCES[number]
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    rows = {number, *re.findall(r"\b[HPOS]\d+\b", text)}
    holding = {proof.file for proof in PROOFS if proof.number in rows}
    assert named, f"{number} names no test"
    assert named & holding, f"{number}: none of {sorted(named)} proves one of {sorted(rows)}"
    assert all((REPOSITORY / name).is_file() for name in named), f"{number} names a test file that does not exist"


def test_the_line_changed_by_a_proof_occurs_once() -> None:
    for proof in PROOFS:
        assert proof.number in FAULTS.keys() | SENTENCES.keys(), f"{proof.node} proves a number that does not exist"
        compile(proof.sabotaged((REPOSITORY / proof.at).read_text()), proof.at, "exec")


def test_a_proof_names_a_test_that_exists(request: pytest.FixtureRequest) -> None:
    """As far as this run collects the files of the proofs, which a run of a whole tier does."""
    collected = request.config.stash[COLLECTED]
    of_some_tests = {name.partition("::")[0] for name in request.config.args if "::" in name}
    files = {node.partition("::")[0] for node in collected} - of_some_tests
    tests = collected | {node.partition("[")[0] for node in collected}
    assert [proof.node for proof in PROOFS if proof.file in files and proof.node not in tests] == []

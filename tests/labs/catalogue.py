"""The fault catalogue: its rows, the tests that prove them, and for each test a source change that makes it fail.

A proof is a decorator of its test, which can be read without running the test:

    @proves("H8", at="src/weblake/http/transport.py", line="if short:", becomes="if False:")
    def test_h8_a_truncated_response_is_requested_again() -> None: ...

`tests/sabotage.py` makes that change in a copy of the sources and runs the test on it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

REPOSITORY = Path(__file__).parents[2]
TESTS = REPOSITORY / "tests"
#: The names of all tests that this run has collected, also of those that it deselects.
COLLECTED = pytest.StashKey[set[str]]()

T = TypeVar("T", bound=Callable[..., Any])

#: The faults by number: H in HTTP, P in a process, O under an orchestrator, S in security.
FAULTS = {
    "H1": "429 without Retry-After",
    "H2": "Retry-After of any value",
    "H3": "Retry-After as a date, and clocks that differ",
    "H4": "500, 502, 503, 504 on a read",
    "H5": "500, 502, 503, 504 on a start",
    "H6": "408, 425, 409",
    "H7": "400, 401, 402, 403, 404, 413, 422",
    "H8": "a connection that breaks before, in or after the headers",
    "H9": "truncated JSON in a response of the declared length",
    "H10": "decompression bombs, nested and wrong encodings",
    "H11": "a response one byte at a time",
    "H12": "a response that is not JSON, in another encoding, or empty",
    "H13": "TLS: expired, wrong host, self-signed, reset during the handshake",
    "H14": "an unknown host, a refused connection",
    "H15": "redirects",
    "H16": "`next` with another host or path",
    "H17": "`next` without end, or in a cycle",
    "H18": "chunks repeated, overlapping, missing, in another order",
    "H19": "documents that differ between two reads",
    "H20": "a job that expires during the download",
    "H21": "counters that do not add up",
    "H22": "a status that goes back, flaps, is unknown or absent",
    "H23": "unknown fields",
    "H24": "fields of the wrong type",
    "H25": "giant numbers, NaN, deep nesting, equal keys",
    "H26": "lone surrogates, NUL, bidi, invalid UTF-8",
    "H27": "documents of ten and of a hundred megabytes",
    "H28": "one URL twice",
    "H29": "a cancelled or failed job with documents",
    "H30": "URLs that the service refuses",
    "P1": "killed at any change of the root",
    "P2": "power loss: the order of syncs",
    "P3": "a disk that is full, fails or is read-only; too few file handles",
    "P4": "a root that is read-only, a link, a file, or gone",
    "P5": "two writers of one load",
    "P6": "two writers of two loads",
    "P7": "a reader while a load is published",
    "P8": "clocks that jump",
    "P9": "SIGTERM, SIGINT, a parent that dies",
    "P10": "a worker lost between a start's response and its record",
    "P11": "fork, threads, a closed event loop",
    "P12": "little memory",
    "P13": "a ledger record that is cut off, corrupt or of another version",
    "P14": "files of dead runs, many loads, staging on another file system",
    "O1": "a task's retry",
    "O2": "a task that is cleared",
    "O3": "a task marked failed or successful while it is deferred",
    "O4": "a triggerer that restarts, two that run one trigger",
    "O5": "two tries of one task alive",
    "O6": "a backfill that overlaps a scheduled run",
    "O7": "a thousand mapped shards",
    "O8": "an event that is lost, very large or forged",
    "O9": "a Dagster run terminated, retried, executed again; its child killed",
    "O10": "another release of the orchestrator",
    "S1": "the key in anything that is written",
    "S2": "the key sent to another origin",
    "S3": "plain http beyond loopback",
    "S4": "a webhook's signature in every wrong form",
    "S5": "a webhook delivered again",
    "S6": "ids and names with path traversal",
    "S7": "targets inside the network (SSRF)",
    "S8": "a service beyond loopback, without a key, or called by a browser",
    "S9": "decompression and parser bombs as pages and files",
    "S10": "deserialisation of untrusted data",
    "S11": "markup and formulas in a page's text",
}


def proves(number: str, *, at: str, line: str, becomes: str, case: str = "") -> Callable[[T], T]:
    """Mark a test as the proof of a row, or of a sentence of docs/development/promises.md such as `1.2`.

    In the file `at` the text `line`, which occurs there once and within one line, is replaced by `becomes`: then the
    test fails. `case` is the one parameter set that shows it, if a test has many.
    """

    def marked(test: T) -> T:
        return pytest.mark.proves(number, at=at, line=line, becomes=becomes, case=case)(test)  # type: ignore[no-any-return]

    return marked


@dataclass(frozen=True)
class Proof:
    """One test as the proof of one row."""

    number: str
    #: The test's file, relative to the repository.
    file: str
    test: str
    at: str
    line: str
    becomes: str
    case: str = ""

    @property
    def node(self) -> str:
        """Return the test's node id in pytest."""
        return f"{self.file}::{self.test}" + (f"[{self.case}]" if self.case else "")

    def sabotaged(self, text: str) -> str:
        """Return the source with the change made.

        Raises:
            ValueError: The line does not occur exactly once, or the change is empty or longer than a line.
        """
        if text.count(self.line) != 1:
            raise ValueError(f"{self.number}: {self.at} has {text.count(self.line)} times {self.line!r}")
        if "\n" in self.line + self.becomes or self.line == self.becomes:
            raise ValueError(f"{self.number}: {self.line!r} to {self.becomes!r} is no change of one line")
        return text.replace(self.line, self.becomes)


def sort_key(number: str) -> tuple[int, float, str]:
    """Return a sort key: the promise's sentences before the catalogue, and each by number."""
    letter = number[0] if number[0].isalpha() else ""
    return ("HPOS".index(letter) + 1 if letter else 0, float(number.lstrip("HPOS")), number)


def proofs() -> list[Proof]:
    """Return every proof of the test suite by number, read from the decorators without importing anything."""
    found = [proof for path in sorted(TESTS.rglob("test_*.py")) for proof in _of_file(path)]
    return sorted(found, key=lambda proof: (*sort_key(proof.number), proof.node))


def _of_file(path: Path) -> Iterator[Proof]:
    text = path.read_text()
    if "@proves(" not in text:
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "proves":
                    named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
                    number = ast.literal_eval(call.args[0])
                    yield Proof(number, str(path.relative_to(REPOSITORY)), node.name, **named)

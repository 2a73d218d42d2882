"""No hint that reaches a DAG's author speaks of the command line: every text of the core is read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import weblake
from airflow_provider_weblake.wording import in_words_of_a_dag, speaking
from weblake.errors import LoadIncomplete, WeblakeError

CORE = Path(weblake.__file__).parent
#: Rooms that no operator enters: the command line's own, the service's, and the two ways to the embedded service, which
#: a connection never means (it has a host).
ELSEWHERE = {"cli", "demo", "service", "shown.py", "embedded.py", "settings.py", "testing.py"}
#: Flags of commands that no operator stands for: `weblake ls --since`.
ONLY_ON_THE_COMMAND_LINE = {"--since"}
OF_THE_COMMAND_LINE = re.compile(r"--[a-z][a-z-]*|`weblake [a-z]+[^`]*`|WEBLAKE_[A-Z_]+|the same command")


def texts(path: Path) -> Iterator[str]:
    """The texts in a module that are no docstrings; of an f-string, what is written out in it."""
    tree = ast.parse(path.read_text())
    passed_over: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_over.add(node.value)
        elif isinstance(node, ast.JoinedStr) and node not in passed_over:
            passed_over.update(inner for inner in ast.walk(node) if inner is not node)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed_over:
            yield node.value


HINTS = sorted(
    {
        (f"{path.relative_to(CORE)}", text)
        for path in CORE.rglob("*.py")
        if path.relative_to(CORE).parts[0] not in ELSEWHERE
        for text in texts(path)
        if OF_THE_COMMAND_LINE.search(text)
    }
)


def test_there_are_hints_to_look_at() -> None:
    assert len(HINTS) >= 20
    said = " ".join(text for _, text in HINTS)
    for flag in ("--new", "--allow-partial", "--timeout", "--max-credits", "`weblake land`", "WEBLAKE_API_KEY"):
        assert flag in said


@pytest.mark.parametrize(("room", "hint"), HINTS, ids=[f"{room}:{text[:40]}" for room, text in HINTS])
def test_a_hint_speaks_of_parameters_and_the_connection(room: str, hint: str) -> None:
    left = set(OF_THE_COMMAND_LINE.findall(in_words_of_a_dag(hint)))
    assert left <= ONLY_ON_THE_COMMAND_LINE


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Run the same command again later; nothing is paid twice.", "Retry or clear the task later; nothing is paid"),
        ("If it is known, `weblake land` it; else start afresh with --new.", "land it with WeblakeLandOperator; else"),
        ("Land the right one with `weblake land`, or wait.", "Land the right one with WeblakeLandOperator, or"),
        ("--new starts another one.", "clearing the task starts another one."),
        ("Raise --max-credits, or ask for fewer pages.", "Raise max_credits, or ask"),
        ("Check WEBLAKE_BASE_URL and that the service is up.", "Check the connection's host and that"),
        ("Check WEBLAKE_API_KEY.", "Check the connection's password."),
    ],
)
def test_what_is_said_instead_can_be_followed(hint: str, said: str) -> None:
    assert said in in_words_of_a_dag(hint)


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

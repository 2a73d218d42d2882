"""The core's remedies, and its texts that use terms of the command line, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import weblake

CORE = Path(weblake.__file__).parent
#: Modules of the command line itself, and the terms of Python in errors.py.
ELSEWHERE = {"cli", "demo", "testing", "output.py", "errors.py"}
#: `weblake serve` has the same name in every interface.
COMMAND_LINE_TERM = re.compile(r"--[a-z][a-z-]*|`weblake (?!serve`)[^`]*`|WEBLAKE_[A-Z_]+|the same command")
_VARIABLE_NAME = re.compile(r"WEBLAKE_[A-Z_]+")


@dataclass(frozen=True)
class Template:
    """The template of a remedy in the source, with the names of its values."""

    place: str
    #: None if it is no literal.
    text: str | None
    #: None if they are no dict of literal keys.
    values: tuple[str, ...] | None

    @property
    def fields(self) -> set[str]:
        """Return the names in braces."""
        return set(re.findall(r"\{([^{}]*)\}", self.text or ""))


def templates_in(source: str, place: str) -> Iterator[Template]:
    """Yield the template of each call of Remedy."""
    if "Remedy(" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "Remedy":
            continue
        first = node.args[0] if node.args else None
        text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        values: tuple[str, ...] | None = ()
        if len(node.args) > 1 or node.keywords:
            given = node.args[1] if len(node.args) == 2 and not node.keywords else None
            keys = given.keys if isinstance(given, ast.Dict) else [None]
            names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            values = tuple(names) if len(names) == len(keys) else None
        yield Template(f"{place}:{node.lineno}", text, values)


def texts_in(source: str) -> Iterator[str]:
    """Yield the texts that are no docstrings; of an f-string, its literal parts."""
    passed_over: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_over.add(node.value)
        elif isinstance(node, ast.JoinedStr) and node not in passed_over:
            passed_over.update(inner for inner in ast.walk(node) if inner is not node)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed_over:
            yield node.value


def names_command_line_term(text: str) -> bool:
    """Return whether a text names a flag, a command or a variable that has another name in another interface."""
    return bool(COMMAND_LINE_TERM.search(text)) and not _VARIABLE_NAME.fullmatch(text)


_SOURCES = {
    path.relative_to(CORE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(CORE.rglob("*.py"))
    if path.relative_to(CORE).parts[0] not in ELSEWHERE
}
TEMPLATES = [template for place, source in _SOURCES.items() for template in templates_in(source, place)]


def texts() -> Iterator[tuple[str, str]]:
    """Yield the core's texts with their modules."""
    for place, source in _SOURCES.items():
        for text in texts_in(source):
            yield place, text

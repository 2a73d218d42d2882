"""Every text of the core that speaks of the command line, read from its source: an integration says it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import weblake

CORE = Path(weblake.__file__).parent
#: Folders and modules that no integration enters: the command line's own, and the two ways to the embedded service,
#: which an integration never means (its connection or resource has a base URL); and compaction.
ELSEWHERE = {"cli", "demo", "output.py", "embedded.py", "settings.py", "testing", "loopback.py"}
ELSEWHERE |= {f"dataset/{name}.py" for name in ("compaction", "compaction_record", "merging")}
#: Flags of commands that no integration stands for: `weblake ls --since`.
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
        if path.relative_to(CORE).parts[0] not in ELSEWHERE and path.relative_to(CORE).as_posix() not in ELSEWHERE
        for text in texts(path)
        if OF_THE_COMMAND_LINE.search(text)
    }
)

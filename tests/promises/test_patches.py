"""Tests that no patch of a test stays: a module that is loaded while a name that it imports is patched keeps it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCES = [
    TESTS.parent / "src/weblake",
    TESTS.parent / "src/weblake_service",
    TESTS.parent / "airflow_provider/src/airflow_provider_weblake",
    TESTS.parent / "dagster_resources/src/dagster_weblake",
]


@cache
def modules() -> dict[str, Path]:
    """Each module of the packages, and its file."""
    found = {}
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(path: Path) -> frozenset[tuple[str, str]]:
    """Return the modules that a file imports when it is loaded, each with a name that it takes from it or ""."""
    found = set[tuple[str, str]]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, alias.name) for alias in node.names}
    return frozenset(found)


@cache
def importable() -> dict[str, Path]:
    """The same, and the modules that tests share."""
    shared = (path for path in TESTS.rglob("*.py") if not path.name.startswith(("test_", "conftest")))
    return {**{path.stem: path for path in shared}, **modules()}


def loaded_by(path: Path) -> set[str]:
    """The modules that are loaded with a file of tests."""
    found, new = set[str](), {path}
    while new:
        named = {each for file in new for module, name in imports(file) for each in (module, f"{module}.{name}")}
        parents = {".".join(name.split(".")[:n]) for name in named for n in range(1, name.count(".") + 2)}
        new = {importable()[name] for name in (parents & importable().keys()) - found}
        found |= parents & importable().keys()
    return found


def patches(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each `setattr` of a patch in a file of tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "setattr":
            continue
        target, *rest = node.args
        if len(rest) == 1 and isinstance(target, ast.Constant):
            module, _, name = str(target.value).rpartition(".")
            yield module, name
        elif len(rest) == 2 and isinstance(rest[0], ast.Constant):
            yield names.get(ast.unparse(target), ast.unparse(target)), str(rest[0].value)


def late_imports(path: Path) -> list[str]:
    """The modules that a patch of a file of tests could stay in."""
    patched = set(patches(path))
    importers = {module for module, file in modules().items() if patched & imports(file)}
    return sorted(importers - loaded_by(path)) if importers else []


FILES = [path for path in sorted(TESTS.rglob("*.py")) if "setattr(" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_modules_that_import_a_patched_name_are_loaded_before(path: Path) -> None:
    assert late_imports(path) == [], "import them in this file"


def test_a_module_that_is_loaded_late_is_found(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("from weblake.dataset import arrow_files\n\npatch.setattr(arrow_files, 'batches', None)\n")
    assert late_imports(file) == ["weblake.dataset.lazy_frames"]
    file = tmp_path / "test_that.py"
    file.write_text(
        "from weblake.dataset import arrow_files, lazy_frames\n\npatch.setattr(arrow_files, 'batches', None)\n"
    )
    assert late_imports(file) == []

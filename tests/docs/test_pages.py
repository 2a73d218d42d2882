"""Tests of the README and of each page of the documentation's site: their blocks compile and their commands exist."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlglot
import yaml
from page_blocks import blocks

from weblake import cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
BLOCKS = [
    (str(page.relative_to(ROOT)), language, code)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "site").rglob("*.md"))]
    for language, _, code in blocks(page.read_text("utf-8"))
]
#: What the title of a block of SQL begins with: one of these, or any; a page's test runs those of DuckDB.
ENGINES = ["bigquery", "clickhouse", "databricks", "duckdb", "postgres", "snowflake", "spark", "trino"]
PARSERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def pages_with(*languages: str) -> list[str]:
    return sorted({page for page, language, _ in BLOCKS if language in languages})


def test_python_blocks_import_what_they_name(tmp_path: Path) -> None:
    for number, (page, language, code) in enumerate(BLOCKS):
        if language == "python":
            (tmp_path / f"{page.replace('/', ' ')} {number}.py").write_text(code, "utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F821,F401", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", pages_with(*PARSERS))
def test_data_blocks_parse(page: str) -> None:
    for language, code in [(language, code) for at, language, code in BLOCKS if at == page and language in PARSERS]:
        PARSERS[language](code)


def commands(code: str) -> Iterator[list[str]]:
    """Return the words of each call of weblake in a block of the shell."""
    code = re.sub(r"(^|\s)#.*", r"\1", code, flags=re.MULTILINE).replace("\\\n", " ").replace("\n", ";")
    lexer = shlex.shlex(code, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    for ends, words in itertools.groupby(lexer, lambda word: word[0] in "();<>|&"):
        call = list(words)
        if not ends and "weblake" in call:
            yield call[call.index("weblake") + 1 :]


@pytest.mark.parametrize("page", pages_with("sh"))
def test_shell_blocks_parse_and_name_commands_and_options_that_exist(page: str) -> None:
    known: dict[str, Any] = cli._commands().commands  # type: ignore[attr-defined]
    for code in [code for at, language, code in BLOCKS if at == page and language == "sh"]:
        subprocess.run(["bash", "-n"], input=code, text=True, check=True, timeout=60)
        for words in commands(code):
            options = {"--help", "--version", "--install-completion", "--show-completion"}
            groups = known
            while words and words[0] in groups:
                command = groups[words.pop(0)]
                options |= {option for parameter in command.params for option in parameter.opts}
                options |= {option for parameter in command.params for option in parameter.secondary_opts}
                groups = getattr(command, "commands", {})
            assert not groups or not words or words[0] in options, words
            named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert named <= options, (words, named - options)


@pytest.mark.parametrize("page", ["tables/query.md", "tables/maintain.md", "tasks/newest-version.md"])
def test_statements_parse_in_the_dialect_of_their_title(page: str) -> None:
    """Most need an account or a server. sqlglot finds wrong queries, and wrong brackets and quotes in the rest."""
    found = [block for block in blocks((ROOT / "docs/site" / page).read_text("utf-8")) if block.language == "sql"]
    assert found
    for _, title, code in found:
        named = re.findall(r"\w+", title)[0].lower()
        for engine in ENGINES if named == "any" else [named]:
            assert engine in ENGINES
            assert all(sqlglot.parse(code, dialect=engine))

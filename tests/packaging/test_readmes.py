"""Tests of the READMEs: their blocks run, their names and links exist, and a release makes the links absolute."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from page_blocks import blocks, codes

from weblake.testing import WeblakeSite

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "airflow_provider/README.md", "dagster_resources/README.md")
TEXT = {name: (ROOT / name).read_text("utf-8") for name in READMES}
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
PYTHON = [(name, code) for name in READMES for code in codes(TEXT[name], "python")]


def block_with(text: str) -> str:
    (code,) = [block.code for block in blocks(TEXT["README.md"]) if text in block.code]
    return code


@pytest.mark.parametrize(("readme", "code"), PYTHON, ids=str)
def test_a_block_imports_what_it_names(readme: str, code: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F821,F401", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.system
@pytest.mark.usefixtures("weblake_environment")
def test_the_blocks_of_the_command_line_and_of_duckdb_run(weblake_site: WeblakeSite, tmp_path: Path) -> None:
    command = shlex.split(block_with("weblake crawl").replace("https://example.org/", weblake_site.url))
    for words in (["-m", *command], ["-c", block_with("import duckdb")]):
        program = [sys.executable, *words]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    assert weblake_site.url in done.stdout


def test_the_blocks_of_the_integrations_load() -> None:
    names: dict[str, Any] = {}
    for words in ("from airflow.sdk import DAG", "import dagster as dg"):
        exec(compile(block_with(words), "README.md", "exec"), names)
    assert [key.to_user_string() for key in names["defs"].resolve_all_asset_keys()] == ["site"]


@pytest.mark.parametrize("name", READMES)
def test_the_links_lead_to_files(name: str) -> None:
    assert [link for link in LINK.findall(TEXT[name]) if not ((ROOT / name).parent / link).exists()] == []


def release() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("release_program", str(ROOT / ".ci" / "release"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@git.example.com:team/lake.git", "https://git.example.com/team/lake"),
        ("https://user:token@git.example.com/team/lake.git", "https://git.example.com/team/lake"),
        ("ssh://git@git.example.com/team/lake", "https://git.example.com/team/lake"),
        (None, None),
    ],
)
def test_a_release_links_to_the_documentation_of_its_version(
    remote: str | None, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = release()
    for name in (*program.PROJECTS, *READMES):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    monkeypatch.setattr(program, "ROOT", tmp_path)
    for variable in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(variable, raising=False)
    if remote is not None:
        program.run("git", "remote", "add", "origin", remote)
    assert program.repository() == address
    with program.published_links(address, "1.2.3"):
        for name in READMES:
            text = (tmp_path / name).read_text("utf-8")
            if address is None:
                assert text == TEXT[name]
                continue
            assert LINK.findall(text) == []
            assert all(f"]({address}/blob/v1.2.3/" in text for _ in LINK.findall(TEXT[name]))
        for name in program.PROJECTS:
            assert ("[project.urls]" in (tmp_path / name).read_text("utf-8")) or address is None
        if address is not None:
            assert f"]({address}/blob/v1.2.3/docs/site/tables/overview.md)" in (tmp_path / "README.md").read_text()
            assert f"({address}/raw/v1.2.3/docs/site/images/" in (tmp_path / "README.md").read_text("utf-8")
    assert all((tmp_path / name).read_text("utf-8") == TEXT[name] for name in READMES)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://forge.example.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "team/lake")
    assert program.repository() == "https://forge.example.com/team/lake"

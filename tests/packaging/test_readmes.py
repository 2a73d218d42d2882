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

from weblake import cli
from weblake.testing import WeblakeFaults, WeblakeService, WeblakeSite

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "airflow_provider/README.md", "dagster_resources/README.md")
TEXT = {name: (ROOT / name).read_text("utf-8") for name in READMES}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
PYTHON = [(name, code) for name in READMES for language, code in BLOCK.findall(TEXT[name]) if language == "python"]


def block_with(text: str) -> str:
    (code,) = [code for _, code in BLOCK.findall(TEXT["README.md"]) if text in code]
    return code


@pytest.mark.parametrize(("readme", "code"), PYTHON, ids=str)
def test_a_block_imports_what_it_names(readme: str, code: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F821,F401", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("weblake_environment")
def test_the_blocks_of_the_client_and_of_duckdb_run(weblake_site: WeblakeSite, tmp_path: Path) -> None:
    code = block_with("needs weblake[pandas]")
    code = code.replace("https://example.org/", weblake_site.urls()[0]).replace("s3://lake/web", str(tmp_path / "lake"))
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert (names["receipt"].stored, len(names["frame"])) == (1, 1)
    assert names["page"].data.markdown
    install, query = block_with("import duckdb").splitlines()
    assert install == "pip install duckdb"
    program = [sys.executable, *shlex.split(query)[1:]]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert weblake_site.urls()[0] in done.stdout


def test_the_block_of_the_pytest_plugin_passes(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, weblake_faults: WeblakeFaults, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec(compile(block_with("def test_the_site_lands"), "README.md", "exec"), names)
    names["test_the_site_lands"](weblake_service, weblake_site, weblake_faults, tmp_path)


def test_the_block_of_language_models_runs(
    weblake_llm: Any, weblake_site: WeblakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weblake_service.config import ServiceConfig
    from weblake_service.server import LocalService

    config = ServiceConfig(**weblake_llm.config())
    with LocalService(tmp_path / "service.db", allow_private=True, config=config) as service:
        monkeypatch.setenv("WEBLAKE_BASE_URL", service.url)
        monkeypatch.setenv("WEBLAKE_API_KEY", service.key)
        weblake_llm.say({"price": 3})
        code = block_with('"price"').replace("https://example.com/cake", weblake_site.urls()[0])
        names: dict[str, Any] = {}
        exec(compile(code, "README.md", "exec"), names)
        assert names["page"].data.json == {"price": 3}


def test_the_commands_exist() -> None:
    code = re.findall(
        r"^(?: {4}|)weblake (\w+)", "\n".join(re.findall(r"^ {4}.*$", TEXT["README.md"], re.MULTILINE)), re.M
    )
    code += [
        word
        for language, text in BLOCK.findall(TEXT["README.md"])
        for word in re.findall(r"^weblake (\w+)", text, re.M)
    ]
    assert len(set(code)) > 8
    assert set(code) - set(cli._commands().commands) == set()  # type: ignore[attr-defined]


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
            assert f"({address}/raw/v1.2.3/docs/images/" in (tmp_path / "README.md").read_text("utf-8")
    assert all((tmp_path / name).read_text("utf-8") == TEXT[name] for name in READMES)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://forge.example.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "team/lake")
    assert program.repository() == "https://forge.example.com/team/lake"

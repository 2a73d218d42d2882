"""The page "The embedded service": its program with a language model, its file of keys, and its table of options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from page_blocks import codes

from weblake import cli
from weblake_service.config import ServiceConfig
from weblake_service.keys_file import read_keys_file
from weblake_service.server import LocalService

if TYPE_CHECKING:
    import pytest

    from weblake.testing import WeblakeSite

TEXT = (Path(__file__).parents[2] / "docs/site/service/overview.md").read_text()


def test_the_program_with_a_language_model_runs(
    weblake_llm: Any, weblake_site: WeblakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ServiceConfig(**weblake_llm.config())
    with LocalService(tmp_path / "service.db", allow_private=True, config=config) as service:
        monkeypatch.setenv("WEBLAKE_BASE_URL", service.url)
        monkeypatch.setenv("WEBLAKE_API_KEY", service.key)
        weblake_llm.say({"price": 3})
        (code,) = codes(TEXT, "python")
        names: dict[str, Any] = {}
        exec(compile(code.replace("https://example.com/cake", weblake_site.urls()[0]), "overview.md", "exec"), names)
        assert names["page"].data.json == {"price": 3}


def test_the_options_of_the_page_exist_with_these_defaults() -> None:
    serve = cli._commands().commands["serve"]  # type: ignore[attr-defined]
    known = {option: parameter for parameter in serve.params for option in parameter.opts}
    section = TEXT.split("## Options of the server")[1].split("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| `--")]
    named = {option for row in rows for option in re.findall(r"--[a-z-]+", row[0])}
    assert len(named) > 9
    assert named <= set(known)
    assert rows[0][1] == f"{known['--host'].default}, {known['--port'].default}"


def test_the_file_of_keys_is_read(tmp_path: Path) -> None:
    (code,) = codes(TEXT, "toml")
    (tmp_path / "keys.toml").write_text(code)
    read = read_keys_file(tmp_path / "keys.toml", {"NIGHTLY_KEY": "a-key-of-the-page"})
    assert [(key.name, key.team) for key in read.keys] == [("nightly", "analytics")]
    plan = read.teams["analytics"]
    assert (plan.credits, plan.requests_per_minute, plan.concurrency) == (100_000, 60, 20)

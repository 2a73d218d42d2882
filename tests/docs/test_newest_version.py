"""The programs of the pages about newest versions and what is due, and the notebook, run literally."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from page_blocks import files
from versions_lab import BEGAN, land, page

from weblake.dataset.root import open_dataset
from weblake.testing import WeblakeService, WeblakeSite

SITE = Path(__file__).parents[2] / "docs/site"
PAGES = [(SITE / f"tasks/{name}.md").read_text() for name in ("newest-version", "only-what-is-due")]
PROGRAMS = files("".join(PAGES))


def run(name: str) -> None:
    exec(compile(PROGRAMS[name], name, "exec"), {})


def test_newest_versions_and_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = open_dataset("lake")
    dataset.layout.claim("documents", ("load_date",))
    land(dataset, "1" * 16, BEGAN, [page(0), page(1), page(2)])
    run("changes.py")
    assert capsys.readouterr().out.splitlines()[-1] == "{'new': 3, 'changed': 0, 'gone': 0}"
    land(dataset, "2" * 16, BEGAN + timedelta(days=1), [page(0, text="another"), page(1), page(2, 404)])
    run("newest.py")
    run("changes.py")
    run("changes.py")
    newest, *changes, counts, again = capsys.readouterr().out.splitlines()
    assert newest == "3"
    assert changes == [
        f"changed http://a.test/0 {'2' * 16} {'1' * 16}",
        f"gone http://a.test/2 {'2' * 16} {'1' * 16}",
    ]
    assert counts == "{'new': 0, 'changed': 1, 'gone': 1}"
    assert again == "{'new': 0, 'changed': 0, 'gone': 0}"
    run("changed_pages.py")
    assert capsys.readouterr().out.splitlines()[0].endswith(str(len("another")))


def test_what_is_due(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    weblake_service: WeblakeService,
    weblake_site: WeblakeSite,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in weblake_service.environment().items():
        monkeypatch.setenv(name, value)
    Path("urls.txt").write_text("\n".join(weblake_site.urls()[:2]))
    run("due.py")
    Path("urls.txt").write_text("\n".join(weblake_site.urls()[:3]))
    run("due.py")
    run("shards.py")
    assert capsys.readouterr().out == "2 = 0 + 2 for 2.0 credits\n3 = 2 + 1 for 1.0 credits\n3 0\n"


@pytest.mark.system
def test_the_notebook_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # here, because it takes half a second
    from nbclient import NotebookClient

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # the embedded service of the kernel is of this test
    kept = nbformat.read(SITE / "notebooks/landed-pages.ipynb", as_version=4)
    fresh = nbformat.read(SITE / "notebooks/landed-pages.ipynb", as_version=4)
    NotebookClient(fresh, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()

    def shown(cell: Any) -> tuple[str, list[list[str]]]:
        """The texts are joined, because the kernel joins what is printed within a fifth of a second."""
        outputs = cell.get("outputs", ())
        return "".join(each.get("text", "") for each in outputs), [
            sorted(each.data) for each in outputs if "data" in each
        ]

    assert sum(bool(cell.get("outputs")) for cell in kept.cells) == 5
    assert [shown(cell) for cell in fresh.cells] == [shown(cell) for cell in kept.cells]

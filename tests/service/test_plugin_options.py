"""The pytest plugin in a separate pytest process: options, markers, workers, and the output of failed tests."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

GOOD = """
import os
import pytest


@pytest.mark.parametrize("turn", range(4))
def test_it_is_empty_and_seeded(weblake_service, weblake_site, weblake_environment, turn):
    assert weblake_service.requests() == []
    assert (weblake_service.pid != os.getpid()) if WHERE == "process" else not hasattr(weblake_service, "pid")
    with weblake_service.client() as client:
        job = client.start_batch_scrape(weblake_site.urls("/about")).id
    assert job == JOB
    assert os.environ["WEBLAKE_BASE_URL"] == weblake_service.url
    assert weblake_site.pages["/about"].title == TITLE


def test_a_service_that_was_killed_is_back(weblake_service):
    if hasattr(weblake_service, "kill"):
        weblake_service.kill()


def test_the_next_test(weblake_service):
    assert weblake_service.counts() == {}
"""

BAD = """
import pytest


def test_that_fails(weblake_service, weblake_faults):
    rule = weblake_faults.add(status=402, path="/v2/crawl/active$")
    weblake_faults.add(status=500, path="/v2/maps$")
    with weblake_service.client() as client:
        client.list_active_crawls()


@pytest.mark.weblake_service(credits=3)
def test_an_invalid_marker_is_reported(weblake_service):
    pass


def test_an_invalid_rule_is_reported(weblake_faults):
    weblake_faults.add(statuss=500)
"""

WITHOUT = """
import sys
sys.modules["starlette"] = None


def test_without_the_extra(weblake_service):
    pass


def test_without_the_extra_in_a_process(weblake_service_process):
    pass


def test_that_needs_it_not(weblake_site):
    assert weblake_site.urls()
"""


def run(folder: Path, text: str, *arguments: str, plugins: tuple[str, ...] = ()) -> tuple[int, str]:
    (folder / "test_theirs.py").write_text(text)
    loaded = [word for name in ("weblake.testing", *plugins) for word in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *loaded, *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_plugin_is_registered() -> None:
    (entry,) = [one for one in entry_points(group="pytest11") if one.name == "weblake"]
    assert entry.value == "weblake.testing"


@pytest.fixture
def expected() -> str:
    """Return the results of seed 5, as lines of a test file."""
    from weblake.testing.site_pages import known_pages
    from weblake_service.components import open_store
    from weblake_service.ids import Ids

    store = open_store(":memory:")
    job = store.write_now(Ids(5).start)
    store.close()
    title = next(page.title for page in known_pages(5) if page.path == "/about")
    return f"JOB, TITLE = {job!r}, {title!r}\n"


@pytest.mark.system
def test_each_xdist_worker_has_its_own_service_process(tmp_path: Path, expected: str) -> None:
    code, said = run(
        tmp_path,
        f"WHERE = 'process'\n{expected}{GOOD}",
        *("-n", "2", "--weblake-service=process", "--weblake-seed=5"),
        plugins=("xdist",),
    )
    assert code == 0, said
    assert "6 passed" in said


@pytest.mark.system
def test_the_ini_file_sets_options_absent_from_the_command_line(tmp_path: Path, expected: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nweblake_service = in-process\nweblake_seed = 5\n")
    code, said = run(tmp_path, f"WHERE = 'in-process'\n{expected}{GOOD}")
    assert code == 0, said
    (tmp_path / "pytest.ini").write_text("[pytest]\nweblake_service = docker\n")
    code, said = run(tmp_path, GOOD, "-k", "next")
    assert code != 0
    assert "in-process or process" in said


@pytest.mark.system
def test_a_failed_test_prints_the_requests_and_rules(tmp_path: Path) -> None:
    code, said = run(tmp_path, BAD)
    assert code == 1
    assert "402 GET /v2/crawl/active  (rule 1 applied)" in said
    assert "rule 2 applied 0 of 0 times: {'status': 500}" in said
    assert "names what ServiceConfig has not" in said
    assert "unexpected keyword argument 'credits'" in said
    assert "`statuss`" in said
    assert "known are" in said
    assert "connection.request" not in said, "the traceback ends in the test"


@pytest.mark.system
def test_a_missing_extra_names_what_to_install(tmp_path: Path) -> None:
    code, said = run(tmp_path, WITHOUT)
    assert code == 1
    assert said.count("(starlette): pip install 'weblake[local]'") >= 2
    assert "1 passed, 2 errors" in said


def test_importing_the_plugin_imports_only_weblake() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import weblake.testing;"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('weblake')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

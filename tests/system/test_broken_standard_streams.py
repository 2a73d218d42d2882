"""Commands report closed or full standard streams, a deleted working directory, and invalid settings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_in_process import run_command

from weblake.api import steps


def run(script: str, tmp_path: Path, **environment: str) -> tuple[int, str]:
    """Run a line of shell in which `weblake` is the command; return its exit code and standard error."""
    command = f'weblake() {{ {shlex.quote(sys.executable)} -m weblake "$@"; }}; {script}'
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEBLAKE_")}
    mine = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "-c", command], cwd=tmp_path, env=clean | mine | environment, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr.strip()


@pytest.mark.system
@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("weblake loads lake >&-", 0, ""),
        ("weblake loads lake >&- 2>&- <&-", 0, ""),
        ("weblake loads lake >/dev/full", 1, "weblake: The system says: No space left on device."),
        ("weblake loads lake --json >/dev/full", 1, "weblake: The system says: No space left on device."),
        ("weblake batch --urls - --to lake <&-", 2, "weblake: There is no URL in -."),
        ("mkdir gone && cd gone && rmdir ../gone && weblake loads lake", 1, "weblake: The system says: No such file"),
    ],
)
def test_a_closed_stream_or_a_deleted_directory_is_handled(tmp_path: Path, script: str, code: int, says: str) -> None:
    (tmp_path / "lake/_weblake").mkdir(parents=True)
    (tmp_path / "lake/_weblake/layout.json").write_text("{}")  # a dataset in which nothing has landed yet
    ended, said = run(script, tmp_path)
    assert (ended, said[: len(says)]) == (code, says)
    assert len(said.splitlines()) <= 1


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a command in this process, and returns its exit code and standard error."""
    for name in [name for name in os.environ if name.startswith("WEBLAKE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setitem(steps.run.__kwdefaults__, "sleep", lambda _: None)  # between the tries of a request

    def run_it(*args: str, **environment: str) -> tuple[int, str]:
        code, _, err = run_command(args, {"XDG_STATE_HOME": str(tmp_path / "state"), **environment})
        return code, err.strip()

    return run_it


SERVICE = {"WEBLAKE_BASE_URL": "https://service.test", "WEBLAKE_API_KEY": "of-a-test"}


@pytest.mark.parametrize("port", ["99999", "abc"])
def test_a_proxy_with_an_invalid_port_is_reported(run_here: Callable[..., tuple[int, str]], port: str) -> None:
    code, said = run_here("usage", "credits", HTTPS_PROXY=f"http://user:hidden@127.0.0.1:{port}", **SERVICE)
    assert (code, "names a proxy that weblake cannot use" in said, "hidden" in said) == (2, True, False)


@pytest.mark.system
def test_missing_certificates_are_reported(tmp_path: Path) -> None:
    code, said = run("weblake usage credits", tmp_path, SSL_CERT_FILE=str(tmp_path / "none"), **SERVICE)
    assert (code, "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read" in said) == (1, True)


@pytest.mark.system
def test_deeply_nested_options_and_fault_files_are_refused(
    run_here: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    deep = "[" * 100_000
    code, said = run_here("scrape", "http://a.test/", "-o", f"formats={deep}")
    assert code == 2
    assert said.startswith("weblake: The value of formats begins like JSON and is not valid JSON: maximum recursion")
    (tmp_path / "deep.json").write_text(deep)
    code, said = run("weblake serve --faults deep.json --port 0", tmp_path)
    assert (code, "The fault rules in deep.json cannot be used" in said) == (2, True)


@pytest.mark.system
def test_an_unusable_directory_of_the_embedded_service_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state" / "weblake" / "service.json").mkdir(parents=True)
    code, said = run("weblake usage credits", tmp_path)
    assert (code, "cannot keep its files in" in said) == (1, True)


@pytest.mark.smoke
def test_the_version_is_printed(tmp_path: Path) -> None:
    code, said = run("weblake --version | grep -qxE '[0-9]+[.][0-9]+[.][0-9]+'", tmp_path)
    assert (code, said) == (0, "")

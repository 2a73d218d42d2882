"""User code: its output and results; its processes end with its call, however the call or the service ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser_lab
import chromium_lab
import pytest
from browser_lab import BrowserLab
from chromium_lab import run
from polling import until
from session_lab import Sessions

from weblake_service.config import ServiceConfig
from weblake_service.sessions import page_watchdog
from weblake_service.sessions.code import languages
from weblake_service.sessions.code.runner import MAX_BYTES, Execution, run_code

#: Sleeps for a unique number of seconds, by which it is found among all processes.
_counter = iter(range(10**6))


def nap() -> str:
    return f"sleep {100_000 + os.getpid()}.{next(_counter)}1"


def run_endless(
    code: str, language: str, folder: Path, cdp_url: str = chromium_lab.NOWHERE, *, first_s: float
) -> tuple[Execution, float]:
    """Return the result of code that prints something and never ends, and its timeout in seconds.

    On a busy machine the code may be killed before it begins: then it gets more time.
    """
    for timeout_s in (first_s, 5 * first_s, 25 * first_s):
        ended = run(code, language, folder, cdp_url, timeout_s=timeout_s)
        if ended.stdout:
            break
    return ended, timeout_s


def naps(command: str) -> bool:
    """Return whether such a process exists."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        if words[-2:] == command.encode().split():
            return True
    return False


# Without a browser


def test_bash_output_is_returned(tmp_path: Path) -> None:
    ended = run("echo out; echo err >&2; exit 3", "bash", tmp_path)
    assert (ended.stdout, ended.stderr, ended.exit_code) == ("out\n", "err\n", 3)
    assert (ended.error, ended.killed, ended.value) == ("exit code 3", False, None)
    ended = run('cd /; yes | head -1; [ -z "$(cat)" ]', "bash", tmp_path)
    assert (ended.stdout, ended.stderr, ended.exit_code, ended.error) == ("y\n", "", 0, None)


@pytest.mark.system
def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    assert "code.sh: line 2: nonesuch: command not found" in run("\nnonesuch", "bash", tmp_path).stderr
    assert run("x = 1\ny = (\n", "python", tmp_path).error == "SyntaxError: '(' was never closed (code.py:2)"
    assert run("let a = 1;\nlet b = ;", "node", tmp_path).error == "SyntaxError: Unexpected token ';' (code.js:2)"


def test_the_environment_of_code_contains_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBLAKE_API_KEY", "secret-1")
    monkeypatch.setenv("OPENAI_API_KEY", "secret-2")
    ended = run("cat /proc/$$/environ", "bash", tmp_path)
    said = dict(entry.split("=", 1) for entry in ended.stdout.rstrip("\0").split("\0"))
    # The shell adds PWD.
    assert said.keys() - {"PWD"} == {"PATH", "LANG", "HOME", "TMPDIR", "CDP_URL"}
    assert said["HOME"] == said["TMPDIR"] == str(tmp_path)
    assert said["CDP_URL"] == chromium_lab.NOWHERE
    assert "secret" not in ended.stdout


def test_code_appears_in_no_command_line_and_leaves_no_file(tmp_path: Path) -> None:
    ended = run(": a-secret-word\ncat /proc/$$/cmdline; ls -A", "bash", tmp_path)
    assert "code.sh" in ended.stdout
    assert "a-secret-word" not in ended.stdout
    assert list(tmp_path.iterdir()) == []
    assert run('rm -rf "$HOME"/.run-*; true', "bash", tmp_path).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_the_resources_of_code_are_limited(tmp_path: Path) -> None:
    said = run("ulimit -c; ulimit -f; ulimit -n; ulimit -t", "bash", tmp_path, timeout_s=20).stdout.split()
    assert said[:2] == ["0", str(256 << 10)]
    assert int(said[2]) <= 4096
    assert 20 < int(said[3]) <= 25 * (os.cpu_count() or 1)


def test_endless_code_is_killed_at_the_timeout_with_its_child_processes(tmp_path: Path) -> None:
    behind = nap()
    code = f"echo before; bash -c '{behind} & disown; while :; do :; done'"
    ended, timeout_s = run_endless(code, "bash", tmp_path, first_s=1)
    assert (ended.stdout, ended.exit_code, ended.killed) == ("before\n", -9, True)
    message = f"The code was ended after {timeout_s:g} s, which is its timeout. Give it a larger one, or less to do."
    assert ended.error == message
    until(lambda: not naps(behind))


def test_no_process_of_its_group_outlives_a_call(tmp_path: Path) -> None:
    left, daemon = nap(), nap()
    began = time.monotonic()
    # Both hold stdout, and the parent of the second has ended.
    ended = run(f"{left} & (bash -c '{daemon} & disown' &); echo done", "bash", tmp_path)
    assert (ended.stdout, ended.exit_code, ended.error) == ("done\n", 0, None)
    assert time.monotonic() - began < 30
    until(lambda: not naps(left) and not naps(daemon))


def test_background_processes_that_end_soon_are_not_killed(tmp_path: Path) -> None:
    assert run("(sleep 0.02; echo late) & echo early", "bash", tmp_path).stdout == "early\nlate\n"


def test_a_signal_to_its_process_group_reaches_only_the_code(tmp_path: Path) -> None:
    ended = run("kill 0; sleep 5", "bash", tmp_path)
    assert (ended.exit_code, ended.error) == (-15, "ended by the signal SIGTERM")


def test_large_output_is_truncated_in_bounded_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    ended = run("head -c 50000000 /dev/zero; head -c 3000000 /dev/zero >&2", "bash", tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ended.exit_code == 0
    assert ended.stdout.startswith("\0" * MAX_BYTES + f"\n[cut here: {50_000_000 - MAX_BYTES} more bytes were printed")
    assert ended.stderr is not None
    assert len(ended.stderr) < MAX_BYTES + 200
    assert peak < 30 * MAX_BYTES, peak


def test_output_may_be_any_bytes(tmp_path: Path) -> None:
    assert run(r"printf '\xff\0\xe2\x82\xac'", "bash", tmp_path).stdout == "\ufffd\0€"
    # A character that is cut in half at the limit is not an error of the code.
    cut = run(f"printf a; yes é | tr -d '\\n' | head -c {MAX_BYTES}", "bash", tmp_path).stdout
    assert "\ufffd" not in cut


def test_a_cancelled_call_leaves_no_process_or_file(tmp_path: Path) -> None:
    left, daemon = nap(), nap()

    async def main() -> None:
        code = f"{daemon} & touch there; {left}"
        call = asyncio.create_task(run_code(code, "bash", cdp_url="ws://x", folder=tmp_path, timeout_s=60))
        await asyncio.to_thread(until, lambda: naps(left) and naps(daemon))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(main())
    until(lambda: not naps(left) and not naps(daemon))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


_SERVICE = """
import asyncio, sys
from pathlib import Path
from weblake_service.sessions.code.runner import Execution, run_code
asyncio.run(run_code(sys.argv[1], "bash", cdp_url="ws://x", folder=Path(sys.argv[2]), timeout_s=60))
"""


def test_code_ends_with_a_killed_service(tmp_path: Path) -> None:
    left, daemon = nap(), nap()
    service = subprocess.Popen([sys.executable, "-c", _SERVICE, f"{daemon} & {left}", str(tmp_path)])
    until(lambda: naps(left) and naps(daemon))
    service.send_signal(signal.SIGKILL)
    service.wait(60)
    until(lambda: not naps(left) and not naps(daemon))


def test_a_missing_language_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "find_spec", lambda name: None)
    ended = run("1", "node", tmp_path)
    assert ended.exit_code is None
    assert ended.error == "node needs weblake[browser], which is not installed: pip install 'weblake[browser]'"
    assert list(tmp_path.iterdir()) == []


def test_a_closed_browser_is_reported(tmp_path: Path) -> None:
    ended = run("agent-browser get title", "bash", tmp_path)
    assert ended.exit_code == 1
    assert ended.stderr is not None
    assert ended.stderr.startswith("agent-browser: There is no browser at CDP_URL: ")
    assert ended.stderr.count("\n") == 1


def test_code_of_any_size_runs(tmp_path: Path) -> None:
    assert run("echo é\n" + "#" * 100_000, "bash", tmp_path).stdout == "é\n"


# With a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium_lab.chromium() as url:
        yield url


NODE: list[tuple[str, str | None]] = [
    ("const a = 5; // of it\na;", "5"),
    ("`x${await page.evaluate('1 + 2')}` /* end */ ;\n// more", "x3"),
    ("({ a: [1, null] })", '{"a":[1,null]}'),
    ("if (true) { 5 }", None),
    ("return [1]", "[1]"),
    ("10n", "10n"),
    ("const o = {}; o.o = o; o", "<ref *1> { o: [Circular *1] }"),
    ("const page = 7; page", "7"),
    ("import fs, { existsSync as there } from 'node:fs';\n[there('/'), typeof fs.readFileSync]", '[true,"function"]'),
    ("typeof require('node:path').join + typeof (await import('node:os')).cpus", "functionfunction"),
]
PYTHON: list[tuple[str, str | None]] = [
    ("import asyncio\nawait asyncio.sleep(0)\n{'a': ['é']}  # end", '{"a": ["é"]}'),
    ("", None),
    ("def f():\n    return page\n\n(await f().evaluate('6 * 7'))", "42"),
]


@pytest.mark.system
@pytest.mark.parametrize(("code", "value"), NODE)
def test_values_of_node_are_returned(code: str, value: str | None, browser: str, tmp_path: Path) -> None:
    ended = run(code, "node", tmp_path, browser)
    assert (ended.error, ended.stdout, ended.stderr, ended.value) == (None, "", "", value)


@pytest.mark.system
@pytest.mark.parametrize(("code", "value"), PYTHON)
def test_values_of_python_are_returned(code: str, value: str | None, browser: str, tmp_path: Path) -> None:
    ended = run(code, "python", tmp_path, browser)
    assert (ended.error, ended.stdout, ended.stderr, ended.value) == (None, "", "", value)


@pytest.mark.system
@pytest.mark.parametrize(
    ("language", "code", "status", "error", "stderr"),
    [
        ("node", "const x = 1\n\nthrow new TypeError('no ' + x)", 1, "TypeError: no 1", "    at code.js:3:7\n"),
        ("node", "Promise.reject(new Error('lost')); 1", 1, "Error: lost", "code.js:1:"),
        (
            "node",
            "setTimeout(() => { nope() }, 1); await page.waitForTimeout(500)",
            1,
            "nope is not defined",
            "code.js:1",
        ),
        (
            "node",
            "await page.click('#nope', { timeout: 50 })",
            1,
            "TimeoutError: page.click: Timeout 50ms",
            "code.js:1:12",
        ),
        ("node", "})(); (() => {", 0, None, ""),
        ("python", "def f():\n    return 1 / 0\n\nf()", 1, "ZeroDivisionError: division", 'code.py", line 2, in f'),
        ("python", "raise SystemExit('done with it')", 1, "done with it", "done with it\n"),
        ("python", "raise KeyboardInterrupt", 1, "KeyboardInterrupt", "line 1"),
    ],
)
def test_errors_of_code_are_returned(
    language: str, code: str, status: int, error: str | None, stderr: str, browser: str, tmp_path: Path
) -> None:
    ended = run(code, language, tmp_path, browser)
    assert ended.exit_code == status
    assert (error or "") in (ended.error or "")
    assert (ended.error is None) is (error is None)
    assert ended.stderr is not None
    assert stderr in ended.stderr
    for inner in ("harness", "node:internal", "asyncio"):
        assert inner not in ended.stderr


# In a session

FORM = b"""<title>Form</title><label>Name <input id=name></label>
<button onclick="out.textContent = 'Hello ' + document.getElementById('name').value">Greet</button>
<p id=out>-</p><a href=/next>On</a><a id=new href=/next target=_blank>New</a>"""


@pytest.fixture(scope="module")
def lab() -> Iterator[BrowserLab]:
    for lab in browser_lab.open_lab(allow_code_execution=True, config=ServiceConfig(max_browser_sessions=1)):
        lab.site.page("/form", FORM)
        lab.site.page("/next", b"<title>Next</title><button>Other</button>")
        yield lab


@pytest.fixture
def bash(lab: BrowserLab) -> Iterator[Any]:
    """Run code in one session, in bash unless another language is given."""
    sessions = Sessions(lab)
    session = sessions.create()

    def call(code: str, language: str = "bash", **options: object) -> dict[str, Any]:
        return sessions.execute(session, code, language=language, **options)

    yield call
    lab.service.reset()


@pytest.mark.system
def test_a_form_is_filled_by_refs_across_calls(bash: Any, lab: BrowserLab) -> None:
    url = lab.site.url("/form")
    ended = bash(f"agent-browser open {url}; agent-browser snapshot -i")
    assert ended["stdout"] == (
        f'Form\n{url}\n- textbox "Name" [ref=e1]\n- button "Greet" [ref=e2]\n'
        '- link "On" [ref=e3] [cursor=pointer]\n- link "New" [ref=e4] [cursor=pointer]\n'
    )
    ended = bash("""browser fill @e1 Ann; agent-browser click @e2; agent-browser get text '#out'
        agent-browser get attr @e3 href; agent-browser get html p; agent-browser get count a; agent-browser is visible p
        agent-browser type @e1 a; agent-browser get value @e1; agent-browser wait '#out'; agent-browser scroll down""")
    assert (ended["stdout"], ended["stderr"]) == ('Hello Ann\n/next\n<p id="out">Hello Ann</p>\n2\ntrue\nAnna\n', "")
    ended = bash("agent-browser click @e3; agent-browser get title; agent-browser click @e2")
    assert ended["stdout"] == "Next\n"
    assert ended["stderr"] == (
        "agent-browser: @e2 is not on the page any more, or no ref of its last snapshot. Take a new snapshot.\n"
    )
    ended = bash("agent-browser --json get title; agent-browser get text --json @e9; agent-browser nope")
    first, second = (json.loads(line) for line in ended["stdout"].splitlines())
    assert first == {"success": True, "data": "Next", "error": None}
    assert second["success"] is False
    assert (ended["exitCode"], ended["error"]) == (1, "exit code 1")
    assert "agent-browser: argument COMMAND: invalid choice: 'nope'" in ended["stderr"]
    ended = bash("agent-browser screenshot a.png; head -c4 a.png | tail -c3; echo 1+1 | agent-browser eval -; pwd")
    picture, mark, home = ended["stdout"].splitlines()
    assert (picture, mark) == (f"{home}/a.png", "PNG2")


@pytest.mark.system
def test_code_gets_the_active_page(bash: Any, lab: BrowserLab) -> None:
    def active(code: str = "console.log(await page.title())", language: str = "node") -> set[str]:
        return {bash("agent-browser get title")["stdout"], bash(code, language)["stdout"]}

    bash(f"agent-browser open {lab.site.url('/form')}; agent-browser click '#new'")
    # A page that a click has opened is active.
    assert active() == {"Next\n"}
    listed = bash("agent-browser tab")["stdout"].splitlines()
    assert [line[:11] for line in listed] == ["  [1] Form ", "→ [2] Next "]
    bash("agent-browser tab 1")
    assert active("print(await page.title())", "python") == {"Form\n"}
    # Pages that the code opens stay, and are active for the next call.
    bash("const p = await context.newPage(); await p.goto('data:text/html,<title>made</title>')", "node")
    assert bash("agent-browser get title")["stdout"] == "made\n"
    assert bash("agent-browser tab close; agent-browser tab 9")["stderr"].startswith("agent-browser: There is no tab 9")
    # A page is created if there is none.
    ended = bash("agent-browser tab close; agent-browser tab close; agent-browser get url; agent-browser tab")
    assert ended["stdout"] == "about:blank\n→ [1] (no title) - about:blank\n"


@pytest.mark.system
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("node", "await page.evaluate('while (true) {}')"),
        ("bash", "agent-browser eval 'while (true) {}'"),
        ("node", "const p = await context.newPage(); await p.evaluate('while (true) {}')"),
    ],
)
def test_an_endless_loop_in_a_page_ends_with_the_code(language: str, code: str, bash: Any) -> None:
    assert bash(code, language, timeout=3)["killed"]
    urls = bash("await Promise.all(context.pages().map((p) => p.evaluate('1')))", "node")
    assert urls["error"] is None


@pytest.mark.system
def test_a_dialog_that_no_client_answers_does_not_block_the_page(
    bash: Any, lab: BrowserLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_watchdog, "_DIALOG_TIMEOUT_S", 0.2)
    code = f"""agent-browser open {lab.site.url("/form")}
        agent-browser eval "setTimeout(() => {{ alert('Hey'); document.title = 'after' }}, 100); 1"
        until [ "$(agent-browser get title)" = after ]; do sleep 0.1; done"""
    assert bash(code)["exitCode"] == 0
    assert bash("agent-browser eval \"alert('Hey'); confirm('Sure?')\"")["stdout"] == (
        "false\nalert (accepted): Hey\nconfirm (dismissed): Sure?\n"
    )

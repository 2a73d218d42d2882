"""S11: text of pages and services on a terminal has no effect on cursor, colours or other output."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from catalogue import proves
from hypothesis import given
from hypothesis import strategies as st

from weblake import output
from weblake.credentials import one_line
from weblake.errors import FixRequest

#: Sets a title, clears the screen, writes a link, deletes what stands before, and does it in one byte; then the rest.
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b]8;;http://evil.test\x1b\\\x9b31m\r\x08\x00\x7f\u202egnp.exe"
MARKUP = "[red]red[/red] [link=http://evil.test]here[/link] <script>alert(1)</script> =cmd|' /C calc'!A0"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def made_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal that keeps what it is given; without colours, so that no escape in it is ours.

    Called in the test, no fixture: pytest puts its own streams in place between the two.
    """

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    return made


@proves(
    "S11", at="src/weblake/output.py", line="return _CONTROL_CHARACTERS.sub(_REPLACEMENT, text)", becomes="return text"
)
def test_s11_no_text_of_a_page_or_a_service_controls_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = made_terminal(monkeypatch)
    text = EVIL + MARKUP
    output.show_text(f"# A page\n\n{text}\tend")
    output.show_table(f"Of {EVIL}", ("url", "error"), [(text, EVIL), (None, MARKUP)])
    output.show_bars("Credits", {text: 3.0}, "credits")
    output.show_error(FixRequest(f"The service said {text}.", hint=EVIL), as_json=True)
    output.note(EVIL)
    given = terminal.getvalue()
    assert OBEYED.findall(given) == []
    assert "# A page\n\n" in given
    assert "\tend" in given
    assert "gnp.exe" in given


@proves("S11", at="src/weblake/output.py", line="escape(sanitize(str(cell)))", becomes="sanitize(str(cell))")
def test_s11_markup_in_a_page_is_text_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = made_terminal(monkeypatch)
    output.show_table("t", ("a",), [(MARKUP,)])
    output.show_error(FixRequest(MARKUP), as_json=False)
    flat = " ".join(terminal.getvalue().split())
    assert flat.count("[red]red[/red]") == 2
    assert flat.count("[link=http://evil.test]here[/link]") == 2


@proves(
    "S11",
    at="src/weblake/output.py",
    line='text = _CONTROL_CHARACTERS.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)',
    becomes="text = str(text)",
)
@given(st.text(alphabet=st.characters() | st.sampled_from(EVIL)))
def test_s11_a_json_line_has_no_control_characters_and_the_same_content(text: str) -> None:
    kept, sys.stdout = sys.stdout, io.StringIO()
    try:
        output.show_json({"markdown": text})
        line = sys.stdout.getvalue()
    finally:
        sys.stdout = kept
    assert OBEYED.findall(line) == []
    assert json.loads(line) == {"markdown": text}


def test_s11_a_pipe_gets_a_page_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_text(EVIL)
    assert capsys.readouterr().out == f"{EVIL}\n"


def test_s11_no_command_writes_csv() -> None:
    """No command writes CSV; whoever makes one of a Parquet file has the text as it was."""
    writes = re.compile(r"csv\.(writer|DictWriter)|write_csv|to_csv")
    assert not [path for path in Path(output.__file__).parent.rglob("*.py") if writes.search(path.read_text())]


def test_a_text_of_the_maximum_length_is_shown_completely() -> None:
    assert one_line("x" * 200) == "x" * 200
    assert one_line("x" * 201) == "x" * 199 + "…"
    assert one_line(" a\x1b[2J\nb ", 3) == "a …"

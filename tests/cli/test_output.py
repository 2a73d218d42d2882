"""Tests of printed output: progress on a terminal, questions, long lists, and control characters."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator

import pytest
from rich.console import Console

from weblake import events, output
from weblake.errors import StorageRefused
from weblake.receipt import Receipt


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error as a terminal; returns what is written to it."""
    written = io.StringIO()
    monkeypatch.setattr(
        output, "err", Console(file=written, force_terminal=True, width=100, soft_wrap=True, highlight=False)
    )
    return written


def test_a_list_is_streamed_as_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    for count in (0, 1, 3):
        values = [{"n": n, "x": math.nan} for n in range(count)]
        read: list[int] = []

        def each(values: list[dict[str, float]] = values, read: list[int] = read) -> Iterator[dict[str, float]]:
            for value in values:
                read.append(1)
                yield value

        output.show_json_of_many("loads", each(), lambda read=read: {"more": len(read), "note": "\x1b[1m"})
        out = capsys.readouterr().out
        assert json.loads(out) == {
            "loads": [{"n": n, "x": None} for n in range(count)],
            "more": count,
            "note": "\x1b[1m",
        }
        assert (out.count("\n"), "\x1b" in out) == (1, False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_has_each_character_in_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    text = "a é 日本 \U0001f600 \ud83d \x1b"
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    monkeypatch.setattr("sys.stdout", stream)
    output.show_json({text: text})
    output.show_json_of_many("loads", [{"n": text}], dict)
    one, many = stream.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]
    assert (json.loads(one), json.loads(many)) == ({text: text}, {"loads": [{"n": text}]})


def test_an_error_is_one_line_and_with_json_also_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    error = StorageRefused("The disk [x]\nis full.", hint="Make room.")
    error.receipt = Receipt("0123456789abcdef", "crawl", None)
    output.show_error(error, as_json=False)
    assert capsys.readouterr() == (
        "",
        "weblake: The disk [x] is full. Make room. See errors#storage-refused in the documentation.\n",
    )
    output.show_error(error, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["load_id"], shown["error"]["type"]) == ("0123456789abcdef", "StorageRefused")


def test_a_message_of_a_load_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("weblake.landing")
    output.WARNINGS.emit(log.makeRecord(log.name, logging.WARNING, "", 0, "The list of %s", ("/[/old]/[red]",), None))
    assert capsys.readouterr().err == "weblake: The list of /[/old]/[red]\n"


def test_text_is_unchanged_in_a_pipe_and_harmless_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output.show_text("a\x1b[2Jb\u202e")
    assert capsys.readouterr().out == "a\x1b[2Jb\u202e\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.show_text("a\x1b[2Jb\u202e\tc")
    assert capsys.readouterr().out == "a\ufffd[2Jb\ufffd\tc\n"


def polled(total: int | None, completed: int | None) -> events.StatusPolled:
    return events.StatusPolled(kind="crawl", job_id="4d8b6c1e", status="scraping", completed=completed, total=total)


def test_the_progress_of_a_load_is_shown_on_a_terminal(terminal: io.StringIO) -> None:
    with output.load_progress("crawl", False) as observe:
        observe(events.JobStarted(kind="crawl", job_id="4d8b6c1e", seconds=1.0))
        observe(polled(7, 3))
        assert "landing" not in terminal.getvalue()
        observe(polled(None, None))
        observe(polled(7, 9))
        observe(events.ChunkRead(kind="crawl", job_id="4d8b6c1e", documents=5, bytes=100, seconds=1.0))
    text = terminal.getvalue()
    assert "/100" not in text, "the total is not known at first"
    for words in ("crawl 4d8b6c1e: waiting", "crawl: landing", "9/9", "5/9"):
        assert words in text, text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_tables_and_bars_are_whole_at_each_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setattr(output, "out", Console(width=width, soft_wrap=True, highlight=False, emoji=False))
    job, url = "4d8b6c1e-0000-4000-8000-000000000001", "https://example.com/a/long/path/of/a/page"
    output.show_table("Calls", ("created", "endpoint", "id", "url"), [("2026-11-29", "crawl", job, url)], whole="id")
    output.show_bars("Usage", {"2026-10": 5, "2026-11": 10}, "credits")
    printed = capsys.readouterr().out
    assert job in printed
    assert "…" not in printed
    words = printed.split()
    assert {"created", "endpoint", "2026-11", "10"} <= {*words}
    assert max(len(word) for word in words if "/" in word) >= min(10, len(url))

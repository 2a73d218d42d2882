"""Tests of printed output: progress on a terminal, questions, long lists, and control characters."""

from __future__ import annotations

import errno
import io
import json
import logging
import math
from collections.abc import Iterator

import pytest
from rich.console import Console

from weblake import events, output
from weblake.errors import StorageRefused
from weblake.receipt import LandedFile, Receipt


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
    assert capsys.readouterr() == ("", "weblake: The disk [x] is full. Make room.\n")
    output.show_error(error, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["load_id"], shown["error"]["type"]) == ("0123456789abcdef", "StorageRefused")


@pytest.mark.parametrize(
    ("typed", "yes"), [("y", True), (" YES ", True), ("", False), ("yo", False), ("n", False), (None, False)]
)
def test_only_yes_confirms(
    monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO, typed: str | None, yes: bool
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("" if typed is None else f"{typed}\n"))
    assert output.ask("Crawl [all]?") is yes
    assert "Crawl [all]? [y/N] " in terminal.getvalue()


def test_an_answer_in_another_encoding_is_no_yes(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"y\xff\n"), encoding="utf-8"))
    assert output.ask("Crawl?") is False


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.ENOSPC, "full")])
def test_a_note_that_cannot_be_written_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    # A console of its own, which keeps what could not be written.
    monkeypatch.setattr(output, "err", type(output.err)(stderr=True))
    monkeypatch.setattr("sys.stderr", Broken())
    output.show_error(StorageRefused("The disk is full."), as_json=True)
    output.note("more")
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "The disk is full."


def test_a_table_that_nobody_reads_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(output, "out", type(output.out)())
    monkeypatch.setattr("sys.stdout", Broken())
    with pytest.raises(BrokenPipeError):
        output.show_table("", ("url",), [("a",)])


def test_a_message_of_a_load_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("weblake.landing")
    output.WARNINGS.emit(log.makeRecord(log.name, logging.WARNING, "", 0, "The list of %s", ("/[/old]/[red]",), None))
    assert capsys.readouterr().err == "weblake: The list of /[/old]/[red]\n"


def test_a_long_table_is_cut_into_tables_of_a_thousand_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, int]] = []
    monkeypatch.setattr(output, "show_table", lambda title, columns, rows, whole: shown.append((title, len(rows))))
    for count, tables in ((0, [0]), (1000, [1000]), (2001, [1000, 1000, 1])):
        shown.clear()
        output.show_long_table("Loads", ("n",), ((n,) for n in range(count)))
        assert shown == [("" if n else "Loads", rows) for n, rows in enumerate(tables)]


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


def test_without_a_terminal_a_job_is_named_once_unless_it_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet, told in ((False, "Job 4d8b6c1e\n"), (True, "")):
        with output.load_progress("crawl", quiet) as observe:
            for _ in range(2):
                observe(polled(None, None))
        assert capsys.readouterr() == ("", told)


def test_a_receipt_is_a_table_of_its_counts_and_its_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "out", Console(width=200, soft_wrap=True, highlight=False, emoji=False))
    file = LandedFile("documents/load_date=2026-11-21/1.parquet", 1234, 56789)
    receipt = Receipt(
        "0123456789abcdef", "crawl", "4d8b", "completed", True, 1234, 1233, 1, credits_used=2.5, files=(file,)
    )
    output.show_receipt(receipt, "lake/")
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip(" \u2500")]
    assert lines[0] == ["Load", "0123456789abcdef", "(crawl,", "job", "4d8b)"]
    assert ["submitted", "1,234"] in lines
    assert ["complete", "yes"] in lines
    assert ["credits", "used", "2.5"] in lines
    assert lines[-1] == [f"lake/{file.path}", "1,234", "rows,", "56,789", "bytes"]
    output.show_receipt(Receipt("0123456789abcdef", "crawl", None, complete=False), "lake")
    text = capsys.readouterr().out
    assert ("credits" in text, text.split()[-2:]) == (False, ["complete", "no"])

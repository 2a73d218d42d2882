"""Tests of what operations add to their options: deadlines, files, defaults that are always sent."""

import json
from pathlib import Path

import pytest

from weblake.api import operations as op
from weblake.api.operation import Operation, encode
from weblake.api.options.values import EXTENSIONS, MAX_FILE_BYTES
from weblake.errors import InvalidOption

JOB = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("operation", "seconds"),
    [
        (op.scrape("example.com"), 90),
        (op.scrape("example.com", timeout=1000), 31),
        (op.scrape("example.com", timeout=300_000), 330),
        (op.map_site("example.com"), 90),
        (op.map_site("example.com", timeout=5000), 35),
        (op.map_site("example.com", timeout=-5), 30),
        (op.search("q", timeout=10_000), 40),
        (op.parse_file(b"", filename="a.pdf", timeout=2000), 32),
        (op.interact(JOB, code="1"), 150),
        (op.interact(JOB, prompt="p", timeout=0.5 + 1), 121.5),
        (op.execute_in_browser("s", "1", timeout=300), 330),
        (op.get_crawl(JOB), 120),
        (op.start_crawl("example.com"), 30),
        (op.start_batch_scrape(["example.com"], timeout=300_000), 30),
    ],
)
def test_deadlines(operation: Operation[object], seconds: float) -> None:
    assert operation.request.deadline_s == seconds


def test_a_start_has_its_key_and_its_own_connection_and_is_never_repeated_blindly() -> None:
    for start in (op.start_batch_scrape(["example.com"], idempotency_key=JOB), op.start_crawl("example.com")):
        assert (start.request.method, start.request.paid, start.repeatable) == ("POST", True, False)
    keyed = op.start_batch_scrape(["example.com"], idempotency_key=JOB)
    assert keyed.request.headers == (("x-idempotency-key", JOB),)
    assert op.start_batch_scrape(["example.com"]).request.headers == ()
    with pytest.raises(InvalidOption, match="not a UUID"):
        op.start_batch_scrape(["example.com"], idempotency_key="mine")


def test_reads_and_cancels_are_repeatable_and_calls_are_not() -> None:
    assert all(each.repeatable for each in (op.get_crawl(JOB), op.cancel_crawl(JOB), op.credit_usage()))
    assert not any(each.repeatable for each in (op.scrape("example.com"), op.map_site("example.com"), op.search("q")))


def test_a_body_holds_no_number_that_json_lacks() -> None:
    with pytest.raises(ValueError):
        encode({"a": float("nan")})


def test_only_what_was_given_is_sent() -> None:
    assert json.loads(op.scrape("example.com").request.body or b"") == {"url": "example.com"}
    assert json.loads(op.start_crawl("example.com").request.body or b"") == {"url": "example.com"}
    batch = op.start_batch_scrape(url for url in ["example.com", "example.com"])
    assert json.loads(batch.request.body or b"") == {"urls": ["example.com"] * 2, "ignoreInvalidURLs": True}
    assert (
        json.loads(op.start_batch_scrape(["a"], ignore_invalid_urls=False).request.body or b"")["ignoreInvalidURLs"]
        is False
    )
    assert json.loads(op.create_browser(ttl=30).request.body or b"") == {"ttl": 30}
    assert op.get_crawl(JOB, skip=0, limit=None).request.query == (("skip", "0"),)
    assert op.historical_credit_usage(by_api_key=True).request.query == (("byApiKey", "true"),)


def test_the_body_is_utf_8() -> None:
    assert "ä€😀".encode() in (op.search("ä€😀").request.body or b"")


def test_one_text_is_not_a_list_of_urls() -> None:
    for urls in ("https://example.com", b"https://example.com", {"https://example.com": 1}, 5, None):
        with pytest.raises(InvalidOption, match="urls"):
            op.start_batch_scrape(urls)  # type: ignore[arg-type]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_file_by_path(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"report{extension.upper()}"
    path.write_bytes(b"content")
    for file in (path, str(path)):
        upload = op.parse_file(file, formats=["markdown"], only_main_content=False).request.upload
        assert upload is not None
        assert (upload.filename, upload.source) == (path.name, path)
        assert [(name, json.loads(text)) for name, text in upload.fields] == [
            ("options", {"formats": ["markdown"], "onlyMainContent": False})
        ]


def test_a_file_by_its_bytes() -> None:
    upload = op.parse_file(b"<p>", filename="../sent/a.html").request.upload
    assert upload is not None
    assert (upload.filename, upload.source, upload.fields) == ("a.html", b"<p>", ())


def test_files_that_are_refused(tmp_path: Path) -> None:
    text, large = tmp_path / "a.txt", tmp_path / "large.pdf"
    text.write_bytes(b"x")
    with large.open("wb") as sparse:
        sparse.truncate(MAX_FILE_BYTES + 1)
    (tmp_path / "folder.pdf").mkdir()
    for file, words in (
        (text, r"a\.txt"),
        (large, "52428801"),
        (tmp_path / "gone.pdf", "No such file"),
        (tmp_path / "folder.pdf", "no file"),
    ):
        with pytest.raises(InvalidOption, match=words):
            op.parse_file(file)
    for name in (None, "a", "a.exe", "pdf", ".pdf", "a\n.pdf", ""):
        with pytest.raises(InvalidOption, match="file"):
            op.parse_file(b"x", filename=name)
    with pytest.raises(InvalidOption, match="not a path and not bytes"):
        op.parse_file(5)  # type: ignore[arg-type]
    assert op.parse_file(b"x" * 10, filename="large.PDF")
    with large.open("r+b") as sparse:
        sparse.truncate(MAX_FILE_BYTES)
    assert op.parse_file(large)
    assert op.parse_file(text, filename="a.html")

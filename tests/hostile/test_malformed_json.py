"""Valid HTTP with bodies that are malformed or extreme JSON."""

from __future__ import annotations

import json

import pytest
from catalogue import proves
from landing_commands import KEY, Lake, documents, page_errors
from scripted_job import JOB, Job, page, pages, url_of
from scripted_service import ScriptedService, encoded, reply

CHUNK = encoded({"success": True, "status": "completed", "total": 2, "completed": 2, "next": None, "data": pages(2)})

UNREADABLE = {
    "html": reply("<html><body>Please log in</body></html>", content_type="text/html"),
    "nothing": reply(b""),
    "204": reply(b"", 204),
    "cut off in data": reply(CHUNK[:-40]),
    "cut off before data": reply(CHUNK[:30]),
    "UTF-16": reply(CHUNK.decode().encode("utf-16")),
    "a list": reply(pages(2)),
    "a string": reply('"completed"'),
    "null": reply("null"),
    "data is an object": reply(CHUNK.replace(b'"data": [', b'"data": {"x": [')[:-1] + b"}}"),
    "data is a number": reply({"status": "completed", "data": 3}),
    "two documents": reply(CHUNK + CHUNK),
    "text behind": reply(CHUNK + b"\nnginx"),
    "deep": reply(b'{"status": ' * 5000),
}


#: Read three times and no more: a permanent defect is not retried for ever.
TRIES = 3


@proves(
    "H9",
    at="src/weblake/jobs/retry.py",
    line="(isinstance(error, MalformedReply) and reply.status < 300)",
    becomes="False",
    case="2-cut off in data",
)
@proves(
    "H9",
    at="src/weblake/jobs/retry.py",
    line="state.malformed >= MALFORMED_TRIES",
    becomes="False",
    case="2-cut off in data",
)
@proves(
    "H12",
    at="src/weblake/api/response_json.py",
    line="    fields = split_object(view)",
    becomes='    return Chunk({"status": "completed", "next": None}, Documents(()))',
    case="2-html",
)
@pytest.mark.parametrize("play", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("skip", [0, 2])
def test_h9_h12_an_unreadable_response_is_retried_and_then_fails_the_load(
    service: ScriptedService, lake: Lake, play: object, skip: int
) -> None:
    job = Job(service, pages(4), cut=2)
    job.always(skip, play)  # type: ignore[arg-type]
    printed = lake.land(job=JOB).expect_error("MalformedReply")
    assert len(printed["error"]["message"]) < 400
    assert printed["error"]["hint"]
    # The wait for the end of the job may have read only the beginning of the first chunk.
    assert len(service.requests_for(job.at(skip))) in ((TRIES, TRIES + 1) if skip == 0 else (TRIES,))


@proves(
    "H9",
    at="src/weblake/api/response_json.py",
    line="It begins with: {excerpt(body) or '(nothing)'}",
    becomes="It is: {bytes(memoryview(body))!r}",
)
def test_h9_the_error_shows_the_start_of_the_response_and_not_the_key(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    job.always(0, reply(f'{{"Authorization": "Bearer {KEY}", "data": [{"{}, " * 300}'))
    message = lake.land(job=JOB).expect_error("MalformedReply", "It begins with")["error"]["message"]
    assert '{"Authorization": "Bearer ***' in message
    assert len(message) < 400


GOOD, ODD = json.dumps(page(0)), f'{{"metadata": {{"sourceURL": "{url_of(1)}", "n": %s}}, "markdown": %s}}'

#: The JSON text of metadata.n and of markdown, the values that land, and whether they had to be corrected.
MENDED = {
    "a lone surrogate": (r'"\ud800"', r'"a\udfffb"', "\ufffd", "a\ufffdb", True),
    "surrogates in the wrong order": (r'"\udc00\ud83d"', r'"x"', "\ufffd\ufffd", "x", True),
    "invalid UTF-8": ('"\udcff\udcfe"', '"a\udc80b"', "\ufffd\ufffd", "a\ufffdb", True),
    "NaN": ("NaN", '"x"', None, "x", True),
    "Infinity": ("-Infinity", '"x"', None, "x", True),
    "a giant whole number": ("9" * 5000, '"x"', "9" * 5000, "x", False),
    "a giant exponent": ("1e400", '"x"', "1e400", "x", False),
    "NUL": (r'"\u0000"', r'"a\u0000b"', "\0", "a\0b", False),
    "bidi and other scripts": ('"\u202eabc\u2066"', '"한글 \U0001f600"', "\u202eabc\u2066", "한글 \U0001f600", False),
    "a letter in two parts": ('"e\u0301"', '"e\u0301"', "e\u0301", "e\u0301", False),
    "equal keys": ('1, "n": 2', '"first", "markdown": "last"', "2", "last", False),
    "a control character": ('"a\x01"', '"a\tb"', "a\x01", "a\tb", True),
}


@proves(
    "H25",
    at="src/weblake/arrow/documents.py",
    line="return parse_irregular(texts, place)",
    becomes='raise MalformedReply("It is no JSON.")',
    case="a control character",
)
@proves(
    "H25",
    at="src/weblake/arrow/documents.py",
    line="        return ...",
    becomes="        return None",
    case="a giant whole number",
)
@proves(
    "H25",
    at="src/weblake/api/response_json.py",
    line=", parse_constant=lambda _: None",
    becomes="",
    case="NaN",
)
@proves(
    "H26",
    at="src/weblake/arrow/documents.py",
    line="return _build(texts, place, split, repaired=True)",
    becomes="return _build(texts, place, split, repaired=False)",
    case="a lone surrogate",
)
@proves(
    "H26",
    at="src/weblake/api/response_json.py",
    line='_SURROGATE.sub("\\ufffd", text)',
    becomes='_SURROGATE.sub("", text)',
    case="surrogates in the wrong order",
)
@pytest.mark.parametrize(("n", "markdown", "n_lands", "lands", "repaired"), MENDED.values(), ids=MENDED)
def test_h25_h26_an_extreme_document_and_its_neighbours_land(
    service: ScriptedService, lake: Lake, n: str, markdown: str, n_lands: str | None, lands: str, repaired: bool
) -> None:
    job = Job(service, pages(3))
    body = job.raw(GOOD, ODD % (n, markdown), json.dumps(page(2)))
    job.always(0, reply(body))
    lake.land(job=JOB, process="surrogate" in n).landed([page(0), page(1, markdown=lands), page(2)])
    row = documents(lake.root)[1]
    assert dict(row["metadata"])["n"] == n_lands
    assert row["repaired"] is repaired


@proves(
    "H12",
    at="src/weblake/api/response_json.py",
    line="return view[3:] if view[:3] == _BOM else view",
    becomes="return view",
)
def test_h12_a_byte_order_mark_is_skipped(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    job.always(0, reply(b"\xef\xbb\xbf" + CHUNK))
    lake.land(job=JOB).landed(pages(2))


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=utf-16", "", "application/octet-stream"])
def test_h12_the_content_type_is_ignored(service: ScriptedService, lake: Lake, kind: str) -> None:
    job = Job(service, pages(2))
    job.always(0, reply(CHUNK, content_type=kind))
    lake.land(job=JOB).landed(pages(2))


NO_DOCUMENTS = [
    *("null", "7", '"text"', "[]", "true", "[{}]"),
    *(ODD % ("[" * 5000 + "]" * 5000, '"x"'), ODD % ("1 1", '"x"'), ODD % (r'"\q"', '"x"')),
]


@proves("H24", at="src/weblake/loads/staging.py", line="self._reconciler.malformed(1)", becomes="pass")
def test_h24_entries_that_are_not_documents_are_failed_pages(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    body = job.raw(GOOD, *NO_DOCUMENTS, json.dumps(page(1)))
    job.always(0, reply(body))
    lake.land(job=JOB).landed(pages(2), failed=len(NO_DOCUMENTS))
    assert {(row["outcome"], row["code"]) for row in page_errors(lake.root)} == {("failed", "MALFORMED_DOCUMENT")}


def test_empty_documents_are_documents(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    body = job.raw(GOOD, "{}", '{"metadata": {}}', '{"metadata": null, "markdown": "x"}')
    job.always(0, reply(body))
    outcome = lake.land(job=JOB)
    assert outcome.code == 0
    assert outcome.json["stored"] == outcome.json["submitted"] == 4
    assert [row["markdown"] for row in documents(lake.root)] == ["# Page 0", None, None, "x"]


@proves(
    "H24",
    at="src/weblake/arrow/document_columns.py",
    line="left.add(_METADATA)",
    becomes="pass",
)
def test_h24_metadata_of_any_type_is_kept(service: ScriptedService, lake: Lake) -> None:
    lists = page(0)
    lists["metadata"] |= {"title": ["One", "Two"], "keywords": [], "description": [["deep"]], "og:image": ["a", "b"]}  # type: ignore[operator]
    odd = [page(n, metadata=value) for n, value in enumerate(([], "text", 7, True), 1)]
    Job(service, [lists, *odd])
    outcome = lake.land(job=JOB)
    assert outcome.code == 0
    first, *others = documents(lake.root)
    assert (first["title"], first["keywords"], first["description"]) == ("One", None, None)
    kept = dict(first["metadata"])
    assert [json.loads(kept[name]) for name in ("title", "og:image")] == [["One", "Two"], ["a", "b"]]
    assert [json.loads(row["extra"] or "{}").get("metadata") for row in others] == [[], "text", 7, True]
    assert [row["metadata"] for row in others] == [None] * 4


@proves("H24", at="src/weblake/arrow/document_columns.py", line="if not fit.complete:", becomes="if False:")
def test_h24_fields_of_the_wrong_type_are_kept_in_extra(service: ScriptedService, lake: Lake) -> None:
    wrong = {
        "html": {"not": "text"},
        "links": "https://site.test/",
        "images": [1, 2],
        "actions": [1],
        "changeTracking": "new",
        "branding": "blue",
        "warning": 3,
        "screenshot": ["a"],
        "someday": {"new": [1, None]},
    }
    odd = page(0, **wrong)
    odd["metadata"] |= {"statusCode": "200", "ogLocaleAlternate": {"a": 1}, "concurrencyLimited": "no"}  # type: ignore[operator]
    Job(service, [odd, page(1)])
    lake.land(job=JOB).landed([odd, page(1)])
    row = documents(lake.root)[0]
    assert json.loads(row["extra"]) == wrong
    assert all(row[name] is None for name in ("html", "links", "images", "actions", "branding", "screenshot"))
    assert (row["status_code"], row["og_locale_alternate"], row["concurrency_limited"]) == (None, None, None)
    assert dict(row["metadata"])["ogLocaleAlternate"] == '{"a": 1}'

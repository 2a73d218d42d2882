"""Tests that every document becomes the row that a slow, direct implementation of the column rules gives."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from decimal import Decimal
from unittest import mock

from catalogue import proves
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_json import Num, Pairs, dump, repair_texts
from tiers import examples

from weblake.api import response_json
from weblake.api.page_keys import page_key_slow
from weblake.arrow import document_columns, document_rows, schemas

WHEN = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=timezone.utc)
LOAD = {"load_id": "0123456789abcdef", "job_id": "job-1", "job_kind": "crawl"}


# --- the rules of design.md, sections 3 and 4, read slowly ---

WRONG = object()
BODIES = ["markdown", "summary", "html", "screenshot", "audio", "video", "answer", "highlights"]
TEXTS = {**{name: name for name in BODIES}, "rawHtml": "raw_html", "warning": "warning"}


def is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Num)


def text(value: object) -> object:
    return value if value is None or is_text(value) else WRONG


def text_list(value: object) -> object:
    good = value is None or (type(value) is list and all(is_text(item) for item in value))
    return value if good else WRONG


def number(value: object) -> Decimal | None:
    return Decimal(value) if isinstance(value, Num) else None


class Expected:
    def __init__(self, document: Pairs, *, ascii_only: bool, repaired: bool) -> None:
        self.ascii_only = ascii_only
        self.row: dict[str, object] = dict.fromkeys(schemas.DOCUMENTS.names)
        self.row["repaired"] = repaired
        self.extra: dict[str, str] = {}
        for name, value in document.last.items():
            self.field(name, value)
        named = self.row["source_url"] or self.row["url"]
        self.row["page_key"] = page_key_slow(named) if named else None
        stored = (self.row[name] for name in ("markdown", "html", "raw_html", "json"))
        text = next((text for text in stored if text is not None), None)
        self.row["content_sha256"] = None if text is None else hashlib.sha256(text.encode()).hexdigest()
        if self.extra:
            self.row["extra"] = (
                "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{v}" for k, v in self.extra.items()) + "}"
            )

    def json(self, value: object) -> str:
        return dump(value, ascii_only=self.ascii_only)

    def field(self, name: str, value: object) -> None:
        column, read = name, None
        if name in TEXTS:
            column, read = TEXTS[name], text
        elif name in ("links", "images"):
            read = text_list
        elif name == "json":
            self.row["json"] = None if value is None else self.json(value)
            return
        elif name == "branding":
            read = lambda v: None if v is None else self.json(v) if isinstance(v, Pairs) else WRONG  # noqa: E731
        elif name in ("actions", "changeTracking", "metadata"):
            {"actions": self.actions, "changeTracking": self.tracking, "metadata": self.metadata}[name](name, value)
            return
        found = WRONG if read is None else read(value)
        if found is WRONG:
            self.extra[name] = self.json(value)
        else:
            self.row[column] = found

    def part(self, name: str, whole: object, found: object) -> object:
        if found is WRONG:
            self.extra[name] = self.json(whole)
            return None
        return found

    def struct(self, name: str, whole: object, value: object, readers: dict) -> dict | None:
        if not isinstance(value, Pairs):
            return self.part(name, whole, WRONG)
        out = {column: None for column, _ in readers.values()}
        for key, inner in value.last.items():
            if key not in readers:
                self.part(name, whole, WRONG)
                continue
            column, read = readers[key]
            out[column] = self.part(name, whole, read(inner))
        return out

    def structs(self, name: str, whole: object, readers: dict):
        def read(value: object) -> object:
            if value is None:
                return None
            if type(value) is not list or not all(isinstance(item, Pairs) for item in value):
                return WRONG
            return [self.struct(name, whole, item, readers) for item in value]

        return read

    def actions(self, name: str, value: object) -> None:
        if value is None:
            return
        scrape = {"url": ("url", text), "html": ("html", text)}
        returned = {"type": ("type", text), "value": ("value", lambda v: None if v is None else self.json(v))}
        readers = {
            "screenshots": ("screenshots", text_list),
            "pdfs": ("pdfs", text_list),
            "scrapes": ("scrapes", self.structs(name, value, scrape)),
            "javascriptReturns": ("javascript_returns", self.structs(name, value, returned)),
        }
        self.row["actions"] = self.struct(name, value, value, readers)

    def tracking(self, name: str, value: object) -> None:
        if value is None:
            return
        text_or_json = lambda v: v if v is None or is_text(v) else self.json(v)  # noqa: E731
        readers = {
            "previousScrapeAt": ("previous_scrape_at", self.time),
            "changeStatus": ("change_status", text),
            "visibility": ("visibility", text),
            "diff": ("diff", text_or_json),
            "json": ("json", text_or_json),
        }
        self.row["change_tracking"] = self.struct(name, value, value, readers)

    @staticmethod
    def time(value: object) -> object:
        known = {
            "2026-11-20T10:00:00.000Z": datetime(2026, 11, 20, 10, tzinfo=timezone.utc),
            "2026-11-20T10:00:00+02:00": datetime(2026, 11, 20, 8, tzinfo=timezone.utc),
            "2026-11-20T10:00:00.123456": datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=timezone.utc),
            None: None,
        }
        return known.get(value, WRONG) if value is None or is_text(value) else WRONG

    def metadata(self, name: str, value: object) -> None:
        if value is None:
            return
        if not isinstance(value, Pairs):
            self.extra[name] = self.json(value)
            return
        known = value.last
        self.row["metadata"] = [(k, v if v is None or is_text(v) else self.json(v)) for k, v in known.items()]
        for key, column in (("url", "url"), ("sourceURL", "source_url"), ("scrapeId", "scrape_id"), ("error", "error")):
            self.row[column] = known.get(key) if is_text(known.get(key)) else None
        firsts = {"title": "title", "description": "description", "language": "language"}
        for key, column in {**firsts, "keywords": "keywords", "contentType": "content_type"}.items():
            found = known.get(key)
            items = found if type(found) is list else [found]
            self.row[column] = next((item for item in items if is_text(item)), None)
        status = number(known.get("statusCode"))
        if status is not None and status == status.to_integral_value() and -(2**31) <= status < 2**31:
            self.row["status_code"] = int(status)
        waited = number(known.get("concurrencyQueueDurationMs"))
        if waited is not None and abs(waited) < 2**62:
            self.row["concurrency_queue_duration_ms"] = round(waited)
        if isinstance(known.get("concurrencyLimited"), bool):
            self.row["concurrency_limited"] = known["concurrencyLimited"]
        locales = known.get("ogLocaleAlternate")
        locales = [locales] if is_text(locales) else locales
        self.row["og_locale_alternate"] = None if text_list(locales) is WRONG else locales


# --- documents of every kind ---

NUMBERS = ["0", "-0", "200", "404", "200.0", "2e2", "12.5", "0.1000", "2147483647", "2147483648", "-1"]
NUMBERS += ["1e400", "9" * 30, "9" * 5000, "9007199254740993", "1E+2"]
numbers = st.sampled_from(NUMBERS).map(Num)
plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
texts = plain | st.sampled_from(["", "\x00", "😀", "a\nb", '"', "\\", "\\ud800", "null", "{}"])
broken = st.sampled_from(["\ud800", "x\udfffy", "\ud83d\ude00", "\udc00\ud800", "\\\ud800"])
keys = st.sampled_from(["a", "é", "og:image", "url", "html", "type", "value"])


def anything(strings: st.SearchStrategy) -> st.SearchStrategy:
    scalars = st.none() | st.booleans() | numbers | strings
    pairs = lambda inner: st.lists(st.tuples(keys, inner), max_size=3).map(Pairs)  # noqa: E731
    return st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | pairs(inner), max_leaves=5)


def pairs_of(fields: dict[str, st.SearchStrategy], other: st.SearchStrategy, most: int) -> st.SearchStrategy:
    names = st.sampled_from([*fields, "unknown", "é"])
    odd = st.tuples(names, other)
    right = names.flatmap(lambda name: st.tuples(st.just(name), fields.get(name, other)))
    return st.lists(right | right | right | odd, max_size=most).map(Pairs)


def documents(strings: st.SearchStrategy) -> st.SearchStrategy:
    odd = anything(strings)
    lists = st.lists(strings, max_size=3)
    metadata = pairs_of(
        {
            **dict.fromkeys(["title", "description", "language", "keywords", "contentType"], strings | lists),
            **dict.fromkeys(["url", "sourceURL", "scrapeId", "error", "og:title"], strings),
            **dict.fromkeys(["statusCode", "concurrencyQueueDurationMs"], numbers),
            "concurrencyLimited": st.booleans(),
            "ogLocaleAlternate": lists | strings,
        },
        odd,
        10,
    )
    scrapes = st.lists(pairs_of({"url": strings, "html": strings}, odd, 3), max_size=2)
    returns = st.lists(pairs_of({"type": strings, "value": odd}, odd, 3), max_size=2)
    actions = {"screenshots": lists, "pdfs": lists, "scrapes": scrapes, "javascriptReturns": returns}
    times = st.sampled_from(["2026-11-20T10:00:00.000Z", "2026-11-20T10:00:00+02:00", "2026-11-20T10:00:00.123456"])
    tracking = {
        "previousScrapeAt": times | st.sampled_from(["yesterday", "", "0001-01-01T00:00:00+23:00"]),
        **dict.fromkeys(["changeStatus", "visibility"], strings),
        **dict.fromkeys(["diff", "json"], odd),
    }
    return pairs_of(
        {
            **dict.fromkeys(TEXTS, strings),
            **dict.fromkeys(["links", "images"], lists),
            "json": odd,
            "branding": odd,
            "actions": pairs_of(actions, odd, 5),
            "changeTracking": pairs_of(tracking, odd, 5),
            "metadata": metadata,
        },
        odd,
        12,
    )


def rows_of(chunk: response_json.Documents) -> list[dict]:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN)
    for parsed in batches.parse_all(chunk):
        assert parsed is not None
        batches.append(parsed)
    batch = batches.flush()
    batch.validate(full=True)
    assert batch.schema.equals(schemas.DOCUMENTS)
    return batch.to_pylist()


def check(written: list[Pairs], *, ascii_only: bool) -> None:
    raws = [dump(document, ascii_only=ascii_only).encode() for document in written]
    body = b'{"status":"completed","data":[' + b" ,".join(raws) + b"]}"
    chunk = response_json.read_chunk(body)
    assert [bytes(raw) for raw in chunk.documents] == raws
    with mock.patch.object(document_columns, "MIN_MEAN_BYTES", 0):  # Arrow's reader, which only many bytes are worth
        rows = rows_of(chunk.documents)
    assert rows == rows_of(chunk.documents)
    assert rows == rows_of(response_json.Documents(raws))
    assert len(rows) == len(written)
    for position, (document, row) in enumerate(zip(written, rows, strict=True)):
        good = repair_texts(document)
        repaired = dump(good, ascii_only=ascii_only) != dump(document, ascii_only=ascii_only)
        expected = Expected(good, ascii_only=ascii_only, repaired=repaired).row
        assert row == {**expected, **LOAD, "position": position, "loaded_at": WHEN}


@proves(
    "2.4",
    at="src/weblake/arrow/document_columns.py",
    line="left = {*misfits, *(document.fields.keys() - _KNOWN_FIELDS)}",
    becomes="left = {*misfits}",
)
@given(st.lists(documents(texts), min_size=1, max_size=3), st.booleans())
@settings(max_examples=examples(300, 6))
def test_rows_follow_the_column_rules(written, ascii_only: bool) -> None:
    check(written, ascii_only=ascii_only)


@given(st.lists(documents(texts | broken), min_size=1, max_size=3))
@settings(max_examples=examples(200, 10))
def test_rows_of_invalid_text_are_those_of_the_repaired_text(written) -> None:
    raws = [dump(document, ascii_only=True).encode() for document in written]
    broken_ones = [
        dump(repair_texts(document), ascii_only=True).encode() != raw
        for document, raw in zip(written, raws, strict=True)
    ]
    repaired = [
        response_json.repair(raw) if is_broken else raw for raw, is_broken in zip(raws, broken_ones, strict=True)
    ]
    chunk = response_json.read_chunk(b'{"status":"completed","data":[' + b" ,".join(raws) + b"]}")
    expected = rows_of(response_json.Documents(repaired))
    assert rows_of(chunk.documents) == [row | {"repaired": odd} for row, odd in zip(expected, broken_ones, strict=True)]

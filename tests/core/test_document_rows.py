"""Every document becomes the row that a slow, obvious reading of the design's rules says."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weblake import document_rows, schemas, wire
from weblake.errors import MalformedReply

WHEN = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=UTC)
LOAD = {"load_id": "0123456789abcdef", "job_id": "job-1", "job_kind": "crawl"}


# --- JSON as it is written: numbers keep their letters, objects their repeated keys, depth has no bound ---


class Num(str):
    """A number literal."""

    __slots__ = ()


class Deep(str):
    """A list nested beyond every parser, as its text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Deep(…)"


class Pairs(list):
    """An object, its keys in order and possibly repeated."""

    @property
    def last(self) -> dict:
        return dict(self)


def dump(value: object, *, ascii_only: bool = True) -> str:
    if isinstance(value, Num | Deep):
        return str(value)
    if isinstance(value, Pairs):
        inner = (json.dumps(k, ensure_ascii=ascii_only) + ":" + dump(v, ascii_only=ascii_only) for k, v in value)
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(dump(item, ascii_only=ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def mended(value: object) -> object:
    if isinstance(value, Pairs):
        return Pairs((mended(k), mended(v)) for k, v in value)
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, str) and not isinstance(value, Num | Deep):
        whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return re.sub("[\ud800-\udfff]", "�", whole)
    return value


# --- the rules of design.md, sections 3 and 4, read slowly ---

WRONG = object()
BODIES = ["markdown", "summary", "html", "screenshot", "audio", "video", "answer", "highlights"]
TEXTS = {**{name: name for name in BODIES}, "rawHtml": "raw_html", "warning": "warning"}


def is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Num | Deep)


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
            "2026-11-20T10:00:00.000Z": datetime(2026, 11, 20, 10, tzinfo=UTC),
            "2026-11-20T10:00:00+02:00": datetime(2026, 11, 20, 8, tzinfo=UTC),
            "2026-11-20T10:00:00.123456": datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=UTC),
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
bottomless = Deep("[" * 5000 + "]" * 5000)
deep = st.sampled_from([bottomless, Pairs([("a", bottomless), ("b", 1)]), ["x", bottomless]])
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


def documents(strings: st.SearchStrategy, *, with_depth: bool) -> st.SearchStrategy:
    odd = anything(strings) | deep if with_depth else anything(strings)
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


def rows_of(*raws: bytes) -> list[dict]:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN)
    for raw in raws:
        parsed = batches.parse(raw)
        assert parsed is not None, batches.malformed
        batches.append(parsed)
    batch = batches.flush()
    batch.validate(full=True)
    assert batch.schema.equals(schemas.DOCUMENTS)
    return batch.to_pylist()


def check(written: list[Pairs], *, ascii_only: bool) -> None:
    raws = [dump(document, ascii_only=ascii_only).encode() for document in written]
    body = b'{"status":"completed","data":[' + b" ,".join(raws) + b"]}"
    chunk = wire.read_chunk(body)
    assert [bytes(raw) for raw in chunk.documents] == raws
    rows = rows_of(*chunk.documents)
    assert len(rows) == len(written)
    for position, (document, row) in enumerate(zip(written, rows, strict=True)):
        good = mended(document)
        repaired = dump(good, ascii_only=ascii_only) != dump(document, ascii_only=ascii_only)
        expected = Expected(good, ascii_only=ascii_only, repaired=repaired).row
        assert row == {**expected, **LOAD, "position": position, "loaded_at": WHEN}


@given(st.lists(documents(texts, with_depth=False), min_size=1, max_size=3), st.booleans())
@settings(max_examples=300, deadline=None)
def test_rows_are_as_the_rules_say(written, ascii_only: bool) -> None:
    check(written, ascii_only=ascii_only)


@given(st.lists(documents(texts | broken, with_depth=True), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_rows_are_as_the_rules_say_of_broken_text_and_depth(written) -> None:
    check(written, ascii_only=True)


# --- single rules, by example ---


def row_of(document: object) -> dict:
    return rows_of(document if isinstance(document, bytes) else json.dumps(document).encode())[0]


def test_a_document_beside_one_of_depth_five_thousand_is_untouched() -> None:
    bad = b'{"markdown":"deep","json":' + b"[" * 5000 + b"]" * 5000 + b"}"
    rows = rows_of(b'{"markdown":"one"}', bad, b'{"markdown":"two"}')
    assert [(row["markdown"], row["repaired"]) for row in rows] == [("one", False), ("deep", False), ("two", False)]
    assert rows[1]["json"] == "[" * 5000 + "]" * 5000


def test_a_list_too_deep_for_a_value_still_has_a_first_text() -> None:
    row = row_of(
        b'{"metadata":{"title":[' + b"[" * 5000 + b"]" * 5000 + b',"x"],"keywords":{"a":' + bottomless.encode() + b"}}}"
    )
    assert (row["title"], row["keywords"], row["repaired"]) == ("x", None, False)
    assert row["metadata"][0] == ("title", f'[{bottomless!s},"x"]')


def test_invalid_utf8_is_mended_wherever_it_stands() -> None:
    for where in ("markdown", "links", "json", "unknown", "metadata", "key"):
        values = {"links": b'["\xff"]', "json": b'{"a":"\xff"}', "metadata": b'{"title":"\xff"}'}
        name = b"\xff" if where == "key" else where.encode()
        row = row_of(b'{"summary":"good","' + name + b'":' + values.get(where, b'"\xff"') + b"}")
        assert row["repaired"] is True
        assert row["summary"] == "good"
        assert "�" in str(row[where] if where in row else row["extra"])


def test_an_escaped_surrogate_inside_json_text_is_mended_and_a_pair_is_not() -> None:
    row = row_of(rb'{"json":{"a":"\ud83d\ude00 \ud800"},"new":"\udc00"}')
    assert row["json"] == r'{"a":"\ud83d\ude00 \ufffd"}'
    assert row["extra"] == r'{"new":"\ufffd"}'
    assert row["repaired"] is True
    assert row_of(rb'{"json":{"a":"\ud83d\ude00"}}')["repaired"] is False


def test_json_text_columns_hold_json_whatever_came() -> None:
    row = row_of(b'{"json":{"v":NaN,"w":[-Infinity]},"metadata":{"score":NaN,"title":"a\tb"},"x":"\x01"}')
    assert json.loads(row["json"]) == {"v": None, "w": [None]}
    assert row["metadata"] == [("score", None), ("title", "a\tb")]
    assert json.loads(row["extra"]) == {"x": "\x01"}
    assert row["repaired"] is True


def test_nul_characters_are_kept() -> None:
    row = row_of({"markdown": "a\x00b", "metadata": {"title": "\x00"}})
    assert row["markdown"] == "a\x00b"
    assert row["metadata"] == [("title", "\x00")]


@pytest.mark.parametrize("entry", [b"1", b"null", b'"x"', b"[]", b"[{}]", b'{"a":foo}', b'{"a":1', b"{]", b""])
def test_an_entry_that_is_no_object_is_named_and_the_page_goes_on(entry: bytes) -> None:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN)
    for raw in (b"{}", entry, b"{}"):
        parsed = batches.parse(raw)
        if parsed is not None:
            batches.append(parsed)
    assert batches.flush().column("position").to_pylist() == [0, 1]
    assert len(batches.malformed) == 1
    assert batches.malformed[0].startswith("entry 2 ")
    with pytest.raises(MalformedReply):
        document_rows.parse(entry)


def test_a_dropped_document_takes_no_position() -> None:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN, position=7)
    parsed = [batches.parse(b'{"markdown":"%d"}' % number) for number in range(3)]
    assert parsed[0] is not None
    assert parsed[2] is not None
    assert (batches.append(parsed[0]), batches.append(parsed[2])) == (7, 8)
    assert batches.pending_bytes == 2 * len(b'{"markdown":"0"}')
    batch = batches.flush()
    assert batch.column("markdown").to_pylist() == ["0", "2"]
    assert batch.column("position").to_pylist() == [7, 8]
    assert (batches.pending_bytes, batches.position, batches.flush().num_rows) == (0, 9, 0)


def test_identity_is_cheap_and_tells_documents_apart() -> None:
    raw = b'{"metadata":{"scrapeId":"s","sourceURL":"https://a.example/","url":["no text"]},"markdown":"x"}'
    parsed = document_rows.parse(raw)
    assert parsed.identity == ("s", "https://a.example/", None, parsed.digest)
    assert document_rows.parse(raw).identity == parsed.identity
    assert document_rows.parse(raw.replace(b'"x"', b'"y"')).digest != parsed.digest
    assert len(parsed.digest) == 16
    assert document_rows.parse(b'{"metadata":{"url":"\\ud800"}}').url == "�"
    assert document_rows.parse(b"{}").identity[:3] == (None, None, None)


@pytest.mark.parametrize(("ms", "rounded"), [("1.5", 2), ("2.5", 2), ("-0.4", 0), ("9223372036854775807", 2**63 - 1)])
def test_milliseconds_are_rounded(ms: str, rounded: int) -> None:
    assert (
        row_of(b'{"metadata":{"concurrencyQueueDurationMs":%s}}' % ms.encode())["concurrency_queue_duration_ms"]
        == rounded
    )


@pytest.mark.parametrize("value", ["9223372036854775808", "1e300", "true", '"5"', "null", "-1e400"])
def test_what_is_no_number_of_milliseconds_is_null(value: str) -> None:
    row = row_of(b'{"metadata":{"concurrencyQueueDurationMs":%s}}' % value.encode())
    assert row["concurrency_queue_duration_ms"] is None
    assert row["metadata"] == [("concurrencyQueueDurationMs", None if value == "null" else value.strip('"'))]


# --- what the table is made of ---


def test_the_documents_table_is_the_one_in_the_design() -> None:
    names = """load_id job_id job_kind position url source_url scrape_id status_code title description language keywords
        content_type og_locale_alternate markdown summary html raw_html screenshot audio video answer highlights links
        images json actions change_tracking branding warning error concurrency_limited concurrency_queue_duration_ms
        metadata extra repaired loaded_at"""
    assert schemas.DOCUMENTS.names == names.split()
    assert schemas.DOCUMENTS.field("position").type == pa.int64()
    assert schemas.DOCUMENTS.field("status_code").type == pa.int32()
    assert schemas.DOCUMENTS.field("metadata").type == pa.map_(pa.string(), pa.string())
    for body in [*BODIES, "raw_html", "json", "branding", "extra"]:
        assert schemas.DOCUMENTS.field(body).type == pa.large_string()
    for table in schemas.TABLES.values():
        assert all(f.type == pa.timestamp("us", "UTC") for f in table if f.name.endswith("_at"))
    assert schemas.SCHEMA_VERSION == 1


cells = {
    pa.string(): texts,
    pa.large_string(): texts,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    schemas.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    pa.list_(pa.string()): st.lists(texts | st.none(), max_size=3),
    pa.map_(pa.string(), pa.string()): st.dictionaries(texts, texts | st.none(), max_size=3),
}


@pytest.mark.parametrize("kind", cells, ids=str)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_column_is_what_pyarrow_itself_makes_of_the_values(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(cells[kind] | st.none(), max_size=20))
    built = schemas.column(kind, values)
    built.validate(full=True)
    plain = [list(value.items()) if isinstance(value, dict) else value for value in values]
    assert built.equals(pa.array(plain, kind))


def test_small_tables_take_exactly_their_schema() -> None:
    table = schemas.table(schemas.USAGE_PERIODS, [{"api_key": "k", "total_credits": 1.5, "period_start": WHEN}, {}])
    assert table.schema.equals(schemas.USAGE_PERIODS)
    assert table.to_pylist()[0]["period_start"] == WHEN
    assert math.isclose(table.to_pylist()[0]["total_credits"], 1.5)
    assert set(table.to_pylist()[1].values()) == {None}
    assert schemas.table(schemas.ACTIVITY, []).num_rows == 0


def test_decoding_imports_no_pandas(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from datetime import datetime, UTC
        from weblake import document_rows, parquet, schemas
        batches = document_rows.DocumentBatches("l", "j", "crawl", datetime.now(UTC))
        raw = b'{"markdown":"x","links":["a"],"metadata":{"title":["t"],"statusCode":200,"ogLocaleAlternate":["de"]},'
        raw += b'"actions":{"scrapes":[{"url":"u","html":"h"}]},'
        raw += b'"changeTracking":{"previousScrapeAt":"2026-01-01T00:00:00Z"}}'
        batches.append(batches.parse(raw))
        batches.append(batches.parse(b"{}"))
        with parquet.ParquetFile(sys.argv[1], schemas.DOCUMENTS) as file:
            file.write(batches.flush())
            file.close(b'{"load_id":"l"}')
        assert parquet.read_receipt(sys.argv[1]) == {"load_id": "l"}
        assert "pandas" not in sys.modules, "pandas was imported"
        import pandas
        """
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "x.parquet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

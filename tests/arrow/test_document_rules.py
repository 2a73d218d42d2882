"""Tests of the rules for values of a wrong type, by example, and of the columns that contain them."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from catalogue import proves
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.api import response_json
from weblake.arrow import arrays, document_rows, schemas
from weblake.arrow.documents import Parsed, parse
from weblake.errors import MalformedReply

WHEN = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=timezone.utc)
LOAD = {"load_id": "0123456789abcdef", "job_id": "job-1", "job_kind": "crawl"}
BODIES = ["markdown", "summary", "html", "screenshot", "audio", "video", "answer", "highlights"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@proves(
    "2.4",
    at="src/weblake/arrow/fields.py",
    line="if isinstance(value, float) and not math.isfinite(value):",
    becomes="if not math.isfinite(value):",
    case="statusCode-400-",
)
@proves(
    "2.4",
    at="src/weblake/arrow/documents.py",
    line="        return ...",
    becomes="        return None",
    case="statusCode-1e400-",
)
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize(
    "number", [pytest.param(f"1{'0' * 400}", id="400"), pytest.param(f"1{'0' * 5000}", id="5000"), "1e400"]
)
@pytest.mark.parametrize("key", ["statusCode", "concurrencyQueueDurationMs"])
def test_a_number_that_no_float_holds_is_kept_as_text(key: str, number: str, sign: str) -> None:
    digits = f"{sign}{number}"
    row = row_of(f'{{"markdown":"x","metadata":{{"{key}":{digits}}}}}'.encode())
    assert (row["markdown"], dict(row["metadata"])[key]) == ("x", digits)
    assert row["status_code"] is row["concurrency_queue_duration_ms"] is None


def parse_alone(raw: bytes) -> Parsed:
    return parse(response_json.Documents((raw,)), 0)


def rows_of(*raws: bytes) -> list[dict]:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN)
    for raw in raws:
        parsed = batches.parse(raw)
        assert parsed is not None, "a document was refused as a whole"
        batches.append(parsed)
    return batches.flush().to_pylist()


def row_of(document: object) -> dict:
    return rows_of(document if isinstance(document, bytes) else json.dumps(document).encode())[0]


@proves(
    "H26",
    at="src/weblake/arrow/documents.py",
    line='decode(errors="replace").encode()',
    becomes='decode(errors="ignore").encode()',
)
def test_h26_invalid_utf8_is_repaired_in_every_field() -> None:
    for where in ("markdown", "links", "json", "unknown", "metadata", "key"):
        values = {"links": b'["\xff"]', "json": b'{"a":"\xff"}', "metadata": b'{"title":"\xff"}'}
        name = b"\xff" if where == "key" else where.encode()
        row = row_of(b'{"summary":"good","' + name + b'":' + values.get(where, b'"\xff"') + b"}")
        assert row["repaired"] is True
        assert row["summary"] == "good"
        assert "�" in str(row[where] if where in row else row["extra"])


@proves(
    "H26",
    at="src/weblake/api/response_json.py",
    line='_SURROGATE.sub("\\ufffd", text).encode()',
    becomes='text.encode(errors="ignore")',
)
def test_h26_an_escaped_surrogate_inside_json_text_is_mended_and_a_pair_is_not() -> None:
    row = row_of(rb'{"json":{"a":"\ud83d\ude00 \ud800"},"new":"\udc00"}')
    assert row["json"] == '{"a":"\U0001f600 \ufffd"}'
    assert row["extra"] == '{"new":"\ufffd"}'
    assert row["repaired"] is True
    assert row_of(rb'{"json":{"a":"\ud83d\ude00"}}')["repaired"] is False


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-20T10:00:00", datetime(2026, 11, 20, 10, tzinfo=timezone.utc)),
        ("2026-11-20T10:00:00+02:00", datetime(2026, 11, 20, 8, tzinfo=timezone.utc)),
        (None, None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+05:00", None),
    ],
)
def test_times_are_converted_to_utc_and_invalid_ones_kept_in_extra(
    zone: str, text: str | None, time: datetime | None
) -> None:
    row = row_of({"changeTracking": {"previousScrapeAt": text, "changeStatus": "new"}})
    assert row["change_tracking"]["previous_scrape_at"] == time
    kept = text if time is None else None
    assert row["extra"] is None if kept is None else kept in row["extra"]


def test_a_datetime_without_a_zone_is_utc(zone: str) -> None:
    kind = schemas.DOCUMENTS.field("loaded_at").type
    assert arrays.column(kind, [WHEN.replace(tzinfo=None), WHEN]).to_pylist() == [WHEN, WHEN]


@proves(
    "H26",
    at="src/weblake/arrow/arrays.py",
    line="builder.append_values(values)",
    becomes='builder.append_values([v and v.replace("\\0", "") for v in values])',
)
def test_h26_nul_characters_are_kept() -> None:
    row = row_of({"markdown": "a\x00b", "metadata": {"title": "\x00"}})
    assert row["markdown"] == "a\x00b"
    assert row["metadata"] == [("title", "\x00")]


@proves(
    "H24",
    at="src/weblake/arrow/document_rows.py",
    line="                parsed = None  # the caller counts it",
    becomes="                raise",
)
@pytest.mark.parametrize("entry", [b"1", b"null", b'"x"', b"[]", b"[{}]", b'{"a":foo}', b'{"a":1', b"{]", b""])
def test_h24_an_entry_that_is_not_an_object_is_null_and_the_page_is_kept(entry: bytes) -> None:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN)
    found = [batches.parse(raw) for raw in (b"{}", entry, b"{}")]
    assert [parsed is None for parsed in found] == [False, True, False]
    for parsed in found:
        if parsed is not None:
            batches.append(parsed)
    assert batches.flush().column("position").to_pylist() == [0, 1]
    with pytest.raises(MalformedReply):
        parse_alone(entry)


def test_a_dropped_document_takes_no_position() -> None:
    batches = document_rows.DocumentBatches(**LOAD, loaded_at=WHEN)
    parsed = [batches.parse(b'{"markdown":"%d"}' % number) for number in range(3)]
    assert parsed[0] is not None
    assert parsed[2] is not None
    batches.append(parsed[0])
    batches.append(parsed[2])
    assert batches.pending_bytes == 2 * (len(b'"0"') + document_rows.MIN_ROW_BYTES)
    batch = batches.flush()
    assert batch.column("markdown").to_pylist() == ["0", "2"]
    assert batch.column("position").to_pylist() == [0, 1]
    assert (batches.pending_bytes, batches.position, batches.flush().num_rows) == (0, 2, 0)


def test_the_identity_of_a_document_is_distinct_and_cheap() -> None:
    raw = b'{"metadata":{"scrapeId":"s","sourceURL":"https://a.example/","url":["no text"]},"markdown":"x"}'
    parsed = parse_alone(raw)
    assert (parsed.scrape_id, parsed.source_url, parsed.url) == ("s", "https://a.example/", None)
    assert parse_alone(raw).digest == parsed.digest
    assert parse_alone(raw.replace(b'"x"', b'"y"')).digest != parsed.digest
    assert len(parsed.digest) == 16
    odd = b'{"metadata":{"url":"\\ud800"}}'
    assert (parse_alone(odd).url, parse_alone(odd).digest) == ("�", hashlib.sha256(odd).digest()[:16])
    assert (parse_alone(b"{}").scrape_id, parse_alone(b"{}").url) == (None, None)
    assert parse_alone(b'{"metadata":{"scrapeId":""}}').scrape_id is None
    for other in (b"5", b"null", b'["text"]', b'{"a":1}'):
        raw = b'{"metadata":{"scrapeId":%b,"sourceURL":%b,"url":%b}}' % (other, other, other)
        parsed = parse_alone(raw)
        assert (parsed.scrape_id, parsed.source_url, parsed.url) == (None, None, None)


@pytest.mark.parametrize(
    ("number", "status"), [(999, 999), (1000, 1000), (-1, -1), (2**31 - 1, 2**31 - 1), (2**31, None), (-(2**40), None)]
)
def test_a_status_that_does_not_fit_its_column_is_null(number: int, status: int | None) -> None:
    assert row_of({"metadata": {"statusCode": number}})["status_code"] == status


@pytest.mark.parametrize(("ms", "rounded"), [("1.5", 2), ("2.5", 2), ("-0.4", 0), ("9223372036854775807", 2**63 - 1)])
def test_milliseconds_are_rounded(ms: str, rounded: int) -> None:
    assert (
        row_of(b'{"metadata":{"concurrencyQueueDurationMs":%s}}' % ms.encode())["concurrency_queue_duration_ms"]
        == rounded
    )


@pytest.mark.parametrize("value", ["9223372036854775808", "1e300", "true", '"5"', "null", "-1e400"])
def test_an_invalid_number_of_milliseconds_is_null(value: str) -> None:
    row = row_of(b'{"metadata":{"concurrencyQueueDurationMs":%s}}' % value.encode())
    assert row["concurrency_queue_duration_ms"] is None
    assert row["metadata"] == [("concurrencyQueueDurationMs", None if value == "null" else value.strip('"'))]


# --- what the table is made of ---


@proves(
    "H27",
    at="src/weblake/arrow/schemas.py",
    line='("markdown", pa.large_string()),',
    becomes='("markdown", pa.string()),',
)
def test_h27_the_documents_table_is_the_one_in_the_design() -> None:
    names = """load_id job_id job_kind position url source_url scrape_id status_code title description language keywords
        content_type og_locale_alternate markdown summary html raw_html screenshot audio video answer highlights links
        images json actions change_tracking branding warning error concurrency_limited concurrency_queue_duration_ms
        metadata extra repaired loaded_at page_key content_sha256"""
    assert schemas.DOCUMENTS.names == names.split()
    assert schemas.DOCUMENTS.field("position").type == pa.int64()
    assert schemas.DOCUMENTS.field("status_code").type == pa.int32()
    assert schemas.DOCUMENTS.field("metadata").type == pa.map_(pa.string(), pa.string())
    for body in [*BODIES, "raw_html", "json", "branding", "extra"]:
        assert schemas.DOCUMENTS.field(body).type == pa.large_string()
    for table in schemas.TABLES.values():
        assert all(f.type == pa.timestamp("us", "UTC") for f in table if f.name.endswith("_at"))
    assert schemas.SCHEMA_VERSION == 2


cells = {
    pa.string(): texts,
    pa.large_string(): texts,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    schemas.TIMESTAMP: st.datetimes(timezones=st.just(timezone.utc)),
    pa.list_(pa.string()): st.lists(texts | st.none(), max_size=3),
    pa.map_(pa.string(), pa.string()): st.dictionaries(texts, texts | st.none(), max_size=3),
}


@pytest.mark.parametrize("kind", cells, ids=str)
@given(data=st.data())
@settings(max_examples=examples(100))
def test_a_column_is_what_pyarrow_itself_makes_of_the_values(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(cells[kind] | st.none(), max_size=20))
    built = arrays.column(kind, values)
    built.validate(full=True)
    plain = [list(value.items()) if isinstance(value, dict) else value for value in values]
    assert built.equals(pa.array(plain, kind))


def test_small_tables_take_exactly_their_schema() -> None:
    table = arrays.table(schemas.USAGE_PERIODS, [{"api_key": "k", "total_credits": 1.5, "period_start": WHEN}, {}])
    assert table.schema.equals(schemas.USAGE_PERIODS)
    assert table.to_pylist()[0]["period_start"] == WHEN
    assert math.isclose(table.to_pylist()[0]["total_credits"], 1.5)
    assert set(table.to_pylist()[1].values()) == {None}
    assert arrays.table(schemas.ACTIVITY, []).num_rows == 0

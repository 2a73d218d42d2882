"""Tests of the JSON parser: any bytes give a value or MalformedReply, and documents are split at the right places."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from catalogue import proves
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.api import response_json
from weblake.errors import MalformedReply

DEEP = b"[" * 5000 + b"]" * 5000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"data":[', '","data":[{', "\\", '\\"', "]}", "\x00", "é😀", "NaN", "-Infinity"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", " \r\n: ")])


def dump(value: object, separators: tuple[str, str] = (",", ":"), *, ascii_only: bool = False) -> bytes:
    return json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()


# --- loads ---


@given(values, separators, st.booleans(), st.booleans())
@settings(max_examples=examples(200))
def test_valid_json_equals_the_result_of_the_standard_library(value, separators, ascii_only, marked) -> None:
    body = dump(value, separators, ascii_only=ascii_only)
    assert response_json.loads(b"\xef\xbb\xbf" * marked + body) == json.loads(body)
    assert json.loads(response_json.repair(body)) == json.loads(body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'{"a":"\ud800x"}', {"a": "�x"}),
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\ud800\ud83d\ude00\udc00"', "�😀�"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800"', "\\�"),
        (rb'{"\udfff":1}', {"�": 1}),
        (b'"a\xffb"', "a�b"),
        (b'"\xe2"', "�"),
        (b'{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN Infinity"}', {"a": None, "b": [None, None], "c": "NaN Infinity"}),
        (b'"line\nbreak\x00"', "line\nbreak\x00"),
        (b"1e400", None),
        (b"9" * 5000, None),
        (b"9" * 40, int("9" * 40)),
    ],
)
def test_invalid_parts_of_json_are_repaired(body: bytes, value: object) -> None:
    assert response_json.loads(body) == value
    assert (
        response_json.loads(bytearray(body))
        == response_json.loads(memoryview(body))
        == response_json.loads(msgspec.Raw(body))
        == value
    )


@pytest.mark.parametrize(
    "body", [b"", b" ", b"nul", b'{"a":1', b"[1,]", b"{} {}", rb'"\q"', DEEP, b"<html>", b"\xff\xfe1\x00"]
)
def test_invalid_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedReply) as error:
        response_json.loads(body)
    assert error.value.hint


def test_the_message_shows_the_beginning_without_control_characters() -> None:
    with pytest.raises(MalformedReply) as error:
        response_json.loads(b"<h1>\x1b[31mBad\r\n\xe2\x80\xae gateway</h1>" + b"x" * 1000 + b"end")
    assert r"<h1>\x1b[31mBad\r\n\u202e gateway</h1>x" in error.value.message
    assert "end" not in error.value.message
    assert error.value.message.isprintable()
    assert len(error.value.message) < 300


@given(st.binary(max_size=60) | st.text('{}[]",:\\ud8cNaI1e.- \n\x00', max_size=40).map(str.encode))
@settings(max_examples=examples(500))
def test_no_bytes_raise_anything_but_malformed_response(body: bytes) -> None:
    for read in (
        response_json.loads,
        response_json.split_object,
        response_json.split_array,
        response_json.read_chunk,
        response_json.repair,
    ):
        for text in (body, b'{"status":"x","data":[' + body + b"]}"):
            with contextlib.suppress(MalformedReply):
                read(text)
    response_json.read_head(body)
    with contextlib.suppress(MalformedReply):
        assert response_json.repair(response_json.repair(body)) == response_json.repair(body)


# --- splitting ---


@given(st.lists(st.tuples(texts, values), max_size=6), separators)
@settings(max_examples=examples(200))
def test_an_object_is_split_into_fields_and_the_last_duplicate_key_wins(pairs, separators) -> None:
    comma, colon = separators
    body = "{" + comma.join(f"{json.dumps(k)}{colon}{json.dumps(v)}" for k, v in pairs) + "}"
    expected = json.loads(body)
    assert {k: json.loads(bytes(v)) for k, v in response_json.split_object(body.encode()).items()} == expected
    odd = body[:-1] + (comma if pairs else "") + '"deep"' + colon + DEEP.decode() + "}"
    got = response_json.split_object(odd.encode())
    assert bytes(got.pop("deep")).strip() == DEEP
    assert {k: json.loads(bytes(v)) for k, v in got.items()} == {k: v for k, v in expected.items() if k != "deep"}


@given(st.lists(values, max_size=6), separators)
@settings(max_examples=examples(200))
def test_the_two_ways_to_split_a_list_agree(items, separators) -> None:
    view = memoryview(dump(items, separators))
    fast = [bytes(item) for item in response_json.split_array(view)]
    assert [json.loads(item) for item in fast] == json.loads(bytes(view))
    assert [bytes(item).strip() for item in response_json._members(view, "[")] == fast


# --- chunks ---

heads = st.dictionaries(texts.filter(lambda key: key not in ("data", "status")), values, max_size=5)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, dict[str, object], list[object]]:
    head = {**draw(heads), "status": draw(st.sampled_from(["scraping", "completed"]))}
    items = draw(st.lists(values, max_size=5) | st.lists(st.dictionaries(texts, values, max_size=5), max_size=5))
    names = draw(st.permutations([*head, "data"]))
    drawn = {name: items if name == "data" else head[name] for name in names}
    return dump(drawn, draw(separators), ascii_only=draw(st.booleans())), head, items


@given(bodies(), st.sampled_from(["", " \r\n", " " * 100]))
@settings(max_examples=examples(200))
def test_a_chunk_is_its_head_and_its_documents(drawn, after: str) -> None:
    body, head, items = drawn
    chunk = response_json.read_chunk(body + after.encode())
    assert chunk.head == head
    assert [json.loads(bytes(item)) for item in chunk.documents] == items
    assert len(chunk.documents) == len(items)
    if chunk.documents.objects is not None:
        found = [{name: json.loads(bytes(raw)) for name, raw in each.items()} for each in chunk.documents.objects]
        assert found == items


@proves(
    "H25",
    at="src/weblake/api/response_json.py",
    line="DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)",
    becomes="DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)",
)
@pytest.mark.parametrize(
    "bad", [rb'{"a":"\ud800"}', b'{"a":NaN}', b'{"a":"\n"}', b'{"a":"\xff"}', rb'{"a":"\q"}', DEEP]
)
@pytest.mark.parametrize("last", [True, False])
def test_h25_an_invalid_document_does_not_affect_the_others(bad: bytes, last: bool) -> None:
    good = [rb'{"a":"\ud83d\ude00 \\ud800 ]}"}', b'{"b" : [NaN]}'.replace(b"NaN", b"1"), b'"Infinity"']
    data = b'"data": [ ' + b" , ".join([good[0], bad, *good[1:]]) + b" ]"
    rest = b'"status":"completed","next":null'
    body = b"{" + (rest + b"," + data if last else data + b"," + rest) + b"}"
    chunk = response_json.read_chunk(body)
    assert [bytes(item).strip() for item in chunk.documents] == [good[0], bad, *good[1:]]
    assert chunk.head == {"status": "completed", "next": None}


def test_an_invalid_head_field_is_repaired() -> None:
    body = rb'{"status":"completed","warning":"\ud800","data":[{"a":1}]}'
    assert response_json.read_chunk(body).head == {"status": "completed", "warning": "�"}


@pytest.mark.parametrize("data", [b"", b',"data":null', b',"data":[]', b',"data" : [ ] '])
def test_no_data_is_no_documents(data: bytes) -> None:
    chunk = response_json.read_chunk(b'{"status":"scraping"' + data + b"}")
    assert (chunk.head, len(chunk.documents), list(chunk.documents)) == ({"status": "scraping"}, 0, [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"<html>",
        b'{"data":{}}',
        b'{"data":"x"}',
        b'{"data":nul}',
        b'{,"data":[]}',
        b'{"status":"x" "data":[]}',
    ],
)
def test_a_response_that_is_not_a_status_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedReply):
        response_json.read_chunk(body)


@given(bodies(), st.booleans())
@settings(max_examples=examples(100, one_in=25))
def test_a_truncated_chunk_is_malformed(drawn, odd: bool) -> None:
    body = drawn[0].replace(b'"data"', rb'"x":"\ud800","data"', 1) if odd else drawn[0]
    for end in range(len(body)):
        with pytest.raises(MalformedReply):
            response_json.read_chunk(body[:end])


# --- the head ---


@given(bodies())
@settings(max_examples=examples(60, 3))
def test_a_head_read_byte_by_byte_is_the_head_of_the_whole(drawn) -> None:
    body, head, items = drawn
    names = list(json.loads(body))
    before = set(names[: names.index("data")])
    final = response_json.read_head(body)
    seen = bytearray()
    first = None
    for byte in body:
        seen.append(byte)
        found = response_json.read_head(seen)
        if first is None:
            first = found
        assert found is None or found == first or len(seen) == len(body)
    assert first is not None
    assert final is not None
    expected = {key: value for key, value in head.items() if key in before} if "status" in before else head
    assert first.fields == expected
    assert first.empty == (not items)


def test_the_head_is_available_at_the_first_byte_of_the_data() -> None:
    body = b'{"status":"scraping","note":"\\"data\\":[]","total":3, "data" : [ {"a":1}'
    least = next(n for n in range(len(body) + 1) if response_json.read_head(bytearray(body[:n])))
    assert body[:least].endswith(b"[ {")
    assert response_json.read_head(body) == response_json.Head(
        {"status": "scraping", "note": '"data":[]', "total": 3}, empty=False
    )


def test_a_head_after_the_data_needs_the_whole_body() -> None:
    body = b'{"data":[{"a":"}"},{"b":2}],"status":"completed"}'
    assert [n for n in range(len(body) + 1) if response_json.read_head(body[:n])] == [len(body)]
    assert response_json.read_head(body) == response_json.Head({"status": "completed"}, empty=False)


def test_a_head_without_data_is_complete_at_the_end() -> None:
    assert response_json.read_head(b'{"success":false,"error":"Job not found"}') == response_json.Head(
        {"success": False, "error": "Job not found"}, empty=True
    )
    assert response_json.read_head(b'{"status":"x","data":null') is None
    assert response_json.read_head(b'{"status":"x","data":null,') == response_json.Head({"status": "x"}, empty=True)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>}", b'{"status":"x","data":{}}', b'{"status":"x","data":{"a":1}}']
)
def test_a_response_that_is_not_a_status_has_no_head(body: bytes) -> None:
    assert response_json.read_head(body) is None


def test_a_buffer_can_be_filled_further_after_a_view() -> None:
    seen = bytearray(b'{"status":"x","data":[')
    assert response_json.read_head(seen) is None
    seen.extend(b"1]}" * 10_000)
    assert response_json.read_head(seen) == response_json.Head({"status": "x"}, empty=False)


def test_a_byte_order_mark_is_no_part_of_any_text() -> None:
    mark = b"\xef\xbb\xbf"
    body = mark + b'{"status":"scraping","data":[{"a":1}]}'
    assert response_json.loads(body) == {"status": "scraping", "data": [{"a": 1}]}
    assert [*response_json.split_object(body)] == ["status", "data"]
    assert [bytes(item) for item in response_json.split_array(mark + b"[1, 2]")] == [b"1", b"2"]
    chunk, head = response_json.read_chunk(body), response_json.read_head(body[:-8])
    assert (chunk.head, [bytes(each) for each in chunk.documents]) == ({"status": "scraping"}, [b'{"a":1}'])
    assert head is not None
    assert (head.fields, head.empty) == ({"status": "scraping"}, False)

"""Tests of the lenient models: values of a wrong type are kept in `extra`, nothing is lost, and nothing raises."""

import json
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weblake.api import models, operations
from weblake.api.models import Document, Model, PageMetadata, ScrapeResponse, is_terminal, parse_time

VIEWS = [one for one in vars(models).values() if isinstance(one, type) and issubclass(one, Model)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def test_a_scrape_reads_as_it_is_written_in_the_readme() -> None:
    wire = {
        "success": True,
        "data": {
            "markdown": "# Title",
            "metadata": {
                "title": ["Two", "titles"],
                "statusCode": 200,
                "sourceURL": "https://example.com",
                "og:image": "i.png",
            },
            "brandNew": [1],
        },
    }
    response = operations.scrape("https://example.com").decode(json.loads(json.dumps(wire)))
    assert isinstance(response, ScrapeResponse)
    assert response.data.markdown == "# Title"
    assert response.data.metadata.status_code == 200
    assert response.data.metadata.source_url == "https://example.com"
    assert response.data.metadata.extra == {"og:image": "i.png"}
    assert response.data.extra == {"brandNew": [1]}
    assert response.data.metadata.title == "Two"
    assert response.raw == wire


@pytest.mark.parametrize(
    ("name", "wire", "odd"),
    [
        ("markdown", "markdown", 5),
        ("links", "links", "https://example.com"),
        ("metadata", "metadata", ["no object"]),
        ("actions", "actions", True),
        ("change_tracking", "changeTracking", "new"),
        ("highlights", "highlights", ["a", "b"]),
    ],
)
def test_a_wrong_type_leaves_the_field_empty_and_stands_in_extra(name: str, wire: str, odd: object) -> None:
    document = Document.decode({wire: odd})
    assert getattr(document, name) == getattr(Document(), name)
    assert document.extra == {wire: odd}
    assert document.raw == {wire: odd}


def test_lists_are_read_entry_by_entry() -> None:
    links = ["a", None, 5, "b"]
    document = Document.decode({"links": links, "pages": [{"pageNumber": 1}, "x", {"pageNumber": "2"}]})
    assert document.links == ["a", "b"]
    assert [page.page_number for page in document.pages] == [1, None]
    assert document.pages[1].extra == {"pageNumber": "2"}
    assert document.extra == {"links": links, "pages": [{"pageNumber": 1}, "x", {"pageNumber": "2"}]}


def test_numbers() -> None:
    read = PageMetadata.decode
    assert read({"statusCode": 200.0}).status_code == 200
    assert read({"statusCode": 200.5}).extra == {"statusCode": 200.5}
    assert read({"statusCode": True}).extra == {"statusCode": True}
    assert read({"concurrencyQueueDurationMs": 1.5}).concurrency_queue_duration_ms == 1.5
    assert models.JobStatus.decode({"creditsUsed": -1}).credits_used == -1
    assert models.JobStatus.decode({"creditsUsed": 10**40, "total": 10**40}).total == 10**40
    assert read({"statusCode": float("inf")}).status_code is None


def test_a_field_named_extra_or_raw_does_not_disturb() -> None:
    document = Document.decode({"extra": 1, "raw": 2})
    assert document.extra == {"extra": 1, "raw": 2}


def test_empty_views_share_nothing() -> None:
    assert Document().metadata.extra is not Document().metadata.extra
    assert Document().links is not Document().links


def test_the_repr_is_short_and_a_view_can_be_pickled() -> None:
    document = Document.decode({"markdown": "x" * 10_000, "html": "y" * 10_000})
    assert len(repr(document)) < 400
    assert "links" not in repr(document)
    assert pickle.loads(pickle.dumps(document)) == document


@pytest.mark.system
@given(st.sampled_from(VIEWS), st.data())
def test_any_json_becomes_a_model_without_loss(view: type[Model], data: st.DataObject) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(view)]
    value = data.draw(JSON | st.dictionaries(st.sampled_from(names) | st.text(max_size=5), JSON, max_size=5))
    read = view.decode(value)
    assert read.raw is value
    assert repr(read)
    if not isinstance(value, dict):
        assert read.extra == {}
        return
    assert all(read.extra[name] is value[name] for name in read.extra)
    for field in msgspec.structs.fields(view):
        wire = field.encode_name
        if field.name in ("extra", "raw"):
            continue
        got: Any = getattr(read, field.name)
        kept = got not in (None, [], {}) or value.get(wire) in (None, [], {})
        assert kept or wire in read.extra or isinstance(got, Model)


@pytest.mark.parametrize("word", ["completed", "failed", "cancelled", "Completed", "CANCELLED"])
def test_status_words_that_end_a_job(word: str) -> None:
    assert is_terminal(word)
    assert models.JobStatus.decode({"status": word}).finished
    assert models.AgentStatus.decode({"status": word}).finished


@pytest.mark.parametrize("word", ["scraping", "processing", "", "complete", "canceled!", None, 5, ["failed"]])
def test_other_status_words_do_not_end_a_job(word: object) -> None:
    assert not is_terminal(word)
    assert not models.JobStatus.decode({"status": word}).finished


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T10:00:00.000Z", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21T10:00:00z", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21T10:00:00", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21 10:00:00.5+02:00", "2026-11-21T08:00:00.500000+00:00"),
        ("2026-11-21 10:00:00+00", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21T10:00:00.123456789-05:30", "2026-11-21T15:30:00.123456+00:00"),
        ("2026-11-21", "2026-11-21T00:00:00+00:00"),
        (" 2026-11-21T10:00Z ", "2026-11-21T10:00:00+00:00"),
    ],
)
def test_times(text: str, expected: str) -> None:
    found = parse_time(text)
    assert found is not None
    assert found.isoformat() == expected
    assert found.tzinfo is timezone.utc


@pytest.mark.parametrize(
    "value", ["", "yesterday", "2026-13-01T00:00:00Z", "1700000000", 1700000000, None, {}, "0001-01-01T00:00:00+05:00"]
)
def test_invalid_times_are_refused(value: object) -> None:
    assert parse_time(value) is None


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), st.integers(-1439, 1439))
def test_times_round_trip(time: datetime, minutes: int) -> None:
    there = time.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_time(there.isoformat()) == there
    assert parse_time(time.isoformat()) == time.replace(tzinfo=timezone.utc)


@given(st.text())
def test_any_text_is_parsed_as_a_time_or_refused(text: str) -> None:
    assert parse_time(text) is None or isinstance(parse_time(text), datetime)

"""Tests of the accounting: the counts balance with any service, and missing pages are named."""

from __future__ import annotations

from collections import Counter

import pytest
from catalogue import proves
from hypothesis import given
from hypothesis import strategies as st

from weblake.api.models import JobErrors
from weblake.loads import accounting
from weblake.loads.accounting import Account, Reconciler

HEAD: dict[str, object] = {"status": "completed"}


def errors(failed: list[str] | None = None, blocked: list[str] | None = None) -> JobErrors:
    listed = [{"url": url, "error": "no"} for url in failed or []]
    return JobErrors.decode({"errors": listed, "robotsBlocked": blocked or []})


def balances(account: Account) -> bool:
    parts = account.stored + account.failed + account.robots_blocked + account.rejected + account.missing
    return account.submitted == parts + account.duplicates


def arrive(reconciler: Reconciler, *urls: str) -> list[bool]:
    return [reconciler.document(f"id-{n}", url, url, b"") for n, url in enumerate(urls)]


def test_each_outcome_is_counted_and_has_a_row() -> None:
    urls = [f"http://a.test/{n}" for n in range(5)]
    reconciler = Reconciler(urls, rejected=[urls[3]])
    arrive(reconciler, urls[0])
    account = reconciler.close(errors([urls[1]], [urls[2]]), HEAD)
    assert (account.stored, account.failed, account.robots_blocked, account.rejected) == (1, 1, 1, 1)
    assert account.missing == 1
    assert balances(account)
    assert {(row.url, row.outcome) for row in account.rows} == {
        (urls[1], "failed"),
        (urls[2], "robots_blocked"),
        (urls[3], "rejected"),
        (urls[4], "missing"),
    }


@pytest.mark.parametrize("times", [0, 1, 2])
def test_h28_a_url_given_three_times_is_one_page_and_two_duplicates(times: int) -> None:
    """It is sent once, so a second document of it is a repetition."""
    reconciler = Reconciler(["http://a.test/"] * 3)
    assert arrive(reconciler, *["http://a.test/"] * times) == [True, False][:times]
    account = reconciler.close(errors(), HEAD | {"completed": min(times, 1)})
    assert (account.submitted, account.stored, account.duplicates) == (3, min(times, 1), 2)
    assert account.missing == 1 - account.stored


#: Two pages each, which one key cannot tell apart, or should not.
ALIKE = [
    ("http://a.test/s?q=AT%26T", "http://a.test/s?q=AT&T"),
    ("http://a.test/a%2Fb", "http://a.test/a/b"),
    ("http://a.test/dir", "http://a.test/dir/"),
    ("http://a.test/", "https://a.test/"),
    ("http://a.test/#/a", "http://a.test/#/b"),
]


@proves(
    "2.1",
    at="src/weblake/loads/accounting.py",
    line="merged = like_answered and respelled > 0",
    becomes="merged = like_answered",
)
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_two_pages_with_similar_urls_are_not_confused(one: str, other: str) -> None:
    reconciler = Reconciler([one, other])
    assert arrive(reconciler, one) == [True]
    account = reconciler.close(errors(), HEAD | {"completed": 1, "total": 2})
    assert (account.stored, account.duplicates, account.missing_urls()) == (1, 0, [other])


@proves(
    "H28",
    at="src/weblake/loads/accounting.py",
    line="if page is not None and listed and self._list is not None and not self._list.has_room(page):",
    becomes="if False:",
)
@proves(
    "2.1",
    at="src/weblake/loads/accounting.py",
    line="return url not in self._answered",
    becomes="return self._arrived[page_key(url)] < self._keys[page_key(url)]",
)
@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_h28_a_page_repeated_under_another_id_does_not_replace_a_similar_page(one: str, other: str) -> None:
    reconciler = Reconciler([one, other])
    assert arrive(reconciler, one, one, other) == [True, False, True]
    assert reconciler.close(errors(), HEAD).complete


def test_two_spellings_of_a_url_are_one_page_if_the_service_counts_one() -> None:
    reconciler = Reconciler(["a.test/x", "http://a.test/x/"])
    arrive(reconciler, "https://a.test/x")
    account = reconciler.close(errors(), HEAD | {"completed": 1, "total": 1})
    assert (account.stored, account.duplicates, account.missing) == (1, 1, 0)


def test_an_extra_document_with_another_spelling_is_reported_and_replaces_nothing() -> None:
    reconciler = Reconciler(["http://a.test/x", "http://a.test/x/"])
    assert arrive(reconciler, "https://a.test/x", "http://a.test/x", "http://a.test/x/") == [True, True, True]
    account = reconciler.close(errors(), HEAD)
    assert (account.stored, account.missing, account.foreign) == (3, 0, 1)
    assert balances_but_foreign(account)


def test_a_crawl_keeps_pages_with_similar_urls_and_an_error_beside_a_document() -> None:
    reconciler = Reconciler(None)
    assert reconciler.document(None, "http://a.test/x", None, b"")
    assert reconciler.document(None, "https://a.test/x", None, b"")
    account = reconciler.close(errors(["http://a.test/x/"]), HEAD)
    assert (account.stored, account.failed) == (2, 1)


@pytest.mark.parametrize(("total", "completed", "merged"), [(4, 2, 0), (3, 2, 1), (2, 2, 2), (2, 3, 1)])
def test_as_many_spellings_are_merged_as_the_service_counts_fewer_pages(
    total: int, completed: int, merged: int
) -> None:
    reconciler = Reconciler([f"http://a.test/{n}{slash}" for n in "12" for slash in ("", "/")])
    arrive(reconciler, "http://a.test/1", "http://a.test/2")
    account = reconciler.close(errors(), HEAD | {"completed": completed, "total": total})
    assert (account.duplicates, account.missing) == (merged, 2 - merged)


def test_a_failed_page_that_the_service_does_not_count_is_no_merged_spelling() -> None:
    reconciler = Reconciler(["http://a.test/1", "http://a.test/1/", "http://a.test/2"])
    arrive(reconciler, "http://a.test/1")
    account = reconciler.close(errors(["http://a.test/2"]), HEAD | {"completed": 1, "total": 2})
    assert (account.stored, account.failed, account.duplicates) == (1, 1, 0)
    assert account.missing_urls() == ["http://a.test/1/"]


def test_h18_documents_that_overlapping_chunks_repeat_are_stored_once() -> None:
    reconciler = Reconciler(None)
    assert reconciler.document("same", "http://a.test/", None, b"")
    assert not reconciler.document("same", "http://a.test/", None, b"")
    assert reconciler.document("same", "http://a.test/other", None, b"")  # one id for all pages: none may be lost
    assert reconciler.document("same", None, "http://a.test/3", b"")
    assert reconciler.document("same", None, "http://a.test/4", b"")


def test_without_scrape_ids_documents_are_distinguished_by_their_source_url() -> None:
    reconciler = Reconciler(None)
    assert reconciler.document(None, "http://a.test/", None, b"1")
    assert not reconciler.document(None, "http://a.test/", None, b"2")


def test_documents_without_a_url_are_distinguished_by_their_content() -> None:
    reconciler = Reconciler(None)
    assert [reconciler.document(None, None, None, content) for content in (b"1", b"2", b"1")] == [True, True, False]


def test_a_document_that_names_the_submitted_url_after_its_redirect_counts_for_it() -> None:
    reconciler = Reconciler(["http://a.test/1"])
    assert reconciler.document("id", "http://tracker.test/r", "http://a.test/1", b"")
    account = reconciler.close(errors(), HEAD)
    assert (account.stored, account.missing, account.foreign) == (1, 0, 0)


def test_a_document_of_another_url_does_not_count_for_a_missing_page() -> None:
    reconciler = Reconciler(["http://a.test/1", "http://a.test/2"])
    arrive(reconciler, "http://a.test/1", "http://elsewhere.test/")
    account = reconciler.close(errors(), HEAD)
    assert account.foreign == 1
    assert account.missing_urls() == ["http://a.test/2"]
    assert not account.complete


def test_a_document_without_a_url_counts_for_the_remaining_page() -> None:
    reconciler = Reconciler(["http://a.test/1", "http://a.test/2"])
    arrive(reconciler, "http://a.test/1")
    assert reconciler.document(None, None, None, b"x")
    account = reconciler.close(errors(), HEAD)
    assert (account.stored, account.missing, account.foreign) == (2, 0, 0)


def test_more_documents_without_a_url_than_remaining_pages_belong_to_no_submitted_page() -> None:
    reconciler = Reconciler(["http://a.test/1"])
    arrive(reconciler, "http://a.test/1")
    assert reconciler.document(None, None, None, b"x")
    account = reconciler.close(errors(), HEAD)
    assert (account.stored, account.missing, account.foreign, account.complete) == (2, 0, 1, False)


def test_each_entry_that_is_no_document_is_a_failure_with_a_reason() -> None:
    reconciler = Reconciler(["http://a.test/1", "http://a.test/2", "http://a.test/3"])
    arrive(reconciler, "http://a.test/1")
    reconciler.malformed(1)
    reconciler.malformed(1)
    account = reconciler.close(errors(), HEAD)
    assert (account.failed, account.missing) == (2, 0)
    assert [row.code for row in account.rows] == ["MALFORMED_DOCUMENT"] * 2


def test_a_failed_page_is_not_among_the_missing_ones() -> None:
    reconciler = Reconciler(["http://a.test/1", "http://a.test/2"])
    account = reconciler.close(errors(["http://a.test/1"]), HEAD)
    assert (account.failed, account.missing) == (1, 1)
    assert account.missing_urls() == ["http://a.test/2"]


def test_a_page_that_failed_first_and_arrived_later_is_stored() -> None:
    reconciler = Reconciler(["http://a.test/1"])
    arrive(reconciler, "http://a.test/1")
    account = reconciler.close(errors(["http://a.test/1"]), HEAD)
    assert (account.stored, account.failed) == (1, 0)
    assert not account.rows


def test_an_error_of_a_crawl_counts_once_and_not_beside_the_document_of_its_page() -> None:
    reconciler = Reconciler(None)
    arrive(reconciler, "http://a.test/1")
    account = reconciler.close(errors(["http://a.test/1", "http://a.test/2", "http://a.test/2"]), HEAD)
    assert (account.stored, account.failed, account.submitted) == (1, 1, 2)
    assert [row.url for row in account.rows] == ["http://a.test/2"]


def test_the_row_of_a_failed_page_has_the_reason_and_time_of_the_service() -> None:
    error = {"url": "http://a.test/1", "code": "TIMEOUT", "error": "no", "timestamp": "2026-11-21T06:00:00Z"}
    account = Reconciler(None).close(JobErrors.decode({"errors": [error]}), HEAD)
    (row,) = account.rows
    assert (row.url, row.code, row.error, row.occurred_at) == tuple(error.values())


def test_the_rows_of_missing_pages_without_a_url_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "MAX_NAMELESS", 3)
    account = Reconciler(None).close(errors(), HEAD | {"total": 10})
    assert (account.missing, account.submitted, len(account.rows)) == (10, 10, 3)


@proves(
    "H21",
    at="src/weblake/events.py",
    line="return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None",
    becomes="return value if isinstance(value, int) else None",
    case="head4-0",
)
@proves(
    "H21",
    at="src/weblake/loads/accounting.py",
    line='(count_of(head.get("completed")) or 0) - account.stored - self._malformed,',
    becomes="0,",
    case="head2-1",
)
@proves(
    "H21",
    at="src/weblake/loads/accounting.py",
    line='(count_of(head.get("total")) or 0) - known,',
    becomes="0,",
    case="head0-1",
)
@pytest.mark.parametrize(
    ("head", "missing"),
    [
        ({"total": 3, "completed": 2}, 1),
        ({"total": 2, "completed": 2}, 0),
        ({"total": 2, "completed": 3}, 1),
        ({"total": "9"}, 0),
        ({"total": 2**70, "completed": True}, 0),
    ],
)
def test_h21_without_a_list_the_counters_of_the_service_are_compared(head: dict[str, object], missing: int) -> None:
    reconciler = Reconciler(None)
    arrive(reconciler, "http://a.test/1", "http://a.test/2")
    account = reconciler.close(errors(), HEAD | head)
    assert account.missing == missing
    assert balances(account)


names = st.sampled_from([f"http://a.test/{n}" for n in range(6)])


@proves(
    "2.1",
    at="src/weblake/loads/accounting.py",
    line="account.duplicates = sent.count + sent.repeated, sent.repeated",
    becomes="account.duplicates = sent.count, sent.repeated",
)
@given(
    submitted=st.lists(names, min_size=1, max_size=10),
    documents=st.lists(st.tuples(names, st.one_of(st.none(), st.integers(0, 30))), max_size=14),
    failed=st.lists(names, max_size=6),
    blocked=st.lists(names, max_size=4),
    rejected=st.lists(names, max_size=4),
    malformed=st.integers(0, 3),
    completed=st.one_of(st.none(), st.integers(-1, 20)),
)
def test_the_counts_always_balance(
    submitted: list[str],
    documents: list[tuple[str, int | None]],
    failed: list[str],
    blocked: list[str],
    rejected: list[str],
    malformed: int,
    completed: int | None,
) -> None:
    reconciler = Reconciler(submitted, rejected)
    stored: Counter[str] = Counter()
    for url, number in documents:
        if reconciler.document(None if number is None else f"id-{number}", url, url, url.encode()):
            stored[url] += 1
    reconciler.malformed(malformed)
    account = reconciler.close(errors(failed, blocked), HEAD | {"completed": completed})
    known = Counter(submitted)
    assert all(stored[url] <= 1 for url in known)  # nothing doubled
    assert account.stored - account.foreign + account.foreign == account.stored
    assert balances_but_foreign(account)
    assert len(account.rows) == account.failed + account.robots_blocked + account.rejected + account.missing
    for url in known:  # nothing lost: each submitted URL is a document, a row, or folded into one of them
        assert stored[url] or any(row.url == url for row in account.rows)


alike = st.sampled_from(
    [f"{scheme}://a.test/{n}{slash}" for scheme in ("http", "https") for n in "12" for slash in ("", "/")]
)


@given(
    st.lists(alike, min_size=1, max_size=8), st.lists(alike, max_size=8), st.lists(alike, max_size=4), st.integers(0, 8)
)
def test_the_counts_balance_with_similar_urls(
    submitted: list[str], documents: list[str], failed: list[str], total: int
) -> None:
    reconciler = Reconciler(submitted)
    stored = Counter(url for n, url in enumerate(documents) if reconciler.document(f"id-{n}", url, url, b""))
    account = reconciler.close(errors(failed), HEAD | {"total": total, "completed": sum(stored.values())})
    assert balances_but_foreign(account)
    for url in submitted:
        assert stored[url] == min(1, documents.count(url)), "none is stored for another, and none is left out"


def balances_but_foreign(account: Account) -> bool:
    parts = account.stored - account.foreign + account.failed + account.robots_blocked + account.rejected
    return account.submitted == parts + account.missing + account.duplicates


@proves("2.1", at="src/weblake/loads/accounting.py", line="self.missing += pages", becomes="pass")
@given(
    documents=st.lists(names, max_size=14),
    failed=st.lists(names, max_size=6),
    total=st.integers(-1, 30),
    completed=st.integers(-1, 30),
)
def test_the_counts_balance_without_a_list(documents: list[str], failed: list[str], total: int, completed: int) -> None:
    reconciler = Reconciler(None)
    arrive(reconciler, *documents)
    account = reconciler.close(errors(failed), HEAD | {"total": total, "completed": completed})
    assert balances(account)
    assert account.submitted >= max(total, completed)


def test_a_url_accepts_as_many_results_as_it_was_sent_in_any_spelling() -> None:
    for urls, sent in ((["http://a.test/"] * 2, 1), (["http://a.test/", "https://a.test/"], 2)):
        submitted = accounting.Submitted(urls)
        for _ in range(sent):
            assert submitted.has_room("http://A.test")
            submitted.answer("http://A.test")
        assert not submitted.has_room("http://A.test")
        assert not submitted.has_room("http://another.test/")

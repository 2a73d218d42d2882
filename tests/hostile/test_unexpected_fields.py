"""Fields outside the contract, at every place of a response: they land, and nothing fails."""

from __future__ import annotations

import json

from catalogue import proves
from landing_commands import Lake, documents, page_errors
from scripted_job import JOB, Job, page, pages, url_of
from scripted_service import ScriptedService, reply

#: Unknown fields, an unknown enumeration value, and unknown parts of structures.
NEW = {
    "someday": {"deep": [1, None, {"a": "ü"}]},
    "json": {"any": ["thing"]},
    "changeTracking": {"changeStatus": "teleported", "confidence": 0.5, "diff": {"text": "+", "json": {}}},
    "actions": {"screenshots": ["s"], "recordings": ["r"], "scrapes": [{"url": "u", "html": "h", "took": 3}]},
}


@proves(
    "H23",
    at="src/weblake/arrow/document_columns.py",
    line="left = {*misfits, *(document.fields.keys() - _KNOWN_FIELDS)}",
    becomes="left = {*misfits}",
)
@proves(
    "H23",
    at="src/weblake/arrow/document_columns.py",
    line="items[begins + at] = fields.verbatim(raws[key])",
    becomes="items[begins + at] = str(value)",
)
@proves("H23", at="src/weblake/arrow/document_columns.py", line="if not fit.complete:", becomes="if False:")
def test_h23_unknown_fields_are_stored_unchanged(service: ScriptedService, lake: Lake) -> None:
    odd = page(0, **NEW)
    odd["metadata"] |= {"og:novel": "n", "scores": {"a": [1.50]}, "none": None}  # type: ignore[operator]
    job = Job(service, [odd, page(1)], novel={"head": [1]}, warning=["odd"], createdAt=7)
    job.errors = {
        "errors": [{"url": url_of(2), "error": "x", "code": "NEVER_SEEN", "attempts": 3}],
        "robotsBlocked": [],
        "skipped": [1],
    }
    lake.land(job=JOB).landed([odd, page(1)], failed=1)
    row = documents(lake.root)[0]
    # A structure with more than its column can hold is kept in `extra` completely, in addition to the column.
    assert json.loads(row["extra"]) == {name: NEW[name] for name in ("someday", "changeTracking", "actions")}
    assert json.loads(row["json"]) == NEW["json"]
    assert row["change_tracking"]["change_status"] == "teleported"
    assert row["actions"]["scrapes"] == [{"url": "u", "html": "h"}]
    kept = dict(row["metadata"])
    assert (kept["og:novel"], json.loads(kept["scores"]), kept["none"]) == ("n", {"a": [1.5]}, None)
    assert (row["title"], row["repaired"]) == ("Page 0", False)
    assert [error["code"] for error in page_errors(lake.root)] == ["NEVER_SEEN"]


#: NUL, a terminal escape, half a surrogate pair, and a line that looks like another message.
SAID = r"broken\u0000 \u001b[31m\ud800\nweblake: all is well"


@proves(
    "H26",
    at="src/weblake/credentials.py",
    line='text = _CONTROL_CHARACTERS.sub(" ", text).strip()',
    becomes="text = text.strip()",
)
def test_h26_an_error_text_of_the_service_is_one_printable_line(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(1))
    job.always(0, reply(job.raw(json.dumps(page(0)), status="failed", error="SAID").replace(b"SAID", SAID.encode())))
    printed = lake.land(job=JOB).expect_error("JobEnded", "broken", "all is well")
    message = printed["error"]["message"]
    assert not {"\0", "\x1b", "\n", "\ud800"} & set(message), message
    assert not {"\0", "\x1b"} & set(lake.outcomes[-1].err)


@proves(
    "H26",
    at="src/weblake/api/models/responses.py",
    line="status.lower() in TERMINAL",
    becomes='status.lower().strip("\\0") in TERMINAL',
)
def test_h26_a_receipt_contains_no_text_of_the_service(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    odd = r'"completed\u0000"'
    play = reply(json.dumps(job.chunks[0]).replace('"completed"', odd, 1))
    service.first(job.read, play, play)
    receipt = lake.land(job=JOB).landed(pages(2))
    assert receipt["status"] == "completed"
    assert "\\u0000" not in lake.outcomes[-1].out

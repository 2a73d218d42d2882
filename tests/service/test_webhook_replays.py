"""S5: webhooks that are repeated, delayed, reordered, or intercepted and sent by somebody else.

A delivery is a hint: a receiver that remembers its id acts on it once, and reads the job's state from the service.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from tiers import examples

import weblake
from weblake import Terms
from weblake.api import webhooks
from weblake.jobs.result_pages import LAG_PAUSES_S

SECRET = "test-secret"
KINDS = st.sampled_from(["crawl.page", "batch_scrape.page", "crawl.completed", "batch_scrape.started"])
JOBS = st.integers(0, 2).map(lambda number: str(uuid.UUID(int=number)))


class Deliveries(RuleBasedStateMachine):
    """A service that sends webhooks, a network that repeats, reorders and alters them, and a receiver."""

    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.kept: set[str] = set()
        self.acted: Counter[bytes] = Counter()
        self.arrived: set[bytes] = set()

    def take(self, body: bytes, signature: str) -> None:
        event = webhooks.receive(body, signature, SECRET)
        key = webhooks.delivery_key(event)
        if key not in self.kept:
            self.kept.add(key)
            self.acted[body] += 1

    @rule(target=sent, kind=KINDS, job=JOBS, has_id=st.booleans())
    def send(self, kind: str, job: str, has_id: bool) -> tuple[bytes, str]:
        """Create an event, which the network may hold back for any time."""
        self.count += 1
        event: dict[str, Any] = {"success": True, "type": kind, "id": job, "metadata": {"n": self.count}}
        if has_id or not kind.endswith(".page"):
            event["webhookId"] = str(uuid.UUID(int=self.count))
        if kind.endswith(".page"):
            event["data"] = [{"metadata": {"scrapeId": str(uuid.UUID(int=1000 + self.count)), "sourceURL": "u"}}]
        body = json.dumps(event).encode()
        return body, webhooks.sign(SECRET, body)

    @rule(delivery=sent)
    def arrive(self, delivery: tuple[bytes, str]) -> None:
        """Deliver an event, for the first time or again."""
        self.take(*delivery)
        self.arrived.add(delivery[0])

    @rule(delivery=sent, spelled=st.sampled_from([b'"n": 1', b'"webhookId"', b"true", b"crawl"]))
    def alter(self, delivery: tuple[bytes, str], spelled: bytes) -> None:
        """Alter a delivery id: that would make it new, but the id is signed."""
        body, signature = delivery
        changed = body.replace(spelled, spelled[:-1] + b"7", 1)
        if changed != body:
            with pytest.raises(webhooks.SignatureMismatch):
                self.take(changed, signature)

    @invariant()
    def each_was_acted_on_once(self) -> None:
        assert self.acted == Counter(self.arrived)


@proves(
    "S5",
    at="src/weblake/api/webhooks.py",
    line="""return f"{event.type} {(event.id or '').lower()} {delivery}\"""",
    becomes="""return f"{event.type} {(event.id or '').lower()}\"""",
)
@proves(
    "S5",
    at="src/weblake/api/webhooks.py",
    line="""return f"{event.type} {(event.id or '').lower()} {delivery}\"""",
    becomes="""return f"{__import__('uuid').uuid4()} {delivery}\"""",
)
def test_s5_a_deduplicating_receiver_handles_each_delivery_once() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Deliveries, settings=settings(max_examples=examples(150), stateful_step_count=25))


@proves(
    "S5",
    at="src/weblake_service/jobs/webhook_queue.py",
    line='delivery_id = ids.delivery_id(job["id"], event, place)',
    becomes="delivery_id = __import__('secrets').token_hex(8)",
)
def test_s5_a_redelivery_after_a_crash_has_the_same_id_and_body(bench: Any) -> None:
    from weblake_service import ids

    job = str(uuid.uuid4())
    assert ids.delivery_id(job, "completed", 3) == ids.delivery_id(job, "completed", 3)
    assert ids.delivery_id(job, "completed", 3) != ids.delivery_id(job, "completed", 4)
    started = bench.batch("http://site.test/a", webhook="http://127.0.0.1:1/")
    bench.wait_until_ended(started)
    (one,) = bench.until(lambda: bench.http.get("/_weblake/deliveries").json()["deliveries"])
    assert one["webhookId"] == ids.delivery_id(started, "completed", 1)


@pytest.mark.system
@proves(
    "S5",
    at="src/weblake/jobs/polling.py",
    line='if models.is_terminal(head.fields.get("status")):',
    becomes="if True:",
)
def test_s5_an_early_signed_event_lands_the_complete_job(bench: Any, tmp_path: Path) -> None:
    """An early or forged event with a valid signature claims an end and documents, and both are ignored."""
    urls = ["http://site.test/a", "http://site.test/b"]
    bench.web.held.add(urls[1])
    job = bench.batch(*urls)
    bench.until(lambda: bench.status(job)["completed"] == 1)
    claimed = {"type": "batch_scrape.completed", "id": job, "success": True, "data": [{"markdown": "false"}] * 9}
    body = json.dumps(claimed).encode()
    event = webhooks.receive(body, webhooks.sign(SECRET, body), SECRET)
    receipts: list[Any] = []

    def asked() -> int:
        return len([one for one in bench.service.requests() if "/v2/batch/scrape/" in str(one["path"])])

    def land() -> None:
        with weblake.Client(base_url=bench.service.url, api_key=bench.service.key) as client:
            receipts.append(weblake.land("batch", str(event.id), to=tmp_path, client=client, terms=Terms(poll_s=0.2)))

    before = asked()
    landing = threading.Thread(target=land)
    landing.start()
    # More reads than the retries for a stale status, after which a client would accept the claimed end.
    bench.until(lambda: asked() > before + 2 * len(LAG_PAUSES_S), 240)
    assert receipts == []
    assert not list(tmp_path.glob("documents/**/*.parquet"))
    bench.web.held.clear()
    landing.join(120)
    assert [(one.stored, one.complete) for one in receipts] == [(2, True)]
    assert "false" not in weblake.read(tmp_path, "documents").to_table()["markdown"].to_pylist()

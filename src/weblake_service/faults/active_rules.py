"""The active fault rules: which one applies to a request, a page or a webhook, how often, and to webhooks how."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import urlsplit

import msgspec

from weblake.api.webhooks import SIGNATURE_HEADER, sign
from weblake_service.faults.rules import Effect, Rule, SubjectKind
from weblake_service.page_failure import PageFailure

#: Matches a request for one job, or the start of one.
_JOB_REQUEST = re.compile(r"^/v2/(batch/scrape|scrape|crawl|map|search|parse)(?:/([^/?]+))?(/[^?]*)?(?:\?|$)")
#: Number of characters of a job id; it distinguishes ids from paths such as `/v2/crawl/active`.
_UUID_CHARS = 36
#: Maximum number of requests and pages that one rule counts separately; beyond it the counters are reset.
_MAX_DISTINCT_SUBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class Subject:
    """A request, a page or a webhook that a rule can affect."""

    subject_kind: SubjectKind
    #: Path and query of a request; the URL of a page or a receiver.
    path: str
    method: str = ""
    kind: str = ""
    job_id: str = ""
    event: str = ""
    #: Whether a request reads a job's status.
    reads: bool = False


@dataclass(slots=True)
class ActiveRule:
    """An active rule with its counters: how many subjects it has matched and affected."""

    rule: Rule
    id: int
    seen: int = 0
    hit: int = 0
    #: Ids of the jobs that it delays.
    stalled: set[str] = field(default_factory=set)
    _times_met: Counter[str] = field(default_factory=Counter)

    def matches(self, subject: Subject) -> bool:
        """Count the subject if it matches, and return whether the rule affects it."""
        if not self._applies_to(subject):
            return False
        self.seen += 1
        if self.seen < self.rule.match.nth or (self.rule.times is not None and self.hit >= self.rule.times):
            return False
        if not self._is_drawn(subject):
            return False
        self.hit += 1
        return True

    def to_dict(self) -> dict[str, object]:
        """Return the rule with its counters."""
        return {**msgspec.structs.asdict(self.rule), "id": self.id, "seen": self.seen, "hit": self.hit}

    def _applies_to(self, subject: Subject) -> bool:
        match, kind = self.rule.match, self.rule.subject_kind
        return (
            subject.subject_kind == ("request" if kind == "read" else kind)
            and (subject.reads or kind != "read")
            and (match.method is None or match.method.upper() == subject.method)
            and (match.job is None or match.job in (subject.kind, subject.job_id))
            and (match.event is None or match.event in (subject.event, subject.event.rpartition(".")[2]))
            and re.search(match.path, subject.path) is not None
        )

    def _is_drawn(self, subject: Subject) -> bool:
        if self.rule.probability >= 1:
            return True
        if subject.subject_kind == "page":
            # By the page's URL and not by its order, because pages are scraped concurrently. The port is omitted.
            parts = urlsplit(subject.path)
            name = f"{parts.path}?{parts.query}"
            if len(self._times_met) >= _MAX_DISTINCT_SUBJECTS:
                self._times_met.clear()
            self._times_met[name] += 1
            drawn = f"{self.rule.seed} {name} {self._times_met[name]}"
        else:
            drawn = f"{self.rule.seed} {self.seen}"
        number = int.from_bytes(blake2b(drawn.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
        return number / 2**64 < self.rule.probability


class ActiveFaults:
    """The active rules. The first affecting rule decides; every matching rule counts the subject."""

    def __init__(self) -> None:
        self._active: list[ActiveRule] = []
        self._last_id = 0
        self._changed = asyncio.Event()
        #: Set when the service stops, so that no stalled request delays the shutdown.
        self.stopped = asyncio.Event()

    @property
    def rules(self) -> list[dict[str, object]]:
        """Return the active rules with their counters."""
        return [standing.to_dict() for standing in self._active]

    def replace(self, rules: Iterable[Rule]) -> None:
        """Replace all rules."""
        self._set([self._new(rule) for rule in rules])

    def add(self, rules: Iterable[Rule]) -> list[int]:
        """Append rules and return their ids."""
        added = [self._new(rule) for rule in rules]
        self._set([*self._active, *added])
        return [standing.id for standing in added]

    def remove(self, rule_id: int) -> bool:
        """Remove one rule and return whether it existed."""
        kept = [standing for standing in self._active if standing.id != rule_id]
        found = len(kept) < len(self._active)
        self._set(kept)
        return found

    def clear(self) -> None:
        """Remove all rules and end the requests that they stalled; ids start again."""
        self.replace([])
        self._last_id = 0
        self.stopped.set()
        self.stopped = asyncio.Event()

    def for_request(self, method: str, target: str) -> ActiveRule | None:
        """Return the rule that affects this request, or None; `target` is its path and query."""
        found = _JOB_REQUEST.search(target)
        kind, job_id = ((found[1] or "").replace("/", "_"), found[2] or "") if found else ("", "")
        reads = kind in ("crawl", "batch_scrape") and len(job_id) == _UUID_CHARS and found is not None and not found[3]
        return self._first_affecting(Subject("request", target, method, kind, job_id, reads=reads and method == "GET"))

    def for_delivery(self, url: str, event: str, job_id: str) -> Effect | None:
        """Return the effect on this webhook, or None; `event` is its type, such as `crawl.completed`."""
        active = self._first_affecting(
            Subject("webhook", url, kind=event.partition(".")[0], job_id=job_id, event=event)
        )
        return active.rule.effect if active else None

    async def apply_to_page(self, url: str, job_kind: str, job_id: str) -> bool:
        """Apply the effect on a page before it is scraped, and return whether the page is lost.

        Raises:
            PageFailure: The page fails.
        """
        stalling = next((standing for standing in self._active if job_id in standing.stalled), None)
        active = stalling or self._first_affecting(Subject("page", url, kind=job_kind, job_id=job_id))
        if active is None:
            return False
        effect = active.rule.effect
        if effect.stall_job:
            active.stalled.add(job_id)
        if effect.latency_ms:
            await asyncio.sleep(effect.latency_ms / 1000)
        while effect.stall_job and active in self._active:
            await self._changed.wait()
        if effect.fail_page:
            raise PageFailure(effect.page_code, f"Injected fault: {url} fails. Drop the rule to have it scraped.")
        return effect.lose_page

    def _first_affecting(self, subject: Subject) -> ActiveRule | None:
        matching = [standing for standing in self._active if standing.matches(subject)]
        for late in matching[1:]:
            late.hit -= 1
        return matching[0] if matching else None

    def _new(self, rule: Rule) -> ActiveRule:
        self._last_id += 1
        return ActiveRule(rule, self._last_id)

    def _set(self, standing: Sequence[ActiveRule]) -> None:
        self._active = list(standing)
        self._changed.set()
        self._changed = asyncio.Event()


#: Posts a body to a URL and returns the status of the response; raises network errors.
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]

_OTHER_SIGNING_KEY = "not the secret that both sides share"
_ACCEPTED_STATUS = 204


class FaultyWebhookSender:
    """Wraps the function that posts webhooks."""

    def __init__(self, post: Post, faults: ActiveFaults) -> None:
        self._post = post
        self._faults = faults

    async def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post a webhook, with the effect of a matching rule; return the receiver's last status."""
        said = msgspec.json.decode(body, type=dict[str, object])
        effect = self._faults.for_delivery(url, str(said.get("type")), str(said.get("id")))
        if effect is None:
            return await self._post(url, body, headers)
        if effect.latency_ms:
            await asyncio.sleep(effect.latency_ms / 1000)
        if effect.lose_webhook:
            return _ACCEPTED_STATUS
        if effect.bad_signature:
            headers = {**headers, SIGNATURE_HEADER: sign(_OTHER_SIGNING_KEY, body)}
        if effect.duplicate_webhook:
            await self._post(url, body, headers)
        return await self._post(url, body, headers)

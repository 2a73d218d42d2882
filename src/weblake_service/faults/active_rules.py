"""The active fault rules: which one applies to a request, a page or a webhook, and how often."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import urlsplit

import msgspec

from weblake_service.faults.rules import About, Effect, Rule
from weblake_service.page_failure import PageFailure

#: A request for one job, or the start of one.
_JOB = re.compile(r"^/v2/(batch/scrape|scrape|crawl|map|search|parse)(?:/([^/?]+))?(/[^?]*)?(?:\?|$)")
#: Characters of a job's id: `/v2/crawl/active` has none.
_UUID = 36
#: Requests and pages that one rule tells apart; beyond it begins to count anew.
_MOST_TOLD_APART = 100_000


@dataclass(frozen=True, slots=True)
class Subject:
    """What could be struck."""

    about: About
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
    """A rule in force, and how often it met and struck what it is about."""

    rule: Rule
    id: int
    seen: int = 0
    hit: int = 0
    #: The jobs that it holds up.
    stalled: set[str] = field(default_factory=set)
    _times_met: Counter[str] = field(default_factory=Counter)

    def matches(self, subject: Subject) -> bool:
        """Count the subject, where it is one of this rule's, and say whether it is struck."""
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
        match, about = self.rule.match, self.rule.about
        return (
            subject.about == ("request" if about == "read" else about)
            and (subject.reads or about != "read")
            and (match.method is None or match.method.upper() == subject.method)
            and (match.job is None or match.job in (subject.kind, subject.job_id))
            and (match.event is None or match.event in (subject.event, subject.event.rpartition(".")[2]))
            and re.search(match.path, subject.path) is not None
        )

    def _is_drawn(self, subject: Subject) -> bool:
        if self.rule.probability >= 1:
            return True
        if subject.about == "page":
            # By the page, and not by the turn in which it came: pages are scraped side by side. The port is left out.
            parts = urlsplit(subject.path)
            name = f"{parts.path}?{parts.query}"
            if len(self._times_met) >= _MOST_TOLD_APART:
                self._times_met.clear()
            self._times_met[name] += 1
            drawn = f"{self.rule.seed} {name} {self._times_met[name]}"
        else:
            drawn = f"{self.rule.seed} {self.seen}"
        number = int.from_bytes(blake2b(drawn.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
        return number / 2**64 < self.rule.probability


@dataclass(frozen=True, slots=True)
class PageEffect:
    """What is to happen to a page before it is scraped."""

    effect: Effect
    #: The rule that holds its job up, if one does.
    stalled_by: ActiveRule | None = None


class ActiveFaults:
    """The rules. The first one that strikes decides; every one that is about the subject counts it."""

    def __init__(self) -> None:
        self._active: list[ActiveRule] = []
        self._last_id = 0
        self._changed = asyncio.Event()
        #: Set when the service stops, so that no stalled request holds it up.
        self.stopped = asyncio.Event()

    @property
    def rules(self) -> list[dict[str, object]]:
        """Return the rules that hold, with their counters."""
        return [standing.to_dict() for standing in self._active]

    def replace(self, rules: Iterable[Rule]) -> None:
        """Put these rules in the place of all others."""
        self._set([self._new(rule) for rule in rules])

    def add(self, rules: Iterable[Rule]) -> list[int]:
        """Put these rules behind the others and return their ids."""
        added = [self._new(rule) for rule in rules]
        self._set([*self._active, *added])
        return [standing.id for standing in added]

    def remove(self, rule_id: int) -> bool:
        """Drop one rule and return whether there was one."""
        kept = [standing for standing in self._active if standing.id != rule_id]
        found = len(kept) < len(self._active)
        self._set(kept)
        return found

    def clear(self) -> None:
        """Drop all rules and end the requests that they stalled; ids begin anew."""
        self.replace([])
        self._last_id = 0
        self.stopped.set()
        self.stopped = asyncio.Event()

    def for_request(self, method: str, target: str) -> ActiveRule | None:
        """Return the rule that strikes this request; `target` is its path and query."""
        found = _JOB.search(target)
        kind, job_id = ((found[1] or "").replace("/", "_"), found[2] or "") if found else ("", "")
        reads = kind in ("crawl", "batch_scrape") and len(job_id) == _UUID and found is not None and not found[3]
        return self._first(Subject("request", target, method, kind, job_id, reads=reads and method == "GET"))

    def for_page(self, url: str, job_kind: str, job_id: str) -> PageEffect | None:
        """What is to happen to this page of a job."""
        for standing in self._active:
            if job_id in standing.stalled:
                return PageEffect(standing.rule.effect, standing)
        struck = self._first(Subject("page", url, kind=job_kind, job_id=job_id))
        if struck is None:
            return None
        if not struck.rule.effect.stall_job:
            return PageEffect(struck.rule.effect)
        struck.stalled.add(job_id)
        return PageEffect(struck.rule.effect, struck)

    def for_delivery(self, url: str, event: str, job_id: str) -> Effect | None:
        """What is to happen to this webhook; `event` is its type, such as `crawl.completed`."""
        struck = self._first(Subject("webhook", url, kind=event.partition(".")[0], job_id=job_id, event=event))
        return struck.rule.effect if struck else None

    async def apply_to_page(self, url: str, job_kind: str, job_id: str) -> bool:
        """Let happen to a page what is to happen before it is scraped, and return whether the page is lost.

        Raises:
            PageFailure: The page fails.
        """
        page = self.for_page(url, job_kind, job_id)
        if page is None:
            return False
        if page.effect.latency_ms:
            await asyncio.sleep(page.effect.latency_ms / 1000)
        while page.stalled_by is not None and page.stalled_by in self._active:
            await self._changed.wait()
        if page.effect.fail_page:
            raise PageFailure(page.effect.page_code, f"Injected fault: {url} fails. Drop the rule to have it scraped.")
        return page.effect.lose_page

    def _first(self, subject: Subject) -> ActiveRule | None:
        struck = [standing for standing in self._active if standing.matches(subject)]
        for late in struck[1:]:
            late.hit -= 1
        return struck[0] if struck else None

    def _new(self, rule: Rule) -> ActiveRule:
        self._last_id += 1
        return ActiveRule(rule, self._last_id)

    def _set(self, standing: Sequence[ActiveRule]) -> None:
        self._active = list(standing)
        self._changed.set()
        self._changed = asyncio.Event()

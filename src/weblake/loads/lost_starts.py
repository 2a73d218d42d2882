"""Rules that find, in the service's activity list, the jobs that a start without a response may have created."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weblake.api import models
from weblake.api.options.values import url_problem, uuid_problem
from weblake.api.page_keys import page_key
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent, StartAttempt
from weblake.errors import OutcomeUnknown, Remedy
from weblake.loads import sent_lists

if TYPE_CHECKING:
    from weblake.jobs.usage_reports import Listing

#: Tolerance in seconds when the time of a job is compared with the intent's: an HTTP date has whole seconds.
CLOCK_SLACK_S = 2.0
#: Seconds; the service lists 24 hours, so an older intent cannot be looked up.
WINDOW_S = 23.5 * 3600
#: Remedies for a start whose outcome is unknown.
RUN_AGAIN = Remedy("{run_again} when the service is up; or look for the job and land it with {land}.")
START_AFRESH = Remedy("If it does not matter that it may be paid twice, {start_afresh}.")
LAND_IF_KNOWN = Remedy("If the job is known, land it with {land}; otherwise {start_afresh}.")


def find_candidates(
    intent: Intent, start: StartAttempt, found: Listing, ledger: Ledger, age_s: float | None = None
) -> list[str]:
    """Return the ids of listed jobs that this start may have created, without those that another load has started.

    A job that was landed by its id may be the start's: a person who knows the job lands it so. `age_s` are the seconds
    since the start was sent, if this process has sent it; None if another one has, whose clock is not known. An intent
    may be much older than its start: the service may have refused the earlier ones.

    Raises:
        OutcomeUnknown: The list does not go back far enough, or an entry that may be the job cannot be read. Or no
            listed job has the first URL of the list that was sent, and one has another of its URLs.
        StorageRefused: The owner of such a job, or the list that was sent, cannot be read.
    """
    if start.service not in (None, intent.service):  # its clock is another one
        intent = replace(intent, clock_ahead_s=None)
    intent_age_s = found.at + found.ahead_s - _created(intent, found.ahead_s)
    if (intent_age_s if age_s is None else min(age_s, intent_age_s)) > WINDOW_S:
        raise outcome_unknown(intent, "it is too long ago for the activity list", LAND_IF_KNOWN)
    jobs: dict[str, None] = {}
    other_targets: dict[str, set[str]] = {}
    first_target = start.first_target or intent.first_target
    for entry, ahead_s in found.entries:
        job_id = (entry.id or "").lower()
        if not _may_fit(entry, intent, _created(intent, ahead_s)):
            continue
        owner = ledger.owner(intent.kind, job_id) if job_id else None
        if owner not in (None, intent.load_id, job_load_id(intent.kind, job_id)):
            continue
        if not _may_be_target(entry.target, first_target):
            other_targets.setdefault(page_key(entry.target or ""), set()).add(job_id)
            continue
        if uuid_problem(job_id) or entry.endpoint is None or models.parse_time(entry.created_at) is None:
            raise outcome_unknown(
                intent, "the activity list has an entry that may be it and cannot be read", LAND_IF_KNOWN
            )
        jobs[job_id] = None
    return list(jobs) or _jobs_of_later_urls(intent, start, other_targets, ledger)


def _jobs_of_later_urls(
    intent: Intent, start: StartAttempt, targets: Mapping[str, Collection[str]], ledger: Ledger
) -> list[str]:
    """Return the id of the job of a later URL of the list that was sent, if a person has landed it by its id.

    A service that rejects the first URLs of a batch shows the first one that it has accepted. Another batch may begin
    with the same URL, so such a job is not adopted without a person's decision. `targets` has the jobs by URL key.

    Raises:
        OutcomeUnknown: There is such a job, and it was not landed by its id; or there are several.
        StorageRefused: The list that was sent cannot be read.
    """
    if start.urls is None or not targets:
        return []
    sent = {page_key(url) for url in sent_lists.read(ledger.storage, start.load_id, start.urls)}
    jobs = sorted({job_id for target, listed in targets.items() if target in sent for job_id in listed})
    if len(jobs) == 1 and ledger.owner(intent.kind, jobs[0]) is not None:
        return jobs
    if jobs:
        why = f"the target of {', '.join(jobs[:5])} is a URL of its list, but not the first one"
        raise outcome_unknown(intent, why, LAND_IF_KNOWN)
    return []


def _created(intent: Intent, ahead_s: float) -> float:
    """Return when an intent was recorded, by the service's clock.

    Another machine may have recorded it, or this one before its clock was corrected, so the difference of that time
    counts (docs/decisions/025-records-of-start-attempts.md). `ahead_s` is the present one, if that is unknown.
    """
    return intent.created().timestamp() + (ahead_s if intent.clock_ahead_s is None else intent.clock_ahead_s)


def _may_fit(entry: models.ActivityEntry, intent: Intent, since: float) -> bool:
    """Return whether a job may be the intent's by its endpoint and time; what cannot be read does not exclude it."""
    created = models.parse_time(entry.created_at)
    if entry.endpoint not in (None, intent.kind):
        return False
    return created is None or created.timestamp() >= since - CLOCK_SLACK_S


def _may_be_target(target: str | None, first_target: str | None) -> bool:
    """Return whether a job with this target may be a start's; a target that is no URL does not exclude it.

    Services put another text in the place of the target of a request without data retention.
    """
    if not target or not first_target or url_problem(target):
        return True
    return page_key(target) == page_key(first_target)


def outcome_unknown(intent: Intent, why: str, remedy: Remedy) -> OutcomeUnknown:
    """Return the error for an intent of which it is unknown whether its job was started."""
    return OutcomeUnknown(f"The start of load {intent.load_id} got no answer, and {why.rstrip('.')}.", hint=remedy)

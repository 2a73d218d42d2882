"""Choose the load of an orchestrator's task each time it runs: the load that it started before, or the next one.

A task may run many times in one run of its graph: the orchestrator retries it, or a person clears it. Each paid load
is a generation with its own load id. The newest generation in the ledger decides
(docs/decisions/008-generations-in-the-ledger.md):

    newest generation                same occasion                       another occasion
                                     (a retry, a second worker)          (a person cleared the task)
    not started, running, ended      newest; nothing is paid             newest; nothing is paid
    landed                           newest; returns its receipt         next; paid again
    landed, and the task failed      newest; returns its receipt         newest; returns its receipt
      before it had returned it
    failed or cancelled              next; paid again                    next; paid again
    gone from the service            newest; raises JobGone              next; paid again

The third row needs a task that records its returns. There, the occasion of the return also counts as the same one: a
person may clear a task whose job still runs, and the load is then returned for the Clear. A load without documents is
never returned: the task fails, and a Clear pays again.

A job that was cancelled because it passed a limit set by weblake is not paid again for the same occasion. A load whose
refused file is kept is published from that file if `allow_partial` is set.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from weblake.api.job_kinds import JOB_KINDS
from weblake.dataset import landed_loads, layout, root
from weblake.dataset.records import Intent, Job
from weblake.dataset.root import Dataset
from weblake.errors import AskPerson, JobGone, Remedy
from weblake.jobs.polling import JobRef, get_status, over_budget
from weblake.loads import due_urls, intents, sent_lists, starts
from weblake.loads.completeness import stopped_at
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest, Task, Terms

#: Final statuses of a job that did not do its work.
_UNSUCCESSFUL = frozenset({"failed", "cancelled"})


def place(
    client: FlowRunner, dataset: Dataset, request: LoadRequest, task: Task, terms: Terms, generation: int | None = None
) -> LoadRequest:
    """Return the request as the load that the task has to land now: the one that it began before, or the next one.

    A job that was started elsewhere stays the load that its id names. `generation` is for a process that continues
    another one: the `slot.generation` of the request that this one placed.

    Raises:
        AskPerson: The job of the newest generation runs at a service other than the client's.
        WeblakeError: The ledger cannot be read, or the service did not respond.
    """
    if request.job_id is not None:
        return replace(request, slot=task.slot(0, request.partition))
    if generation is None:
        generation = choose(client, dataset, task, terms)
    return due_urls.with_due_urls(client, dataset, place_generation(request, task, generation))


def place_refresh(client: FlowRunner, dataset: Dataset, request: LoadRequest, terms: Terms) -> LoadRequest:
    """Return a request with `refresh_after` as the load of its family to land now; any other one as it is.

    This is the load that was begun before and has not landed, or a new one of the URLs that are due. Raises as `place`.
    """
    if request.family is None:
        return request
    generation = choose(client, dataset, request.family, terms)
    return due_urls.with_due_urls(client, dataset, replace(request, load_id=request.family.load_id(generation)))


def place_generation(request: LoadRequest, task: Task, generation: int) -> LoadRequest:
    """Return the request with the load id and slot of one generation of the task."""
    return replace(request, load_id=task.load_id(generation), slot=task.slot(generation, request.partition))


def recorded_request(
    client: FlowRunner, dataset: Dataset, task: Task, terms: Terms, generation: int | None = None
) -> LoadRequest | None:
    """Return the request for the load that the task has to land now, made from the ledger; raise as `choose` does.

    None if its job is not on record, or if it is a page or file that has not landed: its request is needed then.
    """
    number = choose(client, dataset, task, terms) if generation is None else generation
    request = intents.recorded_request(dataset, task.load_id(number))
    if request is None:
        return None
    if request.kind not in JOB_KINDS and landed_loads.find(dataset, request.load_id) is None:
        return None
    return place_generation(request, task, number)


def choose(client: FlowRunner, dataset: Dataset, task: Task, terms: Terms) -> int:
    """Return the number of the generation that the task has to land now; sends at most one request about a job.

    Raises:
        AskPerson: The job of the newest generation runs at a service other than the client's.
        WeblakeError: The ledger cannot be read, or the service did not respond.
    """
    generation, newest = _newest(dataset, task)
    if newest is None:
        return 0
    again = newest.occasion != task.occasion
    return generation if _is_over(client, dataset, newest, task, terms, again=again) else generation - 1


def _newest(dataset: Dataset, task: Task) -> tuple[int, Intent | None]:
    """Return how many generations a task has, and the intent of the newest one or None."""

    @cache
    def intent(generation: int) -> Intent | None:
        return dataset.ledger.intent(task.load_id(generation))

    if intent(0) is None:
        return 0, None
    end = 1
    while intent(end) is not None:  # a list that is refreshed each night has hundreds of generations
        end *= 2
    count = bisect_left(range(end), 1, end // 2 + 1, end, key=lambda number: int(intent(number) is None))
    return count, intent(count - 1)


def open_list(dataset: Dataset, family: Task) -> tuple[str, ...] | None:
    """Return the list that the open load of a request with `refresh_after` goes on with; None if there is no such load.

    Raises:
        StorageRefused: A record of the load, or its list, cannot be read.
    """
    _, newest = _newest(dataset, family)
    if newest is None or newest.urls is None or landed_loads.find(dataset, newest.load_id) is not None:
        return None
    return sent_lists.read(dataset.storage, newest.load_id, newest.urls)


def _is_over(client: FlowRunner, dataset: Dataset, newest: Intent, task: Task, terms: Terms, *, again: bool) -> bool:
    """Return whether the newest generation is over, so that another one may be paid for."""
    load_id = newest.load_id
    landed = landed_loads.find(dataset, load_id)
    if landed is not None:
        if not task.records_return or not landed.receipt.stored:
            return again
        returned = dataset.ledger.returned(load_id)
        return again and returned is not None and returned.occasion != task.occasion
    if terms.allow_partial and dataset.storage.exists(layout.refused_path(root.DOCUMENTS, load_id)):
        return False
    job = dataset.ledger.job(load_id)
    if job is None:
        return False  # landing that generation finds out whether its job was started; a new one could be paid twice
    service = dataset.ledger.service_of(newest)
    if service not in (None, client.service):
        raise AskPerson(
            f"Job {job.job_id} of load {load_id} was started at {service}, and this is {client.service}.",
            hint=Remedy("Set {base_url} to the service that it was started at, or {start_afresh}."),
        )
    try:
        return _has_failed(client, dataset, newest, job, terms, again=again)
    except JobGone:
        return again  # to a retry, landing that load raises JobGone


def _has_failed(client: FlowRunner, dataset: Dataset, newest: Intent, job: Job, terms: Terms, *, again: bool) -> bool:
    """Return whether a job has failed or was cancelled, other than by a limit of this occasion.

    Raises:
        JobGone: The service does not have the job.
    """
    if newest.kind not in JOB_KINDS:
        if again:  # raises JobGone
            client.run(starts.read_scrape(job.job_id, client.retry))
        return False
    head = client.run(get_status(JobRef(newest.kind, job.job_id), client.retry))
    if str(head.get("status")).lower() not in _UNSUCCESSFUL:
        return False
    return again or not _stopped_by_us(head, dataset, job, terms)


def _stopped_by_us(head: Mapping[str, object], dataset: Dataset, job: Job, terms: Terms) -> bool:
    if over_budget(head, terms.max_credits) or (terms.ends_job and job.age_s() >= terms.timeout_s):
        return True
    late, used = stopped_at(dataset.ledger.stopped(job.load_id), terms)
    return late or (terms.max_credits is not None and used > terms.max_credits)


def record_returned(dataset: Dataset, request: LoadRequest) -> None:
    """Record that a task of an orchestrator, which `records_return`, is about to return the placed load to it.

    Call it last. Until then another request by a person, such as a Clear of the task, lands this load again and pays
    for no other one.

    Raises:
        StorageRefused: The record cannot be written.
    """
    if request.slot is not None and request.slot.occasion is not None and not request.nothing_due:
        dataset.ledger.record_returned(request.load_id, request.slot.occasion)

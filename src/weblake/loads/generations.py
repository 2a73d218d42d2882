"""Choose the load of an orchestrator's task each time it runs: the load that it started before, or the next one.

A task may run many times in one run of its graph: the orchestrator retries it, or a person clears it. Each paid load
is a generation with its own load id. The newest generation in the ledger decides
(docs/decisions/008-generations-in-the-ledger.md):

    newest generation                same occasion                       another occasion
                                     (a retry, a second worker)          (a person cleared the task)
    not started, running, ended      newest; nothing is paid             newest; nothing is paid
    landed                           newest; returns its receipt         next; paid again
    failed or cancelled              next; paid again                    next; paid again
    gone from the service            newest; raises JobGone              next; paid again

A job that was cancelled because it passed a limit set by weblake is not paid again for the same occasion. A load whose
refused file is kept is published from that file if `allow_partial` is set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weblake.api.job_kinds import JOB_KINDS
from weblake.dataset import layout
from weblake.dataset.identity import load_id_of
from weblake.dataset.records import Intent, Job
from weblake.errors import AskPerson, JobGone
from weblake.jobs.polling import JobRef, get_status, over_budget
from weblake.loads import publishing, starts
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest, Slot, Terms
from weblake.loads.publishing import Dataset

#: Final statuses of a job that did not do its work.
_IN_VAIN = frozenset({"failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task of one run of an orchestrator's graph."""

    #: Names of the task that stay the same in all runs, outermost first: orchestrator, graph, task, map index.
    names: tuple[str | int, ...]
    #: Id of the run.
    run: str
    #: Why the orchestrator runs the task: a retry has the same occasion, a new request by a person has another one.
    occasion: str
    #: The partition of the graph that the task lands; None if the graph has no partitions.
    partition: str | None = None

    def load_id(self, generation: int) -> str:
        """Return the load id of one generation."""
        return load_id_of("task", *self._whole(), self.run, generation)

    def slot(self, generation: int, path_keys: Mapping[str, str] | None) -> Slot:
        """Return the slot of this task's loads: one for each partition of the graph, or else of the path."""
        values = None if path_keys is None or self.partition is not None else list(path_keys.items())
        name = load_id_of("slot", *self._whole(), values)
        whole = self.names if self.partition is None else (*self.names, self.partition)
        task = tuple(map(str, whole))  # a partition key may be of a subclass of str
        return Slot(name, self.partition is not None or bool(path_keys), generation, self.run, self.occasion, task)

    def _whole(self) -> tuple[str | int, ...]:
        return self.names if self.partition is None else (*self.names, "partition", self.partition)


def place(request: LoadRequest, task: Task, generation: int) -> LoadRequest:
    """Return the request with the load id and slot of one generation of the task."""
    return replace(request, load_id=task.load_id(generation), slot=task.slot(generation, request.partition))


def place_existing_job(request: LoadRequest, task: Task) -> LoadRequest:
    """Return the request for a job that was started elsewhere, with the task's slot; the load id does not change."""
    return replace(request, slot=task.slot(0, request.partition))


def known(dataset: Dataset, tasks: Sequence[Task]) -> Task | None:
    """Return the first task that has a load in the ledger, or None: a task may have had another name before."""
    return next((task for task in tasks if dataset.ledger.intent(task.load_id(0)) is not None), None)


def choose(client: FlowRunner, dataset: Dataset, task: Task, terms: Terms) -> int:
    """Return the number of the generation that the task has to land now; sends at most one request about a job.

    Raises:
        AskPerson: The job of the newest generation runs at a service other than the client's.
        WeblakeError: The ledger cannot be read, or the service did not respond.
    """
    newest: Intent | None = None
    generation = 0
    while (found := dataset.ledger.intent(task.load_id(generation))) is not None:
        newest, generation = found, generation + 1
    if newest is None:
        return 0
    again = newest.occasion != task.occasion
    return generation if _is_over(client, dataset, newest, terms, again=again) else generation - 1


def _is_over(client: FlowRunner, dataset: Dataset, newest: Intent, terms: Terms, *, again: bool) -> bool:
    """Return whether the newest generation is over, so that another one may be paid for."""
    load_id = newest.load_id
    job = dataset.ledger.job(load_id)
    if publishing.find(dataset, load_id) is not None:
        return again
    if job is not None and publishing.find_job(dataset, job.kind, job.job_id) is not None:
        return again
    if terms.allow_partial and dataset.storage.exists(layout.refused_path(publishing.DOCUMENTS, load_id)):
        return False
    if job is None:
        return False  # landing that generation finds out whether its job was started; a new one could be paid twice
    if newest.service not in (None, client.service):
        raise AskPerson(
            f"Job {job.job_id} of load {load_id} was started at {newest.service}, and this is {client.service}.",
            hint="Point the connection to the service that it was started at, or trigger a new run.",
        )
    try:
        return _in_vain(client, newest, job, terms, again=again)
    except JobGone:
        return again  # to a retry, landing that load raises JobGone


def _in_vain(client: FlowRunner, newest: Intent, job: Job, terms: Terms, *, again: bool) -> bool:
    if newest.kind not in JOB_KINDS:
        if again and newest.kind == "scrape":
            client.run(starts.read_scrape(job.job_id, client.retry))
        return False
    head = client.run(get_status(JobRef(newest.kind, job.job_id), client.retry))
    if str(head.get("status")).lower() not in _IN_VAIN:
        return False
    return again or not _stopped_by_us(head, newest, terms)


def _stopped_by_us(head: Mapping[str, object], newest: Intent, terms: Terms) -> bool:
    return over_budget(head, terms.max_credits) or (terms.ends_job and newest.age_s() >= terms.timeout_s)

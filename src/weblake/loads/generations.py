"""Which load a task of an orchestrator means when it runs: the one that it began before, or the next.

A task may run many times for one run of its graph: an orchestrator retries it, a person clears it. Each purchase is a
generation with a load id of its own, and the ledger tells the newest one:

    the newest generation            asked again by the same occasion    asked by another occasion
                                     (a retry, a second worker)          (a person cleared the task)
    not started, running, ended      that one: nothing is bought         that one: nothing is bought
    landed                           that one: its receipt               the next: buys again
    failed or cancelled              the next: buys again                the next: buys again
    gone from the service            that one, which says so             the next: buys again

A job that was cancelled because it passed a limit of ours is not bought again without being asked to, and one whose
refused file lies ready for `allow_partial` is taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weblake.api.job_kinds import JOB_KINDS
from weblake.dataset import layout
from weblake.dataset.identity import load_id_of
from weblake.dataset.ledger import Intent, Job
from weblake.errors import AskPerson, JobGone
from weblake.jobs.polling import JobRef, get_status, over_budget
from weblake.loads import publishing, starts
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import LoadRequest, Slot, Terms
from weblake.loads.publishing import Dataset

#: Words with which a job ends without having done what was asked.
_IN_VAIN = frozenset({"failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task of one run of an orchestrator's graph."""

    #: What the task is called across runs, outermost first: orchestrator, graph, task, map index.
    names: tuple[str | int, ...]
    #: The run's own id.
    run: str
    #: What made the orchestrator ask: a retry has the same, another request by a person has another.
    occasion: str
    #: The partition of the graph that it lands; None where the graph knows no partitions.
    partition: str | None = None

    def load_id(self, generation: int) -> str:
        """The load of one generation."""
        return load_id_of("task", *self._whole(), self.run, generation)

    def slot(self, generation: int, path_keys: Mapping[str, str] | None) -> Slot:
        """Where this task's loads replace each other: one for each partition of the graph, or else of the path."""
        values = None if path_keys is None or self.partition is not None else list(path_keys.items())
        name = load_id_of("slot", *self._whole(), values)
        whole = self.names if self.partition is None else (*self.names, self.partition)
        task = tuple(map(str, whole))  # also a partition's key of a type of its own
        return Slot(name, self.partition is not None or bool(path_keys), generation, self.run, self.occasion, task)

    def _whole(self) -> tuple[str | int, ...]:
        return self.names if self.partition is None else (*self.names, "partition", self.partition)


def place(request: LoadRequest, task: Task, generation: int) -> LoadRequest:
    """Return the request as the task's load of one generation."""
    return replace(request, load_id=task.load_id(generation), slot=task.slot(generation, request.partition))


def place_existing_job(request: LoadRequest, task: Task) -> LoadRequest:
    """Return the request for a job that was started elsewhere with the task's slot; its identity stays."""
    return replace(request, slot=task.slot(0, request.partition))


def known(dataset: Dataset, tasks: Sequence[Task]) -> Task | None:
    """Return the first of these tasks that has a load on record, or None: a task may have had another name before."""
    return next((task for task in tasks if dataset.ledger.intent(task.load_id(0)) is not None), None)


def choose(client: FlowRunner, dataset: Dataset, task: Task, terms: Terms) -> int:
    """Returns the generation that the task means now; asks the service about one job at most.

    Raises:
        AskPerson: The newest generation's job runs at another service than the one that the client talks to.
        WeblakeError: The ledger cannot be read, or the service did not answer.
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
    """Whether the newest generation is over and another one may be bought."""
    load_id = newest.load_id
    job = dataset.ledger.job(load_id)
    if publishing.find(dataset, load_id) is not None:
        return again
    if job is not None and publishing.find_job(dataset, job.kind, job.job_id) is not None:
        return again
    if terms.allow_partial and dataset.storage.exists(layout.refused_path(publishing.DOCUMENTS, load_id)):
        return False
    if job is None:
        return False  # what became of its start is found out there, and never by buying again
    if newest.service not in (None, client.service):
        raise AskPerson(
            f"Job {job.job_id} of load {load_id} was started at {newest.service}, and this is {client.service}.",
            hint="Point the connection to the service that it was started at, or trigger a new run.",
        )
    try:
        return _in_vain(client, newest, job, terms, again=again)
    except JobGone:
        return again  # to a retry the load itself says that its job has gone


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

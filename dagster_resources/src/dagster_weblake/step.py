"""One step of a run: its asset, its partitions, their load requests, and the results that it reports."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import shorten
from typing import TYPE_CHECKING, TypeVar

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.failures import as_failure, translate_errors
from dagster_weblake.identity import Lineage
from dagster_weblake.requests import BatchScrapeRequest
from dagster_weblake.stopping import InterruptHandler
from dagster_weblake.templates import Part
from dagster_weblake.url_inputs import urls_of_part
from weblake import events, orchestration
from weblake.errors import AuthenticationFailed, JobEnded, RetryLater, WeblakeError

if TYPE_CHECKING:
    from dagster_weblake.connection import ServiceResource
    from dagster_weblake.requests import LandingRequest
    from weblake import Receipt
    from weblake.orchestration import Dataset, Job, LandedLoad, LoadRequest

T = TypeVar("T")

#: The result has no value: the data are in the dataset.
Result = dg.MaterializeResult[None]
Metadata = Mapping[str, dg.MetadataValue]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results and errors of the partitions of a step."""

    found: dict[str | None, Metadata]
    failed: dict[str | None, WeblakeError]


@dataclass(frozen=True)
class Step:
    """One execution of a step: the asset, its partitions, and the dataset of its loads."""

    context: dg.AssetExecutionContext
    weblake: ServiceResource
    request: LandingRequest
    key: dg.AssetKey
    to: str | None
    #: Whether the step starts the job that it lands, so that a retry may start another one.
    owns_job: bool = True
    #: The placed requests that this step lands, by partition. Their returns are recorded.
    load_requests: dict[str | None, LoadRequest] = field(default_factory=dict)
    #: The partition of each load and of each job, by id.
    parts_of_loads: dict[str, Part] = field(default_factory=dict)

    @cached_property
    def dataset(self) -> Dataset:
        """Return the dataset that the step lands in."""
        return self.weblake.dataset_of_step(self.context, self.to)

    @cached_property
    def terms(self) -> orchestration.Terms:
        """Return the tolerances and limits."""
        return self.request.terms()

    @cached_property
    def lineage(self) -> Lineage:
        """Return the runs and backfills that this run continues."""
        return Lineage(self.context.instance, self.context.run)

    @cached_property
    def parts(self) -> list[Part]:
        """Return the partitions of this step; one without a key if the asset has none."""
        return parts_of(self.context, self.key)

    @contextmanager
    def stopping(self) -> Iterator[InterruptHandler]:
        """Return a context manager that logs the progress, and decides about the jobs when the step is stopped.

        The asset's page shows no progress: observations would hide the materializations there.
        """
        handler = InterruptHandler(self.context, self.weblake.get_client, self.dataset)
        logs: dict[str | None, orchestration.ProgressLog] = {}

        def observe(event: events.Event) -> None:
            if isinstance(event, events.StatusPolled):
                handler.check()
            ids = (str(event.load_id), str(getattr(event, "job_id", None)))
            part = next((self.parts_of_loads[each] for each in ids if each in self.parts_of_loads), Part())
            if isinstance(event, events.LoadMessage):
                self.context.log.warning(f"{part}{event.text}")
            if part.key not in logs:
                logs[part.key] = orchestration.ProgressLog(
                    lambda level, text: self.context.log.log(level, f"{part}{text}")
                )
            logs[part.key](event)

        with handler.watching(), orchestration.observing(self.weblake.client, observe):
            yield handler

    def waiting_job(self, part: Part, job: Job) -> orchestration.WaitingJob:
        """Return the job of a partition with the deadline that applies to it."""
        self.parts_of_loads[job.job_id] = part
        age_s = job.age_s() if self.terms.ends_job else 0.0
        until = time.monotonic() + self.terms.timeout_s - age_s
        return orchestration.WaitingJob(orchestration.JobRef(job.kind, job.job_id), until)

    def load_request(self, part: Part, key: dg.AssetKey | None = None) -> LoadRequest:
        """Return the load request for a partition of this asset, or of another one for which this one starts jobs."""
        task = self.lineage.task(self.dataset, key or self.key, part.key, self.key)
        task = replace(task, records_return=key is None)  # another asset lands what this one starts
        try:
            load_request = self._request_of(part).load_request(part)
        except WeblakeError as error:
            # Such as a list of URLs that is gone. The job that was started with it is paid for.
            found = orchestration.recorded_request(self.weblake.client, self.dataset, task, self.terms)
            if found is None:
                raise
            self.context.log.warning(f"{part}{error} The job of load {found.load_id} was started before, and lands.")
        else:
            found = orchestration.place(self.weblake.client, self.dataset, load_request, task, self.terms)
        self.parts_of_loads[found.load_id] = part
        return found

    def _request_of(self, part: Part) -> LandingRequest:
        """Return the request of a partition, with its own URLs if an input has those of several partitions."""
        if not isinstance(self.request, BatchScrapeRequest):
            return self.request
        given = self.request.urls
        return replace(self.request, urls=urls_of_part(self.context, self.key, part, given, self.request.column))

    def start_load(self, part: Part, load_request: LoadRequest) -> tuple[orchestration.StartedLoad, str]:
        """Start the job of a load, unless an earlier run did; log the address of its page, and return both."""
        started = orchestration.start_load(
            self.weblake.client,
            self.dataset,
            load_request,
            max_credits=self.terms.max_credits,
            ends_at=time.monotonic() + self.terms.timeout_s,
        )
        intent, job, _ = started
        url = self.weblake.job_url(job.kind, job.job_id, has_console=bool(intent.replay))
        self.context.log.info(f"{part}Job {job.job_id} of load {job.load_id}: {url}")
        return started, url

    def job_url(self, receipt: Receipt) -> str:
        """Return the address of a load's job; empty where it has none."""
        if not receipt.job_id:
            return ""
        has_console = False
        with suppress(WeblakeError):  # an unreadable record only costs the better address
            intent = orchestration.LoadState(self.dataset, receipt.load_id).intent
            # Only the embedded service says that it replays a start.
            has_console = intent is not None and bool(intent.replay)
        return self.weblake.job_url(receipt.kind, receipt.job_id, has_console=has_console)

    def record_landing(self, part: Part, landing: LandedLoad, load_id: str) -> Metadata:
        """Log a landed load and return its metadata; `load_id` is the one that was to be landed."""
        totals = self.weblake.totals_of(load_id)
        if landing.landed_at is not None:
            self.context.log.info(f"{part}Load {landing.receipt.load_id} had landed before, at {landing.landed_at}.")
        return metadata.load_metadata(
            self.dataset,
            landing,
            partitioned=part.key is not None,
            job_url=self.job_url(landing.receipt),
            totals=totals if landing.landed_at is None else None,
            changes=self._changes(part, landing.receipt.load_id) if self.request.report_changes else None,
        )

    def _changes(self, part: Part, load_id: str) -> Mapping[str, int]:
        """Return how many pages a landed load has changed, by kind."""
        try:
            return orchestration.counts_of_load(self.dataset, load_id)
        except WeblakeError as error:  # what was landed is safe
            self.context.log.warning(f"{part}No changes are reported: {error} `weblake changes` shows them later.")
            return {}

    def run_each(
        self,
        work: Callable[[Part], Metadata],
        failed_before: Mapping[str | None, WeblakeError] = {},
        waits: Mapping[str | None, orchestration.WaitingJob] = {},
    ) -> Outcome:
        """Call the work for each partition except those in `failed_before`; a failure does not stop the others.

        Partitions with a job in `waits` follow the others, in the order in which their jobs end. While the service
        refuses every call, the remaining partitions fail with that error, and it is not asked again.
        """
        found: dict[str | None, Metadata] = {}
        failed = dict(failed_before)
        refusal: WeblakeError | None = None
        until = 0.0
        left = sorted((part for part in self.parts if part.key not in failed), key=lambda part: part.key in waits)
        while left:
            if refusal is not None and time.monotonic() < until:
                failed |= {part.key: refusal for part in left}
                break
            try:
                left = self._wait_for_next(left, waits)
                part = left.pop(0)
                try:
                    found[part.key] = work(part)
                except WeblakeError as error:
                    failed[part.key] = refusal = error
                    until = time.monotonic() + _refused_for(error)
            except dg.DagsterExecutionInterruptedError:
                self.report(found)  # the interrupted step returns no result for them
                raise
        return Outcome(self._in_order(found), self._in_order(failed))

    def _wait_for_next(self, left: list[Part], waits: Mapping[str | None, orchestration.WaitingJob]) -> list[Part]:
        """Return the partitions, rotated so that the next one to land is the first; wait until there is one.

        Those without a job in `waits` come first.
        """
        if len(left) == 1 or left[0].key not in waits:
            return left
        jobs = [waits[part.key] for part in left]
        client, terms = self.weblake.client, self.terms
        index = client.run(
            orchestration.wait_for_any(jobs, client.retry, poll_s=terms.poll_s, max_credits=terms.max_credits)
        )
        return left[index:] + left[:index]

    def _in_order(self, values: Mapping[str | None, T]) -> dict[str | None, T]:
        return {part.key: values[part.key] for part in self.parts if part.key in values}

    def report(self, found: Mapping[str | None, Metadata]) -> None:
        """Report the succeeded partitions to Dagster, in a step that fails; one without metadata has only begun."""
        succeeded = {partition: values for partition, values in found.items() if values}
        for partition, values in succeeded.items():
            self.context.log_event(dg.AssetMaterialization(self.key, partition=partition, metadata=values))
        self._record_returned(succeeded)

    def _record_returned(self, found: Mapping[str | None, Metadata]) -> None:
        """Record that Dagster has the events of the loads: until then, no re-execution pays for them again."""
        with translate_errors(self.context):
            for partition in found:
                if load_request := self.load_requests.get(partition):
                    orchestration.record_returned(self.dataset, load_request)

    def results(self, outcome: Outcome) -> Iterator[Result]:
        """Yield the results of the partitions that succeeded; raise for those that failed."""
        if not outcome.failed:
            yield result_of(self.context, self.key, outcome.found)
            # Dagster has the event. A body that fails before it continues has not returned the loads.
            self._record_returned(outcome.found)
            return
        self.report(outcome.found)
        errors = sorted(outcome.failed.values(), key=_worth_a_retry, reverse=True)
        text = None
        if len(self.parts) > 1:
            reasons: dict[str, list[str]] = {}
            for partition, error in outcome.failed.items():
                reasons.setdefault(str(error), []).append(str(partition))
            messages = [f"{shorten(', '.join(names), 200)}: {reason}" for reason, names in reasons.items()]
            text = f"{len(outcome.failed)} of {len(self.parts)} partitions failed. " + " | ".join(messages)[:4000]
        receipt = errors[0].receipt
        url = "" if receipt is None else self.job_url(receipt)
        raise as_failure(self.context, errors[0], text, owns_job=self.owns_job, job_url=url) from errors[0]


def result_of(context: dg.AssetExecutionContext, key: dg.AssetKey, found: Mapping[str | None, Metadata]) -> Result:
    """Return one result for the step, with the metadata of each of its partitions."""
    version = None
    loads = [str(values["weblake/load_id"].value) for values in found.values() if "weblake/load_id" in values]
    if loads:
        # The same loads are the same data: assets downstream of a retry are not stale.
        version = dg.DataVersion(hashlib.blake2b("+".join(loads).encode(), digest_size=8).hexdigest())
    if len(found) == 1:
        return dg.MaterializeResult(key, metadata=next(iter(found.values())), data_version=version)
    for partition, values in found.items():
        context.add_asset_metadata(values, key, partition)
    return dg.MaterializeResult(key, data_version=version)


def parts_of(context: dg.AssetExecutionContext, key: dg.AssetKey) -> list[Part]:
    """Return the partitions of a step, in order; one without a key if its asset has none."""
    definition = context.assets_def.specs_by_key[key].partitions_def
    if definition is None:
        return [Part()]
    return [Part.of(definition, name) for name in context.partition_keys]


def _refused_for(error: WeblakeError) -> float:
    """Return the seconds for which the service refuses every call of the step: 0 if the error is of one partition."""
    if isinstance(error, AuthenticationFailed):
        return math.inf
    return (error.retry_after or 0.0) if isinstance(error, RetryLater) else 0.0


def _worth_a_retry(error: WeblakeError) -> tuple[bool, float]:
    """Return the sort key by which one error decides for a step with several: if one is worth a retry, the step is."""
    return isinstance(error, RetryLater | JobEnded), getattr(error, "retry_after", None) or 0.0

"""A state machine of a dataset, a service and several writers, whose steps hypothesis chooses.

Loads are requested; processes start them, perform some acts, die, restart and run concurrently; the service fails;
users clear tasks; usage is landed. The dataset is checked after each rule. At the end there are no more faults and
every requested load runs to its end: then nothing may be missing, and nothing may be paid for that did not land.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from dataset_assertions import DatasetAssertions, by_slot, name_of
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from requested_loads import ContentFactory, RequestedLoad, contents, urls_of
from simulated_service import FAULTS, Content, SimulatedService
from stepped_process import Process, SteppedClient, SteppedStorage

from weblake.dataset.root import Dataset, LandedLoad
from weblake.errors import JobEnded, LoadIncomplete, WeblakeError
from weblake.jobs import usage_reports
from weblake.loads import usage
from weblake.storage import Storage, open_storage

KINDS = ["batch", "batch", "crawl", "elsewhere", "detached", "task", "partition"]
VERBS = st.sampled_from(["land", "land", "land", "start", "look"])
#: A complete load takes about thirty acts.
ACTS = st.integers(0, 35)
TAPES = st.lists(st.none() | st.sampled_from(FAULTS), max_size=6)

Work = Callable[[SteppedClient, Dataset], object]
KindAndContent = tuple[str, ContentFactory]
LOADS = st.tuples(st.sampled_from(KINDS), contents())


class LandingStateMachine(RuleBasedStateMachine):
    """The rules of the state machine."""

    requested = Bundle("requested")
    processes = Bundle("processes")

    def __init__(self) -> None:
        super().__init__()
        self.world = SimulatedService(self.found)
        self.wanted: dict[str, RequestedLoad] = {}
        self.making: dict[str, ContentFactory] = {}
        self.running: list[Process] = []
        self.stack = ExitStack()
        self.stack.enter_context(self.world.clock.installed())

    @initialize(
        target=requested,
        local=st.booleans(),
        replay=st.booleans(),
        makings=st.tuples(contents(), contents(), contents()),
        more=st.lists(LOADS, max_size=2),
    )
    def create_root(
        self,
        local: bool,
        replay: bool,
        makings: tuple[ContentFactory, ContentFactory, ContentFactory],
        more: list[KindAndContent],
    ) -> MultipleResults[RequestedLoad]:
        directory = self.stack.enter_context(tempfile.TemporaryDirectory())
        root = str(Path(directory, "lake")) if local else f"memory://{uuid.uuid4().hex}/lake"
        self.storage: Storage = open_storage(root)
        self.world.replay = replay
        self.assertions = DatasetAssertions(self.world, self.storage, self.allowed)
        # Two runs that land one partition, and a task that may be cleared: their loads replace each other.
        competing = zip(("partition", "partition", "task"), makings, strict=True)
        return multiple(*[self.add_load(*wish) for wish in (*competing, *more)])

    def found(self, urls: Sequence[str]) -> Content:
        """Return what a job of these URLs delivers."""
        name = name_of(urls[0])
        wanted, before = self.wanted[name], self.started(name)
        assert list(urls) in (wanted.urls, wanted.urls[:1])
        return self.making[name](name, before)

    def started(self, name: str) -> int:
        return sum(name_of(job.target) == name for job in self.world.jobs.values())

    def allowed(self) -> Mapping[str, int]:
        """Return how often each load may be started: once, and once more for each clear and each failed job."""
        failed = [name_of(job.target) for job in self.world.jobs.values() if job.content.status == "failed"]
        return {
            name: 1 + (each.clears + failed.count(name) if each.kind in ("task", "partition") else 0)
            for name, each in self.wanted.items()
        }

    @rule(target=requested, wish=LOADS)
    def request_load(self, wish: KindAndContent) -> RequestedLoad:
        return self.add_load(*wish)

    def add_load(self, kind: str, making: ContentFactory) -> RequestedLoad:
        name = f"{kind}-{len(self.wanted)}"
        content = making(name, 0)
        urls = urls_of(name, len(content.documents) + len(content.failed) + content.lost)
        wanted = self.wanted[name] = RequestedLoad(name, kind, urls, content, run=name)
        self.making[name] = making
        if kind == "elsewhere":
            wanted.job_id = self.world.add("batch_scrape", urls[0], content).job_id
        return wanted

    @rule(target=processes, wanted=requested, verb=VERBS, tape=TAPES, acts=ACTS, dies=st.booleans())
    def run_process(self, wanted: RequestedLoad, verb: str, tape: list[str | None], acts: int, dies: bool) -> Process:
        self.world.tape += tape
        process = self.begin(wanted, self.verb(wanted, verb))
        self.move(process, acts, dies=dies)
        return process

    @rule(wanted=requested, verbs=st.tuples(VERBS, VERBS), turns=st.lists(ACTS, min_size=1, max_size=8), tape=TAPES)
    def two_writers(
        self, wanted: RequestedLoad, verbs: tuple[str, str], turns: list[int], tape: list[str | None]
    ) -> None:
        self.world.tape += tape
        writers = [self.begin(wanted, self.verb(wanted, verb)) for verb in verbs]
        for turn, acts in enumerate(turns):
            self.move(writers[turn % 2], acts)
        for writer in writers:
            writer.finish()

    @rule(target=processes, what=st.sampled_from(["activity", "credits"]), tape=TAPES)
    def land_usage(self, what: str, tape: list[str | None]) -> Process:
        self.world.tape += tape
        return self.begin(None, self.usage_of(what))

    @rule(process=consumes(processes), acts=ACTS, dies=st.booleans())
    def resume_process(self, process: Process, acts: int, dies: bool) -> None:
        self.move(process, acts, dies=dies)
        process.finish()

    @rule(wanted=requested, acts=ACTS, dies=st.booleans())
    def clear_task(self, wanted: RequestedLoad, acts: int, dies: bool) -> None:
        wanted.clears += 1
        process = self.begin(wanted, self.verb(wanted, "land"))
        self.move(process, acts, dies=dies)
        process.finish()

    @rule(seconds=st.sampled_from([1.0, 40.0, 900.0]))
    def advance_clock(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)

    @invariant()
    @precondition(lambda self: hasattr(self, "assertions"))
    def check_dataset(self) -> None:
        for process in self.running:
            if isinstance(process.error, AssertionError):
                raise process.error
        self.running = [process for process in self.running if not process.over]
        self.assertions.check()

    def verb(self, wanted: RequestedLoad, verb: str) -> Work:
        if wanted.kind == "elsewhere" and verb == "start":
            verb = "land"
        wanted.begun |= verb != "look"
        work: Work = getattr(wanted, verb)
        return work

    def move(self, process: Process, acts: int, *, dies: bool = False) -> None:
        """Perform some acts; a living process is not left between its last read of the clock and the start after it."""
        for _ in range(acts):
            process.step()
        if dies:
            process.kill()
        while process.starting and not process.over and not self.world.replay:
            process.step()

    def begin(self, wanted: RequestedLoad | None, work: Work) -> Process:
        def run(process: Process) -> object:
            dataset = Dataset.at(SteppedStorage(self.storage, process))
            result = work(SteppedClient(self.world, process), dataset)
            if isinstance(result, LandedLoad):
                assert wanted is not None
                self.assertions.check_receipt(result.receipt)
                self.assertions.reported.landed[result.receipt.load_id] = result.receipt
            return result

        if wanted is not None and wanted.kind in ("task", "partition"):
            slot = wanted.kind if wanted.kind == "partition" else wanted.run
            self.assertions.reported.slots |= {wanted.task.load_id(n): slot for n in range(20)}
        process = Process(run)
        self.running.append(process)
        return process

    def usage_of(self, what: str) -> Work:
        def work(client: SteppedClient, dataset: Dataset) -> None:
            known = set(self.world.jobs)
            if what == "activity":
                usage.land_activity(client.run(usage_reports.activity(client.retry)), dataset)
                self.assertions.reported.active |= known
            else:
                usage.land_report(client.run(usage_reports.report("credits", client.retry)), dataset)

        return work

    def finish_load(self, wanted: RequestedLoad) -> None:
        """Run a requested load to its end, without faults."""
        for _ in range(4):
            process = self.begin(wanted, wanted.land)
            process.finish()
            self.check_dataset()
            error = process.error
            if error is None:
                return
            assert isinstance(error, WeblakeError)
            receipt = error.receipt
            job = self.world.jobs.get(receipt.job_id) if receipt is not None else None
            refused = isinstance(error, LoadIncomplete) and job and (job.content.lost or not job.content.documents)
            failed = isinstance(error, JobEnded) and job and job.content.status == "failed"
            assert refused or failed, f"{wanted.name} cannot be landed: {type(error).__name__}: {error}"
            if wanted.kind not in ("task", "partition") or refused:
                return

    def teardown(self) -> None:
        with self.stack:
            if hasattr(self, "assertions"):
                self.world.tape.clear()
                for process in self.running:
                    process.finish()
                for wanted in self.wanted.values():
                    if wanted.begun:
                        self.finish_load(wanted)
                self.check_end()

    def check_end(self) -> None:
        """Check what must be true once every process has ended."""
        reported = self.assertions.reported
        visible = self.assertions.table("documents", once=True)
        for slot, load_ids in by_slot(reported).items():
            landed = [load_id for load_id in load_ids if load_id in reported.landed]
            assert len([each for each in landed if each in visible]) == bool(landed), f"{slot} has {landed}"
        for what in ("activity", "credits"):
            self.begin(None, self.usage_of(what)).finish()
        self.check_dataset()
        assert self.assertions.reported.active == set(self.world.jobs)
        kept = sum(len(rows) for rows in visible.values())
        jobs = {rows[0]["job_id"] for rows in visible.values()}
        assert kept == sum(len(job.content.documents) for job in self.world.jobs.values() if job.job_id in jobs)

"""A lake, a service and any number of writers, in any order that hypothesis thinks of.

Orders come in, processes begin on them, do a few acts, die, begin again, meet each other; the service is in trouble;
people clear tasks; usage is landed. After each rule the oracle looks at the lake. At the end the trouble is over and
every order is run to its end: then nothing may be missing, and nothing may have been paid that did not land.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from dataset_assertions import Oracle, by_slot, name_of
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
from requested_loads import Making, Wanted, contents, urls_of
from simulated_service import FAULTS, Content, World
from stepped_process import Process, SteppedDriver, SteppedStorage

from weblake.errors import JobEnded, LoadIncomplete, WeblakeError
from weblake.jobs import usage_reports
from weblake.loads import usage
from weblake.loads.publishing import Dataset, LandedLoad
from weblake.storage import Storage, open_storage

KINDS = ["batch", "batch", "crawl", "elsewhere", "detached", "task", "partition"]
VERBS = st.sampled_from(["land", "land", "land", "start", "look"])
#: A whole load is some thirty acts.
ACTS = st.integers(0, 35)
TAPES = st.lists(st.none() | st.sampled_from(FAULTS), max_size=6)

Work = Callable[[SteppedDriver, Dataset], object]
Wish = tuple[str, Making]
ORDERS = st.tuples(st.sampled_from(KINDS), contents())


class LakeMachine(RuleBasedStateMachine):
    """The rules."""

    wants = Bundle("wants")
    processes = Bundle("processes")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.found)
        self.wanted: dict[str, Wanted] = {}
        self.making: dict[str, Making] = {}
        self.running: list[Process] = []
        self.stack = ExitStack()
        self.stack.enter_context(self.world.clock.ruling())

    @initialize(
        target=wants,
        local=st.booleans(),
        replay=st.booleans(),
        makings=st.tuples(contents(), contents(), contents()),
        more=st.lists(ORDERS, max_size=2),
    )
    def a_root(
        self, local: bool, replay: bool, makings: tuple[Making, Making, Making], more: list[Wish]
    ) -> MultipleResults[Wanted]:
        directory = self.stack.enter_context(tempfile.TemporaryDirectory())
        root = str(Path(directory, "lake")) if local else f"memory://{uuid.uuid4().hex}/lake"
        self.storage: Storage = open_storage(root)
        self.world.replay = replay
        self.oracle = Oracle(self.world, self.storage, self.allowed)
        # Two runs that land one partition, and a task that may be cleared: there loads take each other's place.
        rivals = zip(("partition", "partition", "task"), makings, strict=True)
        return multiple(*[self.want(*wish) for wish in (*rivals, *more)])

    def found(self, urls: Sequence[str]) -> Content:
        """What a start of these URLs brings."""
        name = name_of(urls[0])
        wanted, before = self.wanted[name], self.started(name)
        assert list(urls) in (wanted.urls, wanted.urls[:1])
        return self.making[name](name, before)

    def started(self, name: str) -> int:
        return sum(name_of(job.target) == name for job in self.world.jobs.values())

    def allowed(self) -> Mapping[str, int]:
        """How often each order may have been paid: once, and again only where a person or a job's failure asks."""
        failed = [name_of(job.target) for job in self.world.jobs.values() if job.content.status == "failed"]
        return {
            name: 1 + (each.clears + failed.count(name) if each.kind in ("task", "partition") else 0)
            for name, each in self.wanted.items()
        }

    @rule(target=wants, wish=ORDERS)
    def an_order(self, wish: Wish) -> Wanted:
        return self.want(*wish)

    def want(self, kind: str, making: Making) -> Wanted:
        name = f"{kind}-{len(self.wanted)}"
        content = making(name, 0)
        urls = urls_of(name, len(content.documents) + len(content.failed) + content.lost)
        wanted = self.wanted[name] = Wanted(name, kind, urls, content, run=name)
        self.making[name] = making
        if kind == "elsewhere":
            wanted.job_id = self.world.add("batch_scrape", urls[0], content).job_id
        return wanted

    @rule(target=processes, wanted=wants, verb=VERBS, tape=TAPES, acts=ACTS, dies=st.booleans())
    def a_process(self, wanted: Wanted, verb: str, tape: list[str | None], acts: int, dies: bool) -> Process:
        self.world.tape += tape
        process = self.begin(wanted, self.verb(wanted, verb))
        self.move(process, acts, dies=dies)
        return process

    @rule(wanted=wants, verbs=st.tuples(VERBS, VERBS), turns=st.lists(ACTS, min_size=1, max_size=8), tape=TAPES)
    def two_writers(self, wanted: Wanted, verbs: tuple[str, str], turns: list[int], tape: list[str | None]) -> None:
        self.world.tape += tape
        writers = [self.begin(wanted, self.verb(wanted, verb)) for verb in verbs]
        for turn, acts in enumerate(turns):
            self.move(writers[turn % 2], acts)
        for writer in writers:
            writer.finish()

    @rule(target=processes, what=st.sampled_from(["activity", "credits"]), tape=TAPES)
    def usage_is_landed(self, what: str, tape: list[str | None]) -> Process:
        self.world.tape += tape
        return self.begin(None, self.usage_of(what))

    @rule(process=consumes(processes), acts=ACTS, dies=st.booleans())
    def it_goes_on(self, process: Process, acts: int, dies: bool) -> None:
        self.move(process, acts, dies=dies)
        process.finish()

    @rule(wanted=wants, acts=ACTS, dies=st.booleans())
    def a_person_clears_it(self, wanted: Wanted, acts: int, dies: bool) -> None:
        wanted.clears += 1
        process = self.begin(wanted, self.verb(wanted, "land"))
        self.move(process, acts, dies=dies)
        process.finish()

    @rule(seconds=st.sampled_from([1.0, 40.0, 900.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.sleep(seconds)

    @invariant()
    @precondition(lambda self: hasattr(self, "oracle"))
    def what_is_visible_is_what_was_served(self) -> None:
        for process in self.running:
            if isinstance(process.error, AssertionError):
                raise process.error
        self.running = [process for process in self.running if not process.over]
        self.oracle.check()

    def verb(self, wanted: Wanted, verb: str) -> Work:
        if wanted.kind == "elsewhere" and verb == "start":
            verb = "land"
        wanted.begun |= verb != "look"
        work: Work = getattr(wanted, verb)
        return work

    def move(self, process: Process, acts: int, *, dies: bool = False) -> None:
        """Some acts; one that lives is not left between its last look at the clock and the start that it then sends."""
        for _ in range(acts):
            process.step()
        if dies:
            process.kill()
        while process.starting and not process.over and not self.world.replay:
            process.step()

    def begin(self, wanted: Wanted | None, work: Work) -> Process:
        def run(process: Process) -> object:
            dataset = Dataset.at(SteppedStorage(self.storage, process))
            result = work(SteppedDriver(self.world, process), dataset)
            if isinstance(result, LandedLoad):
                assert wanted is not None
                self.oracle.balanced(result.receipt)
                self.oracle.told.landed[result.receipt.load_id] = result.receipt
            return result

        if wanted is not None and wanted.kind in ("task", "partition"):
            slot = wanted.kind if wanted.kind == "partition" else wanted.run
            self.oracle.told.slots |= {wanted.task.load_id(n): slot for n in range(20)}
        process = Process(run)
        self.running.append(process)
        return process

    def usage_of(self, what: str) -> Work:
        def work(client: SteppedDriver, dataset: Dataset) -> None:
            known = set(self.world.jobs)
            if what == "activity":
                usage.land_activity(client.run(usage_reports.activity(client.retry)), dataset.storage)
                self.oracle.told.active |= known
            else:
                usage.land_report(client.run(usage_reports.report("credits", client.retry)), dataset.storage)

        return work

    def settle(self, wanted: Wanted) -> None:
        """Runs an order to its end, with nothing in the way any more."""
        for _ in range(4):
            process = self.begin(wanted, wanted.land)
            process.finish()
            self.what_is_visible_is_what_was_served()
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
            if hasattr(self, "oracle"):
                self.world.tape.clear()
                for process in self.running:
                    process.finish()
                for wanted in self.wanted.values():
                    if wanted.begun:
                        self.settle(wanted)
                self.settled()

    def settled(self) -> None:
        """What must be true once everything has run to its end."""
        told = self.oracle.told
        visible = self.oracle.table("documents", once=True)
        for slot, load_ids in by_slot(told).items():
            landed = [load_id for load_id in load_ids if load_id in told.landed]
            assert len([each for each in landed if each in visible]) == bool(landed), f"{slot} has {landed}"
        for what in ("activity", "credits"):
            self.begin(None, self.usage_of(what)).finish()
        self.what_is_visible_is_what_was_served()
        assert self.oracle.told.active == set(self.world.jobs)
        kept = sum(len(rows) for rows in visible.values())
        jobs = {rows[0]["job_id"] for rows in visible.values()}
        assert kept == sum(len(job.content.documents) for job in self.world.jobs.values() if job.job_id in jobs)

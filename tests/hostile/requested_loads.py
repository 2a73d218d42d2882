"""Loads that users and orchestrators request, and what the service delivers for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from simulated_service import Content, Page, split_into_chunks
from stepped_process import SteppedClient

from weblake.dataset.root import Dataset, LandedLoad
from weblake.jobs.polling import JobRef, get_status
from weblake.loads import generations, load, load_request
from weblake.loads.load_request import LoadRequest, Naming, Task, Terms

TERMS = Terms(timeout_s=3600.0)
#: Returns what the job of a requested load delivers, from its name and the number of its earlier jobs.
ContentFactory = Callable[[str, int], Content]


@dataclass
class RequestedLoad:
    """One requested load."""

    name: str
    kind: str
    urls: list[str]
    content: Content
    job_id: str = ""
    run: str = ""
    clears: int = 0
    begun: bool = False

    @property
    def task(self) -> Task:
        partition = "2026-11-21" if self.kind == "partition" else None
        return Task(("lab", "graph", self.kind), self.run, f"asked {self.clears}", partition)

    def request(self) -> LoadRequest:
        if self.kind == "elsewhere":
            return load_request.existing_job("batch", self.job_id)
        if self.kind == "crawl":
            return load_request.crawl(self.urls[0], Naming())
        return load_request.batch(self.urls, Naming())

    def placed(self, client: SteppedClient, dataset: Dataset) -> LoadRequest:
        """Return the load request to land now; for a task, that of its current generation."""
        request = self.request()
        if self.kind not in ("task", "partition"):
            return request
        return generations.place_generation(request, self.task, generations.choose(client, dataset, self.task, TERMS))

    def land(self, client: SteppedClient, dataset: Dataset) -> LandedLoad:
        if self.kind == "detached":
            request = self.request()
            load.start_load(client, dataset, request)
            return load.collect(client, dataset, request.load_id, TERMS)
        return load.land(client, dataset, self.placed(client, dataset), TERMS)

    def start(self, client: SteppedClient, dataset: Dataset) -> None:
        if self.kind == "detached":
            load.start_load(client, dataset, self.request())
        else:
            load.start_load(client, dataset, self.placed(client, dataset))

    def look(self, client: SteppedClient, dataset: Dataset) -> None:
        job = dataset.ledger.job(self.request().load_id)
        if job is not None:
            client.run(get_status(JobRef(job.kind, job.job_id), client.retry))


@st.composite
def contents(draw: st.DrawFn) -> ContentFactory:
    """Draw what the job of a requested load delivers."""
    stored, failed = draw(st.sampled_from([3, 1, 2, 6, 0])), draw(st.integers(0, 2))
    lost = draw(st.sampled_from([0, 0, 0, 0, 1])) if stored + failed else 1
    status = draw(st.sampled_from(["completed"] * 5 + ["failed"]))
    polls, ids = draw(st.integers(0, 3)), draw(st.booleans())
    sizes = draw(st.lists(st.integers(0, 3), max_size=3))
    back = draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    texts = draw(st.lists(st.text(max_size=5), min_size=stored, max_size=stored))

    def made(name: str, before: int) -> Content:
        urls = urls_of(name, stored + failed + lost)
        pages: list[Page] = [
            {
                "markdown": f"{texts[n]} {before}",
                "metadata": {"sourceURL": urls[n]} | ({"scrapeId": f"{n}"} if ids else {}),
            }
            for n in range(stored)
        ]
        chunks = split_into_chunks(pages, sizes, back)
        if before:  # only the first job of a requested load fails or loses documents
            return Content(pages, urls[stored : stored + failed + lost], chunks=chunks, polls=polls)
        return Content(pages, urls[stored : stored + failed], lost, chunks, polls, status)

    return made


def urls_of(name: str, count: int) -> list[str]:
    return [f"https://site.test/{name}/{n}" for n in range(max(1, count))]

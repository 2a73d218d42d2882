"""One task of an orchestrator's run, executed repeatedly against the real service with a fake web."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_web

from weblake import Client, Terms, orchestration
from weblake.dataset import root
from weblake.dataset.root import Dataset, open_dataset
from weblake.jobs import cancelling
from weblake.jobs.polling import JobRef
from weblake.loads import generations, intents, load, load_request
from weblake.loads.load_request import LoadRequest, Naming, Task
from weblake_service.server import LocalService

URLS = [f"http://pages.test/{n}" for n in range(3)]
#: The requests of an orchestrator: for the first try and its retries, and after a user cleared the task.
RETRY, CLEAR = "max_tries=1", "max_tries=2"


@dataclass
class TaskLab:
    """One task of one run, which a test can execute repeatedly."""

    service: LocalService
    client: Client
    web: Any
    dataset: Dataset
    urls: list[str] = field(default_factory=lambda: list(URLS))

    #: The orchestrator's run and the path keys of the next load.
    run: str = "run-1"
    keys: Mapping[str, str] | None = None
    records_return: bool = False

    def request(self) -> LoadRequest:
        return load_request.batch(self.urls, Naming(partition=self.keys))

    def task(self, occasion: str) -> Task:
        return Task(("airflow", "dag", "task", -1), self.run, occasion, records_return=self.records_return)

    def returns(self, request: LoadRequest) -> None:
        orchestration.record_returned(self.dataset, request)

    def choose(self, occasion: str, terms: Terms | None = None) -> int:
        return generations.choose(self.client, self.dataset, self.task(occasion), terms or Terms())

    def placed(self, occasion: str, terms: Terms | None = None) -> LoadRequest:
        return generations.place_generation(self.request(), self.task(occasion), self.choose(occasion, terms))

    def land(self, occasion: str, terms: Terms | None = None) -> root.LandedLoad:
        terms = terms or Terms(poll_s=0.2)
        return load.land(self.client, self.dataset, self.placed(occasion, terms), terms)

    def start(self, occasion: str) -> JobRef:
        _, job, _ = intents.start_load(self.client, self.dataset, self.placed(occasion))
        return JobRef(job.kind, job.job_id)

    def cancel(self, job: JobRef) -> None:
        self.client.run(cancelling.cancel(job, self.client.retry))

    def hold(self) -> None:
        self.web.held.add("*")

    def release(self) -> None:
        self.web.held.clear()

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    @property
    def visible(self) -> list[str]:
        return sorted(path.name[:16] for path in self.root.glob("documents/**/*.parquet"))

    @property
    def root(self) -> Path:
        return Path(self.dataset.storage.url.removeprefix("file://"))


@contextmanager
def task_lab(folder: Path) -> Iterator[TaskLab]:
    """Yield a lab with a dataset in this folder."""
    web = fake_web.FakeWeb()
    with LocalService(web=lambda config: web) as service, Client(service.url, service.key) as client:
        yield TaskLab(service, client, web, open_dataset(folder / "lake"))

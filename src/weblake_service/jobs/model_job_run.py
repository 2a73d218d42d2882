"""Runs one job of a language model: its deadline, its result, its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from sqlite3 import Connection, Row

from weblake_service.config import ServiceConfig
from weblake_service.jobs import job_records, model_job_records
from weblake_service.jobs.agent import run_agent
from weblake_service.jobs.extract import extract_data
from weblake_service.jobs.job_run import JobServices
from weblake_service.jobs.web_tools import ModelJob, ModelJobResult, WebTools
from weblake_service.llm.language_model import LanguageModel
from weblake_service.page_failure import PageFailure
from weblake_service.web.http_web import HttpWeb

#: Default maximum run time of a job in seconds.
_TIMEOUT_S = 600.0
_RUN_BY_KIND = {"extract": extract_data, "agent": run_agent}


class ModelRun:
    """Runs one job to its end; cancelling its task stops it immediately, and a new run continues from there."""

    def __init__(
        self,
        tools: JobServices,
        web: HttpWeb,
        config: ServiceConfig,
        llm: LanguageModel,
        row: Row,
        announce: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._announce = announce
        self._row = row
        self._plan = job_records.decode_object(row["plan"])
        self._options = job_records.decode_object(row["options"])
        self._llm = llm
        self._gathering = WebTools(tools, web, config, row["id"], row["kind"], row["team"])

    def wake(self) -> None:
        """Do nothing: such a job cannot be appended to."""

    async def run(self) -> None:
        """Run until the job has ended; database errors are raised."""
        job_id: str = self._row["id"]
        timeout = self._plan.get("timeout")
        limit = timeout / 1000 if isinstance(timeout, int) else _TIMEOUT_S
        try:
            async with asyncio.timeout(limit):
                done = await self._work()
        except TimeoutError:
            await self._fail(f"The job was not done within {limit:g} s.")
        except PageFailure as failure:
            await self._fail(failure.message)
        else:
            now = self._tools.clock.now()
            await self._tools.store.write(
                partial(model_job_records.finish, job_id=job_id, result=done.shown, credits=done.credits, at=now)
            )

    async def _work(self) -> ModelJobResult:
        kind: str = self._row["kind"]
        job = ModelJob(
            self._row["id"],
            self._llm.require("Extract" if kind == "extract" else "The agent"),
            self._gathering,
            self._plan,
            self._options,
            await self._tools.store.read(partial(model_job_records.steps, job_id=self._row["id"])),
            self._record,
        )
        return await _RUN_BY_KIND[kind](job)

    async def _record(
        self,
        place: int,
        step: dict[str, object],
        credits: int,
        keep: Callable[[Connection, float], None] | None,
    ) -> None:
        now = self._tools.clock.now()

        def work(db: Connection) -> None:
            if model_job_records.add_step(db, self._row["id"], place, step, credits, now) and keep is not None:
                keep(db, now)

        await self._tools.store.write(work)
        self._announce()

    async def _fail(self, error: str) -> None:
        now = self._tools.clock.now()
        await self._tools.store.write(partial(model_job_records.fail, job_id=self._row["id"], error=error, at=now))

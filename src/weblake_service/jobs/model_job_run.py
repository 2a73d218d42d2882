"""Runs one job of a language model: its deadline, its result, its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from sqlite3 import Row

from weblake_service.fair_queue import TEAM
from weblake_service.jobs import job_records, model_job_records
from weblake_service.jobs.agent import run_agent
from weblake_service.jobs.extract import extract_data
from weblake_service.jobs.job_run import JobServices
from weblake_service.jobs.web_tools import ModelJob, ModelJobResult
from weblake_service.page_failure import PageFailure

#: Default maximum run time of a job in seconds.
_TIMEOUT_S = 600.0
_RUN_BY_KIND = {"extract": extract_data, "agent": run_agent}


class ModelRun:
    """Runs one job to its end; cancelling its task stops it immediately, and a new run continues from there."""

    def __init__(self, tools: JobServices, row: Row, announce: Callable[[], None]) -> None:
        self._tools = tools
        self._row = row
        self._announce = announce

    def wake(self) -> None:
        """Do nothing: such a job cannot be appended to."""

    async def run(self) -> None:
        """Run until the job has ended; database errors are raised."""
        TEAM.set(self._row["team"])
        job_id: str = self._row["id"]
        timeout = job_records.decode_object(self._row["plan"]).get("timeout")
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
        model = self._tools.llm.require("Extract" if kind == "extract" else "The agent")
        steps = await self._tools.store.read(partial(model_job_records.steps, job_id=self._row["id"]))
        job = ModelJob(self._tools, self._row, model, steps, self._announce)
        return await _RUN_BY_KIND[kind](job)

    async def _fail(self, error: str) -> None:
        now = self._tools.clock.now()
        await self._tools.store.write(partial(model_job_records.fail, job_id=self._row["id"], error=error, at=now))

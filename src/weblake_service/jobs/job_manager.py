"""Starts, resumes and cancels the running jobs of one service."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from functools import partial
from sqlite3 import Connection, Row

from weblake_service.fair_queue import largest_share
from weblake_service.jobs import job_records, model_job_records
from weblake_service.jobs.crawl import CrawlSource
from weblake_service.jobs.job_run import JobRun, JobServices, is_shutdown
from weblake_service.jobs.model_job_run import ModelRun
from weblake_service.jobs.page_sources import BatchSource, PageSource
from weblake_service.page_failure import own_limit

_LOG = logging.getLogger("weblake.service")
#: Seconds between attempts to record a job's failure, if that fails too (a full disk).
_RECORD_AGAIN_S = 5.0
#: Maximum number of pages of a job that are in the browser or wait for it, besides those that are fetched.
_MAX_IN_BROWSER = 40
#: Seconds until a job that found the service at a limit, such as a full disk, is tried again.
_LIMIT_AGAIN_S = 1.0


def _no_webhook() -> None:
    """Do nothing: used without webhooks."""


class JobManager:
    """The running jobs. `announce` is called after every change that has queued a webhook."""

    def __init__(self, tools: JobServices, announce: Callable[[], None]) -> None:
        self._tools = tools
        self._announce = announce
        self._runs: dict[str, JobRun | ModelRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def resume(self) -> None:
        """Resume every job that an earlier process left running."""
        for job_id in await self._tools.store.read(job_records.running):
            await self.launch(job_id)

    async def launch(self, job_id: str) -> None:
        """Start the run of a recorded job, or notify its run of appended pages."""
        row = await self._tools.store.read(partial(job_records.find_running, job_id=job_id))
        if row is None:
            return
        if (run := self._runs.get(job_id)) is not None:
            run.wake()
            return
        try:
            run = self._new_run(row)
        except Exception as error:  # noqa: BLE001 - the other jobs must still be resumed
            _LOG.exception("Job %s cannot be read.", job_id)
            await self._fail(job_id, f"The job's options can no longer be read: {error}. Start it again.")
            return
        self._runs[job_id] = run
        self._tasks[job_id] = asyncio.create_task(self._work(job_id, run), name=f"job {job_id}")

    async def cancel(self, job_id: str, change: Callable[[Connection], None]) -> None:
        """End a job through `change`, which records the end; pages in flight are dropped and not billed."""
        await self._tools.store.write(change)
        if (task := self._tasks.get(job_id)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Stop all runs immediately; `resume` continues them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _new_run(self, row: Row) -> JobRun | ModelRun:
        announce = self._announce if row["webhook"] is not None else _no_webhook
        if row["kind"] in model_job_records.KINDS:
            return ModelRun(self._tools, row, announce)
        at_once = largest_share(self._tools.config.plan(row["team"]).concurrency)
        in_order = self._tools.config.seed is not None
        return JobRun(self._tools, row, self._new_source(row), announce, at_once=at_once, in_order=in_order)

    def _new_source(self, row: Row) -> PageSource:
        plan = job_records.decode_object(row["plan"])
        requested = plan.get("max_concurrency")
        most = self._tools.config.plan(row["team"]).concurrency
        width = min(requested, most) if isinstance(requested, int) else most
        source: PageSource
        if row["kind"] == "crawl":
            source = CrawlSource(self._tools, row, plan, width)
        else:
            source = BatchSource(self._tools.store, row["id"], width)
        if not isinstance(requested, int):
            source.browser_width = _MAX_IN_BROWSER
        return source

    async def _work(self, job_id: str, run: JobRun | ModelRun) -> None:
        try:
            await self._persist(job_id, run)
        except Exception as error:  # noqa: BLE001 - the job must end after any error
            if is_shutdown(error):
                return
            # SQLite's disk errors need no traceback.
            _LOG.error("Job %s failed: %s", job_id, error, exc_info=not isinstance(error, sqlite3.Error))
            await self._fail(job_id, f"The job failed inside the service: {type(error).__name__}: {error}")
        finally:
            self._runs.pop(job_id, None)
            self._tasks.pop(job_id, None)
        self._announce()
        # Pages that were appended between the last read and this point would otherwise wait for a restart.
        await self.launch(job_id)

    async def _persist(self, job_id: str, run: JobRun | ModelRun) -> None:
        """Run a job to its end; while the service is at a limit (a full disk), wait and go on from the records."""
        limit = ""
        while True:
            try:
                if limit:
                    await asyncio.sleep(_LIMIT_AGAIN_S)
                    await self._tools.store.check()
                    row = await self._tools.store.read(partial(job_records.find_running, job_id=job_id))
                    if row is None:
                        return
                    run = self._runs[job_id] = self._new_run(row)
                await run.run()
            except Exception as error:
                limit = own_limit(error)
                if not limit:
                    raise
                _LOG.warning("Job %s waits: %s.", job_id, limit)
            else:
                return

    async def _fail(self, job_id: str, error: str) -> None:
        now = self._tools.clock.now()
        while True:
            try:
                await self._tools.store.write(
                    partial(job_records.end, job_id=job_id, status="failed", at=now, error=error, drained=False)
                )
            except Exception:  # noqa: BLE001 - a full disk may have space again
                _LOG.exception("The failure of job %s could not be noted.", job_id)
                await asyncio.sleep(_RECORD_AGAIN_S)
            else:
                return

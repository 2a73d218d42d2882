"""All running jobs of one service: launched, resumed after a restart, cancelled.

Imports: config, crawl, job_run, records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from sqlite3 import Connection, Row

from weblake.service.config import ServiceConfig
from weblake.service.jobs import records
from weblake.service.jobs.crawl import CrawlSource
from weblake.service.jobs.job_run import BatchSource, Run, Source, Tools, is_shutdown
from weblake.service.web.door import Web

_LOG = logging.getLogger("weblake.service")
#: Seconds between two tries to note a job's failure, where even that fails (a full disk).
_NOTE_AGAIN = 5.0


def _nothing() -> None:
    """Tells nobody: the job has no webhook."""


class Jobs:
    """The running jobs. `announce` is called after every change that has queued a webhook."""

    def __init__(self, tools: Tools, web: Web, config: ServiceConfig, announce: Callable[[], None]) -> None:
        self._tools = tools
        self._web = web
        self._config = config
        self._announce = announce
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def resume(self) -> None:
        """Goes on with every job that an earlier process left running."""
        for job_id in await self._tools.store.read(records.running):
            await self.launch(job_id)

    async def launch(self, job_id: str) -> None:
        """Starts to work on a recorded job, or tells its run that it has more to do."""
        row = await self._tools.store.read(partial(records.find_running, job_id=job_id))
        if row is None:
            return
        if (run := self._runs.get(job_id)) is not None:
            run.wake()
            return
        announce = self._announce if row["webhook"] is not None else _nothing
        run = Run(self._tools, row, self._source(row), announce)
        self._runs[job_id] = run
        self._tasks[job_id] = asyncio.create_task(self._work(job_id, run), name=f"job {job_id}")

    async def cancel(self, job_id: str, change: Callable[[Connection], None]) -> None:
        """Ends a job by `change`, which records it; what is in flight is dropped and not billed."""
        await self._tools.store.write(change)
        if (task := self._tasks.get(job_id)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Stops all work where it stands; `resume` goes on with it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _source(self, row: Row) -> Source:
        plan = records.decoded(row["plan"])
        asked = plan.get("max_concurrency")
        width = min(asked, self._config.concurrency) if isinstance(asked, int) else self._config.concurrency
        if row["kind"] == "crawl":
            return CrawlSource(self._tools, self._web, row["id"], row["url"], plan, width)
        return BatchSource(self._tools, row["id"], width)

    async def _work(self, job_id: str, run: Run) -> None:
        try:
            await run.run()
        except Exception as error:  # noqa: BLE001 - the job has to end, whatever it was
            if is_shutdown(error):
                return
            _LOG.exception("Job %s failed.", job_id)
            await self._fail(job_id, f"The job failed inside the service: {type(error).__name__}: {error}")
        finally:
            self._runs.pop(job_id, None)
            self._tasks.pop(job_id, None)
        self._announce()
        # Pages that were appended between the last look and this line would otherwise wait for a restart.
        await self.launch(job_id)

    async def _fail(self, job_id: str, error: str) -> None:
        now = self._tools.clock.now()
        while True:
            try:
                await self._tools.store.write(
                    partial(records.end, job_id=job_id, status="failed", at=now, error=error, drained=False)
                )
            except Exception:  # noqa: BLE001 - a full disk may have room again
                _LOG.exception("The failure of job %s could not be noted.", job_id)
                await asyncio.sleep(_NOTE_AGAIN)
            else:
                return

"""The SQLite database: one writer thread, a connection for each reader, and a lock on the file.

Every commit is flushed to the disk (`synchronous=FULL`): a client that has received a job id, or has read a page, can
rely on it after a power loss, while NORMAL would only guarantee that the file is readable. Committing all waiting
writes together spreads the cost.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

from weblake.errors import StorageRefused
from weblake_service.page_failure import own_limit
from weblake_service.store import schema

T = TypeVar("T")

#: An in-memory database that ends with its Store.
MEMORY = ":memory:"
_READERS = 4
#: What a check writes: more than a few free pages of the database hold.
_SPACE = bytes(1 << 20)
#: Maximum number of writes that are committed together.
_MAX_GROUP = 128


class DatabaseLocked(StorageRefused):
    """Another process serves this database."""


class _Write:
    """One function that waits for the writer thread."""

    def __init__(self, work: Callable[[sqlite3.Connection], object]) -> None:
        self.work = work
        self.future: Future[object] = Future()
        self.result: object = None
        self.error: BaseException | None = None


class Store:
    """An open database. `write` and `read` take a function of a connection and return what it returns.

    Args:
        path: The database file, created when missing, or `:memory:`.

    Raises:
        DatabaseLocked: Another process serves this file.
        StorageRefused: It is of another version, or it cannot be opened.
    """

    def __init__(self, path: str | Path = MEMORY) -> None:
        self.path = str(path)
        self._in_memory = self.path == MEMORY
        self._lock_file = None if self._in_memory else _lock(Path(self.path))
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._readers: list[sqlite3.Connection] = []
        self._local = threading.local()
        self._closed = False
        #: Whether a write has failed because of a limit of the machine, such as a full disk.
        self.full = False
        try:
            self._writer = self._open()
            self._prepare()
        except sqlite3.Error as error:
            self._release()
            raise StorageRefused(
                f"The service's database {self.path} cannot be opened: {error}.",
                hint="Name another directory, or move the file away.",
            ) from error
        except StorageRefused:
            self._release()
            raise
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="weblake-read")
        self._thread = threading.Thread(target=self._write_loop, name="weblake-write", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction and return after the commit; an exception in it rolls back its changes."""
        return await asyncio.wrap_future(self._submit(work))

    def write_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the same as `write` for callers without an event loop."""
        return self._submit(work).result()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on one snapshot of the database; it must not write."""
        if self._in_memory:
            return await self.write(work)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._snapshot, work)

    async def check(self) -> None:
        """Raise the error of the last write that found no space, unless there is space again."""
        if self.full:
            await self.write(lambda db: db.execute("INSERT OR REPLACE INTO meta VALUES ('space', ?)", (_SPACE,)))
            await self.write(lambda db: db.execute("DELETE FROM meta WHERE name = 'space'"))
            self.full = False

    def close(self) -> None:
        """Finish the waiting writes, close all connections and release the lock."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._pool.shutdown()
        for connection in [*self._readers, self._writer]:
            connection.close()
        self._release()

    def _submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        if self._closed:
            raise StorageRefused(f"The service on {self.path} has been stopped.")
        job = _Write(work)
        self._queue.put(job)
        return job.future  # type: ignore[return-value]

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.row_factory = sqlite3.Row
        return connection

    def _prepare(self) -> None:
        for pragma in ("page_size=16384", "journal_mode=WAL", "synchronous=FULL", "temp_store=MEMORY"):
            self._writer.execute(f"PRAGMA {pragma}")
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version == schema.VERSION:
            return
        (tables,) = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version or tables:
            raise StorageRefused(
                f"{self.path} was written by another version of weblake (schema {version}, not {schema.VERSION}).",
                hint="Give the service another directory; what it holds expires within a day anyway.",
            )
        self._writer.executescript(f"BEGIN; {schema.SCHEMA} PRAGMA user_version={schema.VERSION}; COMMIT;")

    def _snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._open()
            connection.execute("PRAGMA query_only=1")
            self._readers.append(connection)
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("ROLLBACK")

    def _write_loop(self) -> None:
        ending = False
        while not ending:
            group, ending = self._take_group()
            self._commit(group)

    def _take_group(self) -> tuple[list[_Write], bool]:
        """Return all waiting writes, at least one, and whether the store is closing."""
        group: list[_Write] = []
        job = self._queue.get()
        while job is not None:
            if job.future.set_running_or_notify_cancel():
                group.append(job)
            if len(group) == _MAX_GROUP or self._queue.empty():
                return group, False
            job = self._queue.get()
        return group, True

    def _commit(self, group: list[_Write]) -> None:
        if not group:
            return
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for job in group:
                self._run_one(job)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            for job in group:
                job.error = error
        for job in group:
            if job.error is not None:
                self.full = self.full or bool(own_limit(job.error))
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)

    def _run_one(self, job: _Write) -> None:
        self._writer.execute("SAVEPOINT one")
        try:
            job.result = job.work(self._writer)
        except Exception as error:
            job.error = error
            if not self._writer.in_transaction:
                # A full disk makes SQLite roll back the whole transaction: all writes of the group have failed.
                raise sqlite3.OperationalError(str(error)) from error
            self._writer.execute("ROLLBACK TO one")
        self._writer.execute("RELEASE one")

    def _release(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None


def _lock(path: Path) -> IO[str]:
    """Take the lock beside a database; the system releases it when the process ends for any reason."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Jobs contain their users' cookies, so other users of this machine get no access; -wal and -shm inherit the
        # mode.
        path.touch(mode=0o600)
        handle = path.with_name(path.name + ".lock").open("a+")
    except OSError as error:
        raise StorageRefused(
            f"The service cannot write {path}: {error.strerror}.", hint="Name a directory of your own."
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise DatabaseLocked(
            f"Another process already serves {path}.",
            hint="Use that service by its address, stop it, or give this one another directory.",
        ) from error
    _locked_stores.add(handle)
    return handle


#: The locks of this process. A forked child must close them, or they would outlive the process that uses the database.
_locked_stores: weakref.WeakSet[IO[str]] = weakref.WeakSet()


def _unlock() -> None:
    for handle in list(_locked_stores):
        handle.close()


os.register_at_fork(after_in_child=_unlock)

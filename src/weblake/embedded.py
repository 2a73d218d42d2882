"""The embedded service that a client uses when no base URL is set.

One process holds the database's lock, serves on a loopback port of its own and runs the jobs; other processes of the
same user find its address and key in a file that only they may read, and use it as long as it lives. When it ends, the
first of them that notices takes over: the jobs are in the database, so they go on there.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weblake.credentials import ApiKey, BaseUrl
from weblake.errors import FeatureMissing, StorageRefused, WeblakeError
from weblake.http.transport import AsyncHttpTransport, HttpTransport
from weblake.remedies import Remedy
from weblake.settings import Settings, state_dir
from weblake.steps import NoReply, Reply, Request

if TYPE_CHECKING:
    from weblake_service.server import LocalService

#: Seconds that the holder of the lock gets to say where it listens.
FOUND_WITHIN_S = 10.0

_lock = threading.Lock()
_own: tuple[int, LocalService] | None = None


def running() -> Settings:
    """The settings of the embedded service; starts it in this process if no process of this user runs it.

    Raises:
        FeatureMissing: The extra `weblake[local]` is not installed.
        StorageRefused: The state directory cannot be written, or the process that holds the lock does not answer.
    """
    directory = state_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _lock:
            return _start(directory) or _found(directory)
    except OSError as error:
        raise StorageRefused(
            f"The embedded service cannot keep its files in {directory}: {error.strerror or error}.",
            hint=Remedy("Set XDG_STATE_HOME to a directory that can be written, or {base_url} to a service."),
        ) from None


class EmbeddedTransport:
    """Carries requests to the embedded service, in whichever process it runs.

    A request without an answer is not sent again here: that is for retry.py to decide, and its next try goes to where
    the service is by then.
    """

    def __init__(self, make: Callable[..., HttpTransport] = HttpTransport) -> None:
        self._at = running()
        self._make = make
        self._carrier = make(self._at.base_url, self._at.api_key)
        self._following = threading.Lock()

    def send(self, request: Request) -> Reply | NoReply:
        """Sends one request; see steps.Request for its bounds."""
        carrier = self._carrier
        reply = carrier.send(request)
        if isinstance(reply, NoReply):
            with self._following:
                if carrier is self._carrier:  # no other thread was faster
                    self._follow()
        return reply

    def _follow(self) -> None:
        with suppress(StorageRefused):  # nobody serves just now: the next try looks again
            found = running()
            if found.base_url != self._at.base_url:
                self._carrier.close()
                self._at, self._carrier = found, self._make(found.base_url, found.api_key)

    def hide_key(self, error: WeblakeError) -> None:
        """Takes the key out of an error's texts."""
        self._carrier.hide_key(error)

    def close(self) -> None:
        """Closes the connections."""
        self._carrier.close()


class AsyncEmbeddedTransport:
    """The same for an event loop."""

    def __init__(self, make: Callable[..., AsyncHttpTransport] = AsyncHttpTransport) -> None:
        self._at = running()
        self._make = make
        self._carrier = make(self._at.base_url, self._at.api_key)

    async def send(self, request: Request) -> Reply | NoReply:
        """Sends one request; see steps.Request for its bounds."""
        carrier = self._carrier
        reply = await carrier.send(request)
        if isinstance(reply, NoReply):
            with suppress(StorageRefused):
                found = await asyncio.to_thread(running)
                if carrier is self._carrier and found.base_url != self._at.base_url:
                    self._at, self._carrier = found, self._make(found.base_url, found.api_key)
        return reply

    def hide_key(self, error: WeblakeError) -> None:
        """Takes the key out of an error's texts."""
        self._carrier.hide_key(error)

    async def aclose(self) -> None:
        """Closes the connections that were opened on the running loop."""
        await self._carrier.aclose()


@contextmanager
def needs_local() -> Iterator[None]:
    """Turns a missing package of the service into a message that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise FeatureMissing(
            f"The embedded local service needs a package that is not installed ({error.name}).",
            hint=Remedy("pip install 'weblake[local]', or set {base_url} and {api_key} to a service."),
        ) from None


def _start(directory: Path) -> Settings | None:
    """Starts the service here, unless another process holds the lock."""
    global _own
    if _own is not None and _own[0] == os.getpid():
        return _settings(_own[1].url, _own[1].key)
    with needs_local():
        from weblake_service.config import ServiceConfig
        from weblake_service.llm.settings import with_environment
        from weblake_service.server import LocalService
        from weblake_service.store.database import DatabaseLocked

        config = with_environment(ServiceConfig())
        service = LocalService(directory / "service.db", allow_private=True, config=config)
        try:
            service.start()
        except DatabaseLocked:
            return None
        try:
            _publish(directory, service)
        except BaseException:
            service.stop()  # nobody could find it, and it would hold the lock
            raise
    _own = (os.getpid(), service)
    atexit.register(_stop, os.getpid(), service, directory)
    return _settings(service.url, service.key)


def _stop(pid: int, service: LocalService, directory: Path) -> None:
    if pid == os.getpid():  # a forked child has no service to stop
        _address(directory).unlink(missing_ok=True)
        service.stop()


def _found(directory: Path) -> Settings:
    """The service of another process of this user."""
    until = time.monotonic() + FOUND_WITHIN_S
    while True:
        try:
            return _alive(_address(directory).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            if time.monotonic() > until:
                raise StorageRefused(
                    f"Another process holds {directory / 'service.db'} and does not say where it listens.",
                    hint=Remedy("End it, or run `weblake serve` and set {base_url} and {api_key}."),
                ) from None
            time.sleep(0.05)


def _alive(text: str) -> Settings:
    told = json.loads(text)
    os.kill(told["pid"], 0)
    return _settings(told["url"], told["key"])


def _publish(directory: Path, service: LocalService) -> None:
    handle, name = tempfile.mkstemp(dir=directory)  # made with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps({"url": service.url, "key": service.key, "pid": os.getpid()}))
    Path(name).replace(_address(directory))


def _address(directory: Path) -> Path:
    return directory / "service.json"


def _settings(url: str, key: str) -> Settings:
    return Settings(BaseUrl.parse(url), ApiKey(key))

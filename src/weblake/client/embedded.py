"""The embedded service that a client uses when no base URL is set.

One process holds the lock of the database, serves on its own loopback port and runs the jobs. Other processes of the
same user read its address and key from a file that only that user may read, and use it until it ends. The first of
them that then gets no response starts the service itself: the jobs are in the database, so they continue
(docs/decisions/005-embedded-address-file.md).
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
from typing import TYPE_CHECKING, Any

from weblake.api.steps import NoResponse, Request, Response
from weblake.credentials import ApiKey, BaseUrl, Settings, state_dir
from weblake.errors import FeatureMissing, Remedy, StorageRefused
from weblake.http.transport import AsyncHttpTransport, HttpTransport

if TYPE_CHECKING:
    from weblake_service.server import LocalService

#: Seconds within which the process that holds the lock has to publish its address.
FIND_TIMEOUT_S = 10.0

_lock = threading.Lock()
_own_service: tuple[int, LocalService] | None = None


def find_or_start() -> Settings:
    """Return the settings of the embedded service; start it in this process if no process of this user runs it.

    Raises:
        FeatureMissing: The extra `weblake[local]` is not installed.
        StorageRefused: The state directory cannot be written, or the process that holds the lock does not respond.
    """
    directory = state_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _lock:
            return _start_or_find(directory)
    except OSError as error:
        raise StorageRefused(
            f"The embedded service cannot keep its files in {directory}: {error.strerror or error}.",
            hint=Remedy("Set XDG_STATE_HOME to a directory that can be written, or {base_url} to a service."),
        ) from None


class _Embedded:
    """Base class of the transports to the embedded service, in this process or another one.

    A request without a response is not sent again here: jobs/retry.py decides that, and its next try goes to the
    service's address at that time.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._at = find_or_start()
        self._make = make
        self._transport = make(self._at.base_url, self._at.api_key)
        self._reconnecting = threading.Lock()

    def _reconnect(self, failed: object) -> None:
        """Replace a transport whose request got no response, if the service has another address now."""
        with self._reconnecting, suppress(StorageRefused):  # if no process serves now, the next try looks again
            if failed is self._transport:  # no other thread has replaced it
                found = find_or_start()
                if found.base_url != self._at.base_url:
                    self._at, self._transport = found, self._make(found.base_url, found.api_key)

    def redact(self, text: str) -> str:
        """Return a text of the service without its API key."""
        return self._at.api_key.redact(text)


class EmbeddedTransport(_Embedded):
    """A blocking transport to the embedded service."""

    def send(self, request: Request) -> Response | NoResponse:
        """Send one request within the limits that it sets, and return its response or a NoResponse."""
        transport: HttpTransport = self._transport
        response = transport.send(request)
        if isinstance(response, NoResponse):
            self._reconnect(transport)
        return response


class AsyncEmbeddedTransport(_Embedded):
    """A transport to the embedded service for an event loop."""

    async def send(self, request: Request) -> Response | NoResponse:
        """Send one request within the limits that it sets, and return its response or a NoResponse."""
        transport: AsyncHttpTransport = self._transport
        response = await transport.send(request)
        if isinstance(response, NoResponse):
            await asyncio.to_thread(self._reconnect, transport)
        return response


@contextmanager
def require_local_extra(*, or_another: bool = False) -> Iterator[None]:
    """Convert a ModuleNotFoundError of a service package to FeatureMissing, which names the extra to install.

    :param or_another: whether another service would do as well; the hint says how to name it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in ("fcntl", "resource"):  # POSIX has them
            raise FeatureMissing(
                "The embedded local service runs on Linux and macOS only.",
                hint=Remedy("On Windows run it in WSL, or set {base_url} and {api_key} to a service."),
            ) from None
        raise FeatureMissing(
            f"The embedded local service needs a package that is not installed ({error.name}).",
            hint=Remedy("pip install 'weblake[local]', or set {base_url} and {api_key} to a service.")
            if or_another
            else "pip install 'weblake[local]'",
        ) from None


def _start(directory: Path) -> Settings | None:
    """Start the service in this process and return its settings; None if another process holds the lock."""
    global _own_service
    if _own_service is not None and _own_service[0] == os.getpid():
        return _settings(_own_service[1].url, _own_service[1].key)
    with require_local_extra(or_another=True):
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
            _write_address(directory, service)
        except BaseException:
            service.stop()  # no other process could find it, and it would hold the lock
            raise
    _own_service = (os.getpid(), service)
    atexit.register(_stop, os.getpid(), service, directory)
    return _settings(service.url, service.key)


def _stop(pid: int, service: LocalService, directory: Path) -> None:
    if pid == os.getpid():  # a forked child has no service to stop
        _address_file(directory).unlink(missing_ok=True)
        service.stop()


def _start_or_find(directory: Path) -> Settings:
    """Start the service, or return the settings of the service in another process of this user."""
    until = time.monotonic() + FIND_TIMEOUT_S
    while True:
        # In each round, because a process that ends removes its address before it releases the lock.
        own = _start(directory)
        if own is not None:
            return own
        try:
            return _read_address(_address_file(directory).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            if time.monotonic() > until:
                raise StorageRefused(
                    f"Another process holds {directory / 'service.db'} and its address file cannot be read.",
                    hint=Remedy("End it, or run `weblake serve` and set {base_url} and {api_key}."),
                ) from None
            time.sleep(0.05)


def _read_address(text: str) -> Settings:
    """Return the settings in an address file; raise if its process has ended."""
    address = json.loads(text)
    os.kill(address["pid"], 0)
    return _settings(address["url"], address["key"])


def _write_address(directory: Path, service: LocalService) -> None:
    handle, name = tempfile.mkstemp(dir=directory)  # created with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps({"url": service.url, "key": service.key, "pid": os.getpid()}))
    Path(name).replace(_address_file(directory))


def _address_file(directory: Path) -> Path:
    return directory / "service.json"


def _settings(url: str, key: str) -> Settings:
    return Settings(BaseUrl.parse(url), ApiKey(key))

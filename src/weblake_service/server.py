"""The service in this process: started and stopped with `LocalService`.

    with LocalService() as service:
        client = weblake.Client(base_url=service.url, api_key=service.key)

serve.py implements `weblake serve`.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from weblake.errors import InvalidOption
from weblake_service.app import make_app
from weblake_service.components import ServiceComponents, open_store, remember_first_key
from weblake_service.config import ServiceConfig, ServiceKey, new_key, read_keys
from weblake_service.faults import Rule, read_rules
from weblake_service.store import accounts
from weblake_service.store.database import MEMORY, Store
from weblake_service.web.http_web import HttpWeb

T = TypeVar("T")

_LOG = logging.getLogger("weblake.service")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: Maximum seconds that requests in progress may take when the service stops.
_GRACE_S = 3
#: Seconds between two looks at requests in progress while the service stops.
_POLL_S = 0.01
#: Seconds between two updates of the date header of responses.
_DATE_EVERY_S = 1
#: Seconds that an idle connection is kept: longer than clients keep theirs, so that the client closes it.
_KEEP_ALIVE_S = 75
#: Seconds within which the head of a connection's first request must arrive.
_HEAD_TIMEOUT_S = 10
#: Maximum connections, if the limit of open files does not set a lower one.
_MAX_CONNECTIONS = 10_000
#: Maximum bytes of one websocket message.
_MAX_MESSAGE_BYTES = 64 << 20


class LocalService:
    """The service in a thread of this process, on a loopback port of its own.

    Args:
        db: The database file, or `:memory:`, which ends with the service.
        keys: One key, names with their keys, or `ServiceKey`s with teams; by default one is generated.
        host: The address to listen on; other addresses than loopback are reachable by others, who then need the key.
        port: The port; 0 selects a free one.
        allow_private: Whether private and loopback addresses may be scraped; allowed by default, because it serves only
            its own user.
        allow_code_execution: Whether code in a request may run here, as this user and without a sandbox; on loopback
            only.
        config: All other limits; `allow_private` and the allowed host names are set from the arguments above.
        rules: Fault rules that are active from the start.
        web: Creates the access to the web, on the service's event loop; tests substitute it.

    Raises:
        InvalidOption: Code execution is allowed, and `host` is not loopback.
        StorageRefused: From `start`, if another process serves this database or it cannot be written.
    """

    def __init__(
        self,
        db: str | Path = MEMORY,
        *,
        keys: str | Mapping[str, str] | Iterable[ServiceKey] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        allow_private: bool = True,
        allow_code_execution: bool = False,
        config: ServiceConfig | None = None,
        rules: Iterable[Rule] = (),
        web: Callable[[ServiceConfig], HttpWeb] | None = None,
    ) -> None:
        config = config or ServiceConfig()
        code_execution = allow_code_execution or config.code_execution
        if code_execution and host not in _LOOPBACK:
            raise InvalidOption(
                f"Code that comes with requests would run here for everybody who reaches {host}.",
                hint="Listen on 127.0.0.1, or leave out allow_code_execution (--allow-code-execution).",
            )
        hosts = _LOOPBACK | {host} if host in _LOOPBACK else None
        self._db = db
        self._keys = read_keys(keys) or [ServiceKey(new_key())]
        self._host = host
        self._port = port
        self._config = replace(config, allow_private=allow_private, code_execution=code_execution, hosts=hosts)
        self._rules = list(rules)
        self._make_web = web or HttpWeb
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None
        self._parts: ServiceComponents | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Return the base URL for clients."""
        return self._url

    @property
    def key(self) -> str:
        """Return the first of its API keys."""
        return self._keys[0].key

    def start(self) -> Self:
        """Start listening and return itself; do nothing if it is already running."""
        if self._thread is not None:
            return self
        store = open_store(self._db)
        try:
            listener = _bind(self._host, self._port)
        except BaseException:
            store.close()
            raise
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._url = f"http://{host}:{listener.getsockname()[1]}"
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(store, listener), name="weblake service", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self.stop()
            raise self._error
        return self

    def stop(self) -> None:
        """Finish requests in progress (3 seconds at most) and stop; running jobs continue with the next start."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and thread.is_alive():
            self._loop.call_soon_threadsafe(self._ask_to_stop)
        thread.join()

    def reset(self) -> None:
        """Delete all jobs, pages, usage, faults and logged requests, and reset the clock; the keys are kept."""
        self._call(lambda parts: parts.reset())

    def advance(self, seconds: float) -> None:
        """Move its clock forward: jobs expire, caches age, webhooks are retried."""
        self._call(lambda parts: parts.advance(seconds))

    def faults(self, *rules: Mapping[str, object]) -> None:
        """Replace the fault rules (docs/site/tasks/testing.md); without arguments, all faults are removed."""
        read: Sequence[Mapping[str, object]] = list(rules)

        async def replace(parts: ServiceComponents) -> None:
            parts.faults.replace(read_rules(read))

        self._call(replace)

    def requests(self) -> list[dict[str, object]]:
        """Return the requests to the API since the last reset.

        Each has method, path, status, at, milliseconds, idempotencyKey.
        """

        async def entries(parts: ServiceComponents) -> list[dict[str, object]]:
            return parts.log.entries()

        return self._call(entries)

    def counts(self) -> dict[str, int]:
        """Return the started jobs (`crawl_started`, `batch_scrape_started`, …) and `pages_billed` since a reset."""
        return self._call(lambda parts: parts.store.read(accounts.counts))

    def remember_key(self) -> bool:
        """Store its first key for later services of this database; return False if the database already has a key.

        Only the key's hash is stored.
        """
        key = self._keys[0]
        return self._call(lambda parts: parts.store.write(partial(remember_first_key, key=key)))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _call(self, work: Callable[[ServiceComponents], Coroutine[object, object, T]]) -> T:
        if self._thread is None or self._loop is None or self._parts is None:
            raise RuntimeError("The service is not running: call start() first.")
        return asyncio.run_coroutine_threadsafe(work(self._parts), self._loop).result()

    def _ask_to_stop(self) -> None:
        if self._parts is not None:
            self._parts.faults.stopped.set()
        if self._server is not None:
            self._server.ask_to_stop()

    def _run(self, store: Store, listener: socket.socket) -> None:
        try:
            asyncio.run(self._serve(store, listener))
        except BaseException as error:  # noqa: BLE001 - start() raises it in the caller's thread
            self._error = error
            _LOG.debug("The service ended with an error.", exc_info=True)
        finally:
            store.close()
            listener.close()
            self._loop = self._server = self._parts = None
            self._ready.set()

    async def _serve(self, store: Store, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        parts = self._parts = ServiceComponents(store, self._make_web(self._config), self._config, self._keys)
        parts.faults.replace(self._rules)
        parts.playwright.address = _own_address(self._url)
        try:
            await parts.open()
            self._server = _Server(make_app(parts), self._ready.set, parts.sessions.aclose)
            await self._server.serve(sockets=[listener])
        finally:
            await parts.close()


class _Server(uvicorn.Server):
    """uvicorn without logging, with an event for the moment when it listens."""

    def __init__(
        self, app: object, started: Callable[[], object], before: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                http=_Connection,
                ws=QuietSockets,
                ws_max_size=_MAX_MESSAGE_BYTES,
                ws_per_message_deflate=False,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                # asyncio accepts so many at once, before any of them can be closed.
                backlog=max(64, _max_connections() // 4),
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._tell = started
        self._before = before
        self._asked_to_stop = asyncio.Event()

    def ask_to_stop(self) -> None:
        """End `serve`; call it on the event loop."""
        self.should_exit = True
        self._asked_to_stop.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        self._tell()

    async def main_loop(self) -> None:
        """Renew the date header each second until the stop; uvicorn's own loop looks for a stop ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_EVERY_S):
                    await self._asked_to_stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and give requests in progress time to finish, which uvicorn does even if there are none.

        The browser sessions end first, while clients that save their profiles can still connect.
        """
        await self._before()
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event
                    await asyncio.sleep(_POLL_S)
        for task in self.server_state.tasks:
            task.cancel()


class _Connection(H11Protocol):
    """A connection that faults can close: its transport is in the state of every request. It logs nothing.

    Without a request in progress it is kept for a bounded time, and ends first when there are too many connections.
    """

    _idle: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # No logging, whatever the host program configures: some URLs are secrets.
        self.access_log = False
        self.app_state = {**self.app_state, "transport": transport}
        self._start_deadline(_HEAD_TIMEOUT_S)
        if len(self.connections) > _max_connections():
            idle = [one for one in self.connections if isinstance(one, _Connection) and one._idle is not None]
            oldest = min(idle, key=lambda one: one._since)
            oldest.transport.abort()
            oldest._stop_deadline()  # it stays among the connections for a moment, and is not selected again

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._follow_request()

    def handle_events(self) -> None:
        super().handle_events()
        self._follow_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow_request()

    def _follow_request(self) -> None:
        """Stop the deadline of the next request's head while a request is in progress, and start it afterwards."""
        # A connection that has become a websocket, or has ended, is no longer among the connections.
        idle = self in self.connections and (self.cycle is None or self.cycle.response_complete)
        if not idle:
            self._stop_deadline()
        elif self._idle is None:
            self._start_deadline(_KEEP_ALIVE_S + _HEAD_TIMEOUT_S)

    def _start_deadline(self, seconds: float) -> None:
        self._since = self.loop.time()
        self._idle = self.loop.call_later(seconds, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _max_connections() -> int:
    """Return the maximum number of connections: the jobs of the service need the other half of its files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(files // 2, _MAX_CONNECTIONS) if files > 0 else _MAX_CONNECTIONS


def _own_address(url: str) -> str:
    """Return the URL under which the service reaches itself, also if it listens on all addresses."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be TCP, or asyncio would not disable Nagle's algorithm: 40 ms for every small response.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InvalidOption(
            f"The service cannot listen on {host} port {port}: {error.strerror}.",
            hint="Name another port; 0 selects a free one.",
        ) from error
    return listener


#: Errors are logged; connections and their URLs are not.
_ERROR_LOG = logging.getLogger("weblake.service.sockets")
_ERROR_LOG.setLevel(logging.WARNING)


class QuietSockets(WebSocketsSansIOProtocol):
    """One connection."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.logger = self.conn.logger = _ERROR_LOG

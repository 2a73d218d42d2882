"""The clients of the service: `Client` blocks, `AsyncClient` is for asyncio.

Each operation of the contract is a function in api/operations.py and a method of both clients here. Its name is the
contract's operationId in snake_case; its options are documented at their definition. Retries follow jobs/retry.py. A
start whose response is lost raises OutcomeUnknown here; `weblake.land_batch` and `weblake.land_crawl` resolve it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from types import MethodType, TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from weblake import credentials
from weblake.api import operations
from weblake.api.docstrings import complete
from weblake.api.operation import Operation
from weblake.api.steps import AsyncTransport, Flow, Transport, arun, run
from weblake.credentials import ApiKey, redact_error
from weblake.errors import InvalidOption, WeblakeError
from weblake.events import Observer, combine, log_event
from weblake.http.options import HttpOptions
from weblake.http.transport import AsyncHttpTransport, HttpTransport
from weblake.jobs.retry import SINGLE, Retry, RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")
HttpClientT = TypeVar("HttpClientT")
TransportT = TypeVar("TransportT")


class _Method(Generic[P, T]):
    """An operation as a method: it returns the value with a `Client`, and an awaitable with an `AsyncClient`."""

    def __init__(self, build: Callable[P, Operation[T]]) -> None:
        self._build = build

    @functools.cached_property
    def _method(self) -> Callable[..., Any]:
        """The method; made when it is first asked for, with its completed docstring."""
        build = self._build

        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return self.call(build(*args, **kwargs))

        return functools.update_wrapper(method, complete(build))

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...

    def __get__(self, client: Any, owner: type) -> Callable[..., Any]:
        return self._method if client is None else MethodType(self._method, client)


class _Client(Generic[HttpClientT, TransportT]):
    """What `Client` and `AsyncClient` share: their arguments, and the transport that is created at the first use."""

    #: The class of `http_client`, the name of the transport to the embedded service, and that to another one.
    _http_client_class: ClassVar[type[httpx.Client | httpx.AsyncClient]]
    _embedded_transport: ClassVar[str]
    _http_transport: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        insecure: bool | None = None,
        retry_policy: RetryPolicy | None = None,
        http_client: HttpClientT | None = None,
        http_options: HttpOptions | None = None,
        transport: TransportT | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.retry = Retry(policy=retry_policy or SINGLE)
        self.retry.observe = log_event if observer is None else combine(log_event, observer)
        self._transport = transport
        self._opened: Any = None
        self._lock = threading.Lock()
        given = ApiKey(api_key) if api_key else None
        del api_key  # a later error may be shown with the locals of this frame
        _at_most_one(http_client=http_client, http_options=http_options, transport=transport)
        _check_client(http_client, self._http_client_class)
        if http_options is not None:
            http_options.check()
        self._make = partial(self._http_transport, http_client=http_client, options=http_options)
        self._settings = None if transport is not None else credentials.find(base_url, given, insecure=insecure)

    scrape = _Method(operations.scrape)
    get_scrape = _Method(operations.get_scrape)
    interact = _Method(operations.interact)
    stop_interact = _Method(operations.stop_interact)
    parse_file = _Method(operations.parse_file)
    create_browser = _Method(operations.create_browser)
    list_browsers = _Method(operations.list_browsers)
    execute_in_browser = _Method(operations.execute_in_browser)
    delete_browser = _Method(operations.delete_browser)
    start_batch_scrape = _Method(operations.start_batch_scrape)
    get_batch_scrape = _Method(operations.get_batch_scrape)
    cancel_batch_scrape = _Method(operations.cancel_batch_scrape)
    get_batch_scrape_errors = _Method(operations.get_batch_scrape_errors)
    start_crawl = _Method(operations.start_crawl)
    get_crawl = _Method(operations.get_crawl)
    cancel_crawl = _Method(operations.cancel_crawl)
    get_crawl_errors = _Method(operations.get_crawl_errors)
    list_active_crawls = _Method(operations.list_active_crawls)
    preview_crawl_params = _Method(operations.preview_crawl_params)
    map_site = _Method(operations.map_site)
    search = _Method(operations.search)
    start_extract = _Method(operations.start_extract)
    get_extract = _Method(operations.get_extract)
    start_agent = _Method(operations.start_agent)
    get_agent = _Method(operations.get_agent)
    cancel_agent = _Method(operations.cancel_agent)
    list_activity = _Method(operations.list_activity)
    historical_credit_usage = _Method(operations.historical_credit_usage)
    historical_token_usage = _Method(operations.historical_token_usage)
    credit_usage = _Method(operations.credit_usage)
    token_usage = _Method(operations.token_usage)
    queue_status = _Method(operations.queue_status)
    concurrency_check = _Method(operations.concurrency_check)

    @property
    def transport(self) -> TransportT:
        """The transport of the requests; created at the first use."""
        if self._transport is not None:
            return self._transport
        with self._lock:
            if self._opened is None and self._settings is not None:
                self._opened = self._make(self._settings.base_url, self._settings.api_key)
            elif self._opened is None:
                from weblake.client import embedded

                self._opened = getattr(embedded, self._embedded_transport)(self._make)
            opened: TransportT = self._opened
            return opened

    @property
    def is_embedded(self) -> bool:
        """True if this client uses the embedded service of this user."""
        return self._transport is None and self._settings is None

    @property
    def service(self) -> str:
        """Name of the service in the ledger, where it records at which service a load was started."""
        if self._transport is not None:
            return "given"
        return "embedded" if self._settings is None else self._settings.base_url.label

    def redact(self, text: str) -> str:
        """Return a text of the service without the API key, which a service may repeat in its messages."""
        return self._redact(text, self._opened)

    def _redact(self, text: str, transport: Any) -> str:
        if self._settings is not None:
            return self._settings.api_key.redact(text)
        # A transport that the caller gave has no key, and one to the embedded service has its own.
        return text if transport is None or self._transport is not None else str(transport.redact(text))


class Client(_Client[httpx.Client, Transport]):
    """A blocking, thread-safe client of the service.

    Args:
        base_url: Address of the service, such as `https://api.example.com`; default: WEBLAKE_BASE_URL. If neither is
            set, the client uses the embedded local service, which is started in this process if it is not running.
        api_key: API key of the service; default: WEBLAKE_API_KEY.
        insecure: Whether to allow plain http to hosts other than loopback; default: True if WEBLAKE_INSECURE=1.
        retry_policy: Retry policy of each call; by default its pauses take up to one minute in total. The reads of a
            job that is waited for have a policy of their own.
        http_client: An `httpx.Client` to send with, which the caller configures and closes. Its
            headers, event hooks, proxies and TLS settings apply; its cookies, authentication, base URL, timeouts and
            redirects do not. docs/site/tasks/network.md has examples, and lists what such a client lacks.
        http_options: Proxy and TLS settings, if `http_client` is not given.
        transport: Replaces the network in tests.
        observer: Called with each event of requests and loads (`weblake.events`), in the thread in which it
            happens; `weblake.otel.OpenTelemetry()` makes spans and metrics of them.

    Raises:
        InvalidOption: The base URL, the key, `http_options` or the client cannot be used, or more than one of
            `http_client`, `http_options` and `transport` is given.
        AskPerson: There is a base URL and no key.
        FeatureMissing: The embedded service is needed, and `weblake[local]` is not installed.
    """

    _http_client_class = httpx.Client
    _embedded_transport = "EmbeddedTransport"
    _http_transport = HttpTransport

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end and return its result."""
        transport = self.transport  # the client may be closed before the flow ends
        try:
            return run(flow, transport, observe=self.retry.observe)
        except WeblakeError as error:
            redact_error(error, partial(self._redact, transport=transport))
            raise

    def call(self, operation: Operation[T]) -> T:
        """Send one operation, with retries, and return its decoded value."""
        return self.run(self.retry.call(operation))

    def close(self) -> None:
        """Release the transport; the client makes a new one if it is used again."""
        self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Client[httpx.AsyncClient, AsyncTransport]):
    """A client for an event loop: each operation returns an awaitable. Arguments and errors are those of `Client`."""

    _http_client_class = httpx.AsyncClient
    _embedded_transport = "AsyncEmbeddedTransport"
    _http_transport = AsyncHttpTransport

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end and return its result."""
        transport = self.transport  # the client may be closed before the flow ends
        try:
            return await arun(flow, transport, observe=self.retry.observe)
        except WeblakeError as error:
            redact_error(error, partial(self._redact, transport=transport))
            raise

    async def call(self, operation: Operation[T]) -> T:
        """Send one operation, with retries, and return its decoded value."""
        return await self.run(self.retry.call(operation))

    async def aclose(self) -> None:
        """Release the transport; the client makes a new one if it is used again."""
        self._opened = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _check_client(http_client: object, expected: type) -> None:
    if http_client is not None and not isinstance(http_client, expected):
        kind = f"{type(http_client).__module__.partition('.')[0]}.{type(http_client).__name__}"
        raise InvalidOption(
            f"`http_client` is a {kind}, not an httpx.{expected.__name__}.",
            hint=f"weblake.{expected.__name__} takes an httpx.{expected.__name__}.",
        )


def _at_most_one(**ways: object) -> None:
    given = [f"`{name}`" for name, way in ways.items() if way is not None]
    if len(given) > 1:
        raise InvalidOption(f"{' and '.join(given)} exclude each other.", hint="Give one of them.")

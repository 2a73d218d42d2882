"""The connection of a resource: service, API key and dataset root, with one pooled client for each step.

Dagster writes the configuration of a resource into the snapshots that it stores and shows, unless it is an EnvVar. So a
key that is given as text (in Python, or by a template in YAML) is replaced by a placeholder when the resource is made,
and kept in this process only: see `secret_config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import dagster as dg
from pydantic import Field, PrivateAttr

import weblake
from dagster_weblake import secret_config
from dagster_weblake.failures import in_dagster_terms
from weblake import orchestration
from weblake.errors import AskPerson, InvalidOption

if TYPE_CHECKING:
    from weblake.events import Observer
    from weblake.orchestration import Dataset

ClientT = TypeVar("ClientT", "weblake.Client", "weblake.AsyncClient")
#: The executor that Dagster uses in a job of `dg.materialize` and `execute_in_process`.
_IN_ONE_PROCESS = "execute_in_process_executor"


class ServiceResource(secret_config.SecretConfig, dg.ConfigurableResource):  # type: ignore[type-arg]  # its own value
    """The service and the dataset of a resource, without the execution of requests."""

    base_url: str = Field(
        default=dg.EnvVar("WEBLAKE_BASE_URL"),
        description="The service's address. Default: the environment variable WEBLAKE_BASE_URL.",
    )
    api_key: str = Field(
        default=dg.EnvVar("WEBLAKE_API_KEY"),
        repr=False,
        description="The API key, preferably an EnvVar. Default: the environment variable WEBLAKE_API_KEY.",
    )
    root: str | None = Field(
        default=None,
        description="The dataset's root for assets without `to`: a local path, s3://, gs:// or abfs://.",
    )
    insecure: bool = Field(default=False, description="Allows plain http beyond loopback.")
    job_page: str | None = Field(
        default=None,
        description="The page of a job, such as https://app.example.com/jobs/{kind}/{job_id}, for the link in the "
        "metadata. Default: the console of the embedded service, or the job's status URL.",
    )
    call_timeout_s: float | None = Field(
        default=None, description="Seconds for which one call is retried. Default: 60."
    )
    proxy: str | None = Field(
        default=None,
        repr=False,
        description="URL of a proxy, such as http://user:password@proxy.example.com:3128, preferably an EnvVar. "
        "Default: HTTPS_PROXY and NO_PROXY of the environment.",
    )
    ca_bundle: str | None = Field(
        default=None,
        description="PEM file of the certificate authorities to trust. Default: SSL_CERT_FILE, or the default "
        "authorities.",
    )
    client_certificate: str | None = Field(default=None, description="PEM file for mutual TLS.")
    client_key: str | None = Field(
        default=None,
        description="PEM file with the key of the client certificate. Default: it is in the certificate's file.",
    )

    opentelemetry: bool = Field(
        default=False,
        description="Makes spans and metrics of OpenTelemetry; needs weblake[otel]. The SDK is set up by the program.",
    )

    #: Pydantic would evaluate the type of a client, and so load httpx, with every code location.
    _client: Any = PrivateAttr(default=None)
    _totals: orchestration.LoadTotals = PrivateAttr(default_factory=orchestration.LoadTotals)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Self]:
        """Yield the resource with one client for the step, closed at its end; it connects when it is first used."""
        self._client = self.get_client()
        try:
            yield self
        finally:
            client, self._client = self._client, None
            client.close()

    @property
    def client(self) -> weblake.Client:
        """Return the client of this step, with every operation of the service as a method.

        Raises:
            RuntimeError: Outside a step or a sensor; use `get_client` there.
        """
        client: weblake.Client | None = self._client
        if client is None:
            raise RuntimeError("WeblakeResource.client is there while a step runs; use get_client() elsewhere.")
        return client

    def totals_of(self, load_id: str) -> orchestration.Totals:
        """Return what this step has waited, retried and downloaded for a load, and forget it."""
        return self._totals.pop(load_id)

    def get_client(self) -> weblake.Client:
        """Return a new blocking client, which the caller closes: it is a context manager.

        Raises:
            AskPerson: The base URL or the key is not set.
            FeatureMissing: `opentelemetry` is true, and `weblake[otel]` is not installed.
            InvalidOption: One of them, or a proxy or TLS setting, cannot be used.
        """
        if self.job_page:
            orchestration.check_job_page(str(secret_config.resolve(self.job_page)))
        return self._made(weblake.Client)

    def get_async_client(self) -> weblake.AsyncClient:
        """Return a new client for an event loop, which the caller closes; raise as `get_client` does."""
        return self._made(weblake.AsyncClient)

    def _made(self, kind: type[ClientT]) -> ClientT:
        policy, options, observer = self._policy(), self._http_options(), self._observer()
        with in_dagster_terms():  # the key stays out of the locals, which some tracebacks show
            return kind(
                *self._endpoint(),
                insecure=self.insecure,
                retry_policy=policy,
                http_options=options,
                observer=observer,
            )

    def dataset(self, to: str | None = None) -> Dataset:
        """Return the dataset at `to`, or at the resource's root. Nothing is created or contacted yet.

        Raises:
            AskPerson: There is neither.
            StorageRefused: Loads cannot land in this storage.
        """
        where = to or secret_config.reveal(self.root)
        if not where:
            raise AskPerson(
                "It is not known where to land: neither the asset nor the resource names a root.",
                hint="Give WeblakeResource(root=...), or `to` to the asset.",
            )
        with in_dagster_terms():
            return orchestration.open_dataset(str(where), storage_options=self.options_of_storage())

    def dataset_of_step(self, context: dg.AssetExecutionContext, to: str | None = None) -> Dataset:
        """Return the dataset for a step that lands in it.

        A root in memory is refused unless the run is of `dg.materialize` or `execute_in_process`: any other run ends
        with its process, and its steps may have processes of their own.

        Raises:
            AskPerson: As `dataset`.
            StorageRefused: As `dataset`, or the data would be lost.
        """
        dataset = self.dataset(to)
        if context.job_def.executor_def.name != _IN_ONE_PROCESS:
            orchestration.refuse_memory(
                dataset,
                "the process of this step",
                hint="memory:// is for tests with dg.materialize() and execute_in_process().",
            )
        return dataset

    def job_url(self, kind: str, job_id: str, *, has_console: bool = False) -> str:
        """Return the address at which the state of a job is shown; empty for a kind without such an address.

        Args:
            kind: `batch_scrape`, `crawl`, `scrape` or `parse`.
            job_id: The job's id.
            has_console: Whether the service is the embedded one.
        """
        template = "" if not self.job_page else str(secret_config.resolve(self.job_page))
        base_url = str(secret_config.resolve(self.base_url))
        return orchestration.job_page(base_url, kind, job_id, template=template, has_console=has_console)

    def _endpoint(self) -> tuple[str, str]:
        values = []
        for name, variable in (("base_url", "WEBLAKE_BASE_URL"), ("api_key", "WEBLAKE_API_KEY")):
            value = secret_config.resolve(getattr(self, name))  # outside a run Dagster has not resolved it yet
            if not isinstance(value, str) or not value.strip():
                # Without a base URL the core would use its embedded service, which is not intended here.
                raise AskPerson(
                    f"WeblakeResource has no {name}.",
                    hint=f"Set {variable} in the environment of Dagster's processes.",
                )
            values.append(value.strip())
        return values[0], values[1]

    def _observer(self) -> Observer:
        if not self.opentelemetry:
            return self._totals
        from weblake.otel import OpenTelemetry

        return orchestration.combine(self._totals, OpenTelemetry())

    def _http_options(self) -> weblake.HttpOptions | None:
        names = ("proxy", "ca_bundle", "client_certificate", "client_key")
        found = {name: str(secret_config.resolve(getattr(self, name)) or "").strip() for name in names}
        if not any(found.values()):
            return None
        options = weblake.HttpOptions(**{name: value for name, value in found.items() if value})
        del found  # some tracebacks show locals, and the proxy's URL may hold a password
        try:
            options.check()
        except InvalidOption as error:  # its message begins with the name of the option
            raise InvalidOption(f"WeblakeResource: {error.message}", hint=error.hint) from None
        return options

    def _policy(self) -> orchestration.RetryPolicy | None:
        if self.call_timeout_s is None:
            return None
        if not 0 < self.call_timeout_s <= 86_400:
            raise InvalidOption(
                f"call_timeout_s is {self.call_timeout_s}.", hint="Give a number of seconds between 0 and 86400."
            )
        return orchestration.RetryPolicy.lasting(self.call_timeout_s)

"""The hook, which makes clients of the service from an Airflow connection.

A connection without a host is refused: the core would use its embedded service instead, and a scheduled load would land
pages from an unintended service.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk.log import mask_secret

from airflow_provider_weblake.features import BaseHook, aextra_dejson, aget_connection, amask_secret
from airflow_provider_weblake.hooks.endpoint import Endpoint
from airflow_provider_weblake.remedies import in_airflow_terms
from weblake import orchestration
from weblake.errors import WeblakeError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    import weblake

#: Seconds after which a connection test fails: a user waits for the result in the form.
TEST_S = 20.0


class WeblakeHook(BaseHook):
    """Makes clients of the web data extraction service from an Airflow connection of type `weblake`.

    The connection's host is the base URL (`https://api.example.com`, also with a path; a URI connection gives host,
    port and schema), its password is the API key. Its extra may hold `insecure` (plain http beyond loopback),
    `call_timeout_s` (seconds for which one call is tried, 60 by default), `job_url` (the address of a job's page, with
    `{kind}` and `{job_id}` in it), `proxy` (a URL, with its user name and password) and paths of PEM files for TLS:
    `ca_bundle`, `client_certificate`, `client_key`. The WEBLAKE_ settings of the environment are not used.

    :param weblake_conn_id: the connection's id; `weblake_default` by default.
    """

    conn_name_attr: ClassVar[str] = "weblake_conn_id"
    default_conn_name: ClassVar[str] = "weblake_default"
    conn_type: ClassVar[str] = "weblake"
    hook_name: ClassVar[str] = "weblake"

    def __init__(self, weblake_conn_id: str = default_conn_name, *, logger_name: str | None = None) -> None:
        super().__init__(logger_name=logger_name)
        self.weblake_conn_id = weblake_conn_id

    def get_conn(self) -> weblake.Client:
        """Return a new blocking client, which the caller closes: it is a context manager.

        Raises:
            AskPerson: The connection has no host or no password.
            InvalidOption: A field of it cannot be used.
            AirflowNotFoundException: There is no such connection.
        """
        return self.endpoint().client(self.weblake_conn_id)

    async def aget_client(self) -> weblake.AsyncClient:
        """Return a new client for the running event loop, which the caller closes; raise as `get_conn` does.

        In a trigger prefer `hooks.shared.shared_client`, with which ten thousand jobs share one.
        """
        return (await self.aendpoint()).aclient(self.weblake_conn_id)

    def endpoint(self) -> Endpoint:
        """Return the endpoint that the connection describes; raise as `get_conn` does."""
        try:
            found = _read(self.get_connection(self.weblake_conn_id))
        except WeblakeError as error:
            raise error.with_traceback(None) from None  # below, locals hold a Connection: its repr shows the password
        for secret in found.secrets():
            mask_secret(secret)
        return found

    async def aendpoint(self) -> Endpoint:
        """Return the endpoint without blocking the event loop: a synchronous read would stall every trigger."""
        try:
            found = await _aread(await aget_connection(self, self.weblake_conn_id))
        except WeblakeError as error:
            raise error.with_traceback(None) from None
        for secret in found.secrets():
            await amask_secret(secret)
        return found

    @in_airflow_terms()
    def test_connection(self) -> tuple[bool, str]:
        """Test the connection by a request for the credit balance, which costs nothing.

        Returns whether it worked, and a message for the form: the credits left, or the error and what to do. The test
        fails after 20 seconds. The message never holds the key or a whole response.
        """
        try:
            found = self.endpoint()
            with found.client(
                self.weblake_conn_id, orchestration.RetryPolicy(tries=2, until=time.monotonic() + TEST_S)
            ) as client:
                left = client.credit_usage().data.remaining_credits
        except WeblakeError as error:
            return False, str(error)
        credits_left = (
            "the service does not say how many credits are left" if left is None else f"{left:,} credits left"
        )
        return True, f"Connected to {found.base_url}: {credits_left}."

    def job_url(self, kind: str, job_id: str, *, has_console: bool = False) -> str:
        """Return the address at which a person or a program sees the state of a job.

        That is the connection's `job_url` with kind and id filled in; or the job's page in the console of the embedded
        service; or the job's status address at the service, which needs the key. Empty for a kind that has none of
        them, such as `parse`.

        :param kind: `batch_scrape`, `crawl`, `scrape` or `parse`.
        :param job_id: the job's id.
        :param has_console: whether the service is the embedded one.
        """
        found = self.endpoint()
        return orchestration.job_page(found.base_url, kind, job_id, template=found.job_url, has_console=has_console)


def _read(connection: Connection) -> Endpoint:
    return Endpoint.of(connection, connection.extra_dejson)


async def _aread(connection: Connection) -> Endpoint:
    return Endpoint.of(connection, await aextra_dejson(connection))

"""The last step of every request that starts a job."""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection

from starlette.responses import Response

from weblake_service.components import ServiceComponents
from weblake_service.responses import encoded_json_response


async def record_and_launch(parts: ServiceComponents, record: Callable[[Connection], tuple[str, bytes]]) -> Response:
    """Record a job in one transaction, start it, and return the response.

    Args:
        parts: The service.
        record: Writes the job and its idempotency record; returns the job's id and the encoded response.
    """
    job_id, encoded = await parts.store.write(record)
    parts.delivery.wake()
    await parts.jobs.launch(job_id)
    return encoded_json_response(encoded)

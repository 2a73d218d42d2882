"""One embedded service with a fake web, shared by all labs of a test process.

A service of its own takes 0.2 s of each test: uvicorn's loop looks every 0.1 s for a request to stop, and then waits
another 0.1 s.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterator
from contextlib import contextmanager

from fake_web import FakeWeb

from weblake_service.server import LocalService


@functools.cache
def _started() -> tuple[LocalService, FakeWeb]:
    web = FakeWeb()
    service = LocalService(web=lambda config: web).start()
    atexit.register(service.stop)
    return service, web


@contextmanager
def shared_service() -> Iterator[tuple[LocalService, FakeWeb]]:
    """Yield a running service without jobs, pages and faults, and its web; end its jobs afterwards."""
    service, web = _started()
    try:
        yield service, web
    finally:
        service.reset()
        vars(web).update(vars(FakeWeb()))

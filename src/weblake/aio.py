"""Timeouts and task groups with the same behaviour on all supported Pythons; asyncio of Python 3.10 has neither."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    import async_timeout

    @asynccontextmanager
    async def timeout(delay: float | None) -> AsyncIterator[None]:
        """Cancel the block after `delay` seconds and raise the built-in TimeoutError, as asyncio.timeout does."""
        try:
            async with async_timeout.timeout(delay):
                yield
        except asyncio.TimeoutError as error:  # not the built-in class before 3.11
            raise TimeoutError from error


__all__ = ["run_together", "timeout"]

T = TypeVar("T")


async def run_together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the coroutines at the same time and return their results in order.

    If one fails, the others are cancelled, and its error is raised after they have ended.
    """
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""A Chromium with a debugging port, as in a browser session, and helpers that run code and page actions in it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser_lab import require_chromium
from polling import until
from supervised_processes import Processes

from weblake_service.sessions.code.connection import WebSocketCdp, open_connection
from weblake_service.sessions.code.runner import Execution, run_code
from weblake_service.sessions.open_pages import close_page
from weblake_service.sessions.page_actions import PageActions

#: An address without a listener.
NOWHERE = "ws://127.0.0.1:9/"


@contextmanager
def chromium() -> Iterator[str]:
    """Start a separate browser and yield the address of its debugging protocol."""
    require_chromium()
    processes = Processes()
    folder = Path(tempfile.mkdtemp(prefix="weblake-test-chromium-"))
    processes.remove_at_end(folder)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
    processes.start(
        "chromium",
        ["chromium", *flags, f"--user-data-dir={folder}", "about:blank"],
        {"PATH": os.environ["PATH"], "HOME": str(folder)},
        folder / "log",
    )
    try:
        said = until(lambda: (folder / "DevToolsActivePort").exists() and (folder / "DevToolsActivePort").read_text())
        port, path = said.split()
        yield f"ws://127.0.0.1:{port}{path}"
    finally:
        processes.close()


def run(code: str, language: str, folder: Path, cdp_url: str = NOWHERE, timeout_s: float = 60) -> Execution:
    return asyncio.run(run_code(code, language, cdp_url=cdp_url, folder=folder, timeout_s=timeout_s))


def on_browser(url: str, work: Callable[[WebSocketCdp], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with open_connection(url) as cdp:
            return await work(cdp)

    return asyncio.run(main())


def on_page(url: str, work: Callable[[PageActions], Awaitable[Any]]) -> Any:
    """Run page actions on the active page and return their result."""

    async def main(cdp: WebSocketCdp) -> Any:
        actions = await PageActions.attach(cdp)
        try:
            return await work(actions)
        finally:
            await actions.detach()

    return on_browser(url, main)


def keep_one_page(url: str) -> None:
    """Open a blank page and close all other pages."""

    async def main(cdp: WebSocketCdp) -> None:
        new = (await cdp.send("Target.createTarget", {"url": "about:blank"}))["targetId"]
        for target in (await cdp.send("Target.getTargets"))["targetInfos"]:
            if target["type"] == "page" and target["targetId"] != new:
                await close_page(cdp, target["targetId"])

    on_browser(url, main)

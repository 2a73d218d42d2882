"""A Chromium with a debugging port, as in a browser session, and a function that runs code in it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser_lab import require_chromium
from polling import until
from supervised_processes import Processes

from weblake_service.sessions.code.runner import Execution, run_code

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
    flags += ["--disable-popup-blocking", "--window-size=900,700"]
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

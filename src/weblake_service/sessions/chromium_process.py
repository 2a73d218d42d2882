"""The Chromium process of one session, connected by two pipes and no port.

If the service ends for any reason, the pipes are closed and Chromium exits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from weblake_service.browser import chromium
from weblake_service.browser.context_settings import ContextSettings
from weblake_service.browser.temporary_folders import TemporaryFolder
from weblake_service.page_failure import PageFailure, not_configured

_LOG = logging.getLogger("weblake.service")
#: Maximum bytes of one message; a screenshot of a long page has tens of megabytes.
_MAX_MESSAGE_BYTES = 256 << 20
#: Maximum bytes in the write buffer to Chromium.
_MAX_BUFFERED_BYTES = 1 << 20
#: Seconds that Chromium gets to exit; then it is killed.
_EXIT_TIMEOUT_S = 3.0
#: Chromium uses descriptors 3 and 4. A shell sets them up, because Python could do it only with a preexec hook in the
#: forked child.
_SHELL_COMMAND = ("/bin/sh", "-c", 'exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2')
#: Switches that disable background features of a desktop browser.
_BACKGROUND_FLAGS = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--disable-field-trial-config",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-component-extensions-with-background-pages",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-search-engine-choice-screen",
    "--disable-features=Translate,MediaRouter,OptimizationHints,DialMediaRouteProvider,HttpsUpgrades,"
    "AcceptCHFrame,DestroyProfileOnBrowserClose,ThirdPartyStoragePartitioning,LensOverlay,PaintHolding,"
    "NetworkTimeServiceQuerying,AutofillServerCommunication",
    # Disables requests to the vendor for updates and sign-in state, which no page has caused.
    "--component-updater=url-source=http://127.0.0.1:9/,disable-pings",
    "--gaia-url=http://127.0.0.1:9/",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--password-store=basic",
    "--use-mock-keychain",
    "--proxy-bypass-list=<-loopback>",
]


class ChromiumProcess:
    """One running Chromium; `aclose` ends it and deletes its files."""

    def __init__(self, process: Process, folder: TemporaryFolder) -> None:
        self._process = process
        self._folder = folder
        self._reader: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        #: Set when the process has ended for any reason.
        self.gone = asyncio.Event()

    @classmethod
    async def start(cls, proxy: str, settings: ContextSettings) -> ChromiumProcess:
        """Start a Chromium that can reach the network only through a proxy; no message was received yet.

        Raises:
            PageFailure: It cannot be started.
        """
        program = chromium.find_chromium()
        if program is None:
            raise not_configured("A browser session", chromium.what_is_missing())
        folder = await asyncio.to_thread(TemporaryFolder)
        try:
            with (folder.path / "chromium.log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *_SHELL_COMMAND,
                    program,
                    *_flags(folder.path, proxy, settings),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log,
                    limit=_MAX_MESSAGE_BYTES,
                    env={name: str(value) for name, value in chromium.environment(folder.path).items()}
                    | {"TZ": settings.timezone},
                    start_new_session=True,
                )
        except BaseException as error:
            await asyncio.to_thread(folder.remove)
            if isinstance(error, OSError):
                message = f"Chromium ({program}) did not start: {error}. Check that it runs."
                raise PageFailure("BROWSER_FAILED", message, status=502, reached=False) from error
            raise
        return cls(process, folder)

    @property
    def folder(self) -> Path:
        """Return the profile folder, which is also the working folder of code that runs against this browser."""
        return self._folder.path

    def on_message(self, listener: Callable[[bytes], None]) -> None:
        """Pass every message of Chromium to a listener from now on."""
        self._reader = asyncio.get_running_loop().create_task(self._read(listener))

    async def send(self, message: bytes) -> None:
        """Send a message; wait while the write buffer is full.

        Raises:
            ConnectionError: Chromium has ended.
        """
        stdin = self._process.stdin
        assert stdin is not None
        if self.gone.is_set():
            raise ConnectionResetError("The browser is gone.")
        stdin.write(message + b"\0")
        if stdin.transport.get_write_buffer_size() > _MAX_BUFFERED_BYTES:
            async with self._writing:
                await stdin.drain()

    def last_output(self) -> str:
        """Return the last line that Chromium logged, for the error message of a failed start."""
        with suppress(OSError):
            lines = (self.folder / "chromium.log").read_bytes()[-4000:].decode("utf-8", "replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    async def aclose(self) -> None:
        """End the process; kill it if it does not exit in time."""
        stdin = self._process.stdin
        if self._process.returncode is None and stdin is not None and not self.gone.is_set():
            with suppress(ConnectionError, RuntimeError):
                await self.send(b'{"id":2147483647,"method":"Browser.close"}')
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                await self._process.wait()
        if self._process.returncode is None:
            # Its child processes are in its process group. After the wait, the process id may be reused.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self.gone.set()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if stdin is not None:
            stdin.close()
        await asyncio.to_thread(self._folder.remove)

    async def _read(self, listener: Callable[[bytes], None]) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while True:
                message = await stdout.readuntil(b"\0")
                try:
                    listener(message[:-1])
                except Exception:  # noqa: BLE001 - a failing listener must not end the session
                    _LOG.exception("A message of a browser could not be handled.")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.LimitOverrunError:
            _LOG.warning(
                "A browser session was ended: one message of its Chromium has more than %d bytes.", _MAX_MESSAGE_BYTES
            )
        finally:
            self.gone.set()


def _flags(folder: Path, proxy: str, settings: ContextSettings) -> list[str]:
    width, height = settings.size
    own = [
        f"--user-data-dir={folder / 'profile'}",
        f"--proxy-server={proxy}",
        f"--window-size={width},{height}",
        f"--accept-lang={','.join(settings.languages) or 'en-US'}",
        f"--lang={settings.languages[0] if settings.languages else 'en-US'}",
    ]
    if not settings.verify:
        own.append("--ignore-certificate-errors")
    if not chromium.uses_sandbox():
        own.append("--no-sandbox")
    return [*_BACKGROUND_FLAGS, *chromium.arguments(), *own, "about:blank"]

"""Headless Chromium (Debian's), driven over its debugging protocol (CDP) through a pipe, for tests of rendered pages.

    with Browser(tmp_path) as browser:
        browser.open("http://127.0.0.1:8080/connections")
        browser.wait_for("Add Connection")
        browser.click("Add Connection")
        browser.screenshot(tmp_path / "connection.png")

It resolves no name but loopback's, and ends with its owner.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from supervised_processes import Processes, tail

WIDTH, HEIGHT = 1400, 900
#: Seconds between two checks, and seconds for which a page must not change before it counts as finished.
POLL, QUIET = 0.2, 1.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--metrics-recording-only", "--no-pings", "--lang=en-US"),
    # A page that asks for fonts or scripts from other hosts does not get them: the screenshot shows only local content.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
#: The flag above makes the program read from file descriptor 3 and write to 4.
_WITH_PIPES = 'orders=$1 answers=$2; shift 2; exec "$@" 3<"$orders" 4>"$answers"'

#: The visible text, and the values of the fields, which are not part of it; values of password fields are left out.
_TEXT = """[document.body?.innerText ?? '', ...[...document.querySelectorAll('input, textarea')]
    .filter(field => field.type !== 'password').map(field => field.value || field.placeholder)].join('\\n')"""
#: The source of the page and the values of all fields, visible or not, including password fields.
_SOURCE = """[document.documentElement.outerHTML, ...[...document.querySelectorAll('input, textarea')]
    .map(field => field.value)].join('\\n')"""
#: Scrolls to the innermost visible element of a name and returns its middle; %s is the name as JSON.
_MIDDLE = """(name => {
    const seen = each => each.getClientRects().length > 0 && getComputedStyle(each).visibility !== 'hidden';
    const called = each => [each.innerText, each.getAttribute('aria-label'), each.getAttribute('placeholder'),
        each.getAttribute('name'), each.getAttribute('title')].some(text => text && text.trim() === name);
    const found = [...document.querySelectorAll('body *')].filter(each => called(each) && seen(each));
    const inner = found.find(each => !found.some(other => other !== each && each.contains(other)));
    if (!inner) return null;
    inner.scrollIntoView({block: 'nearest'});
    const box = inner.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
})(%s)"""
#: The protocol's errors when a page is left during a command.
_GOES = ("Cannot find default execution context", "Execution context was destroyed", "navigated or closed")


class PageLeftError(AssertionError):
    """The page was left during a command; the command can be repeated on the next page."""


class Browser:
    """One window of 1400 x 900 pixels; a context manager. Everything that waits does so with a deadline.

    :param folder: an existing directory for the profile, the pipes and the program's log.
    """

    #: Seconds that a page may take to show something, on a machine that is busy with other tests.
    timeout = 60.0

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium")
        assert program, "there is no chromium; install it: apt-get install -y chromium"
        self._program, self._folder, self._log = program, folder, folder / "chromium.log"
        self._processes = Processes()
        self._numbers = itertools.count(1)
        self._session: dict[str, str] = {}
        self._height = HEIGHT
        self._orders = self._answers = -1
        self._read = b""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and everything it started; the folder stays."""
        self._processes.close()
        for pipe in {self._orders, self._answers} - {-1}:
            os.close(pipe)
        self._orders = self._answers = -1

    def pids(self) -> set[int]:
        """Return the ids of all living processes of the browser."""
        return self._processes.pids()

    def _start(self) -> None:
        pipes = [self._folder / name for name in ("orders", "answers")]
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        # Opened for reading and writing, so that neither side blocks until the other one opens its end.
        self._orders, self._answers = (os.open(pipe, os.O_RDWR | os.O_CLOEXEC) for pipe in pipes)
        profile = f"--user-data-dir={self._folder / 'profile'}"
        command = ["sh", "-c", _WITH_PIPES, "sh", *map(str, pipes), self._program, *_FLAGS, profile]
        env = {"HOME": str(self._folder), "PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC"}
        self._processes.start("chromium", command, env, self._log)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.resize(WIDTH, HEIGHT)
        # Settings that make screenshots the same on every machine: user preferences and animations are fixed.
        wanted = {"prefers-color-scheme": "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self._call("Emulation.setEmulatedMedia", features=features)

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Set the size of the window, or emulate a phone."""
        self._height = height
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    # User actions

    def open(self, url: str) -> None:
        """Go to an address; the caller waits for its content."""
        error = self._call("Page.navigate", url=url).get("errorText")
        assert not error, f"{url}: {error}"

    def wait_for(self, *texts: str) -> str:
        """Wait until all of these texts are visible on the page, and return its visible text."""

        def there() -> str:
            now = self.text()
            return now if all(text in now for text in texts) else ""

        found: str = self._until(f"{', '.join(map(repr, texts))} on the page", there)
        return found

    def text(self) -> str:
        """Return the visible text of the page, with the values of its fields, or else their placeholders."""
        return str(self.run(_TEXT)).replace("\N{NO-BREAK SPACE}", " ")  # which editors of code show for each space

    def source(self) -> str:
        """Return the page as HTML with the values of all fields, including password fields."""
        return str(self.run(_SOURCE))

    def click(self, name: str) -> None:
        """Click in the middle of the element with this text, label, placeholder, name or title, once it is still."""
        before: list[float] | None = None

        def still() -> list[float] | None:
            nonlocal before
            now, before = before, self.run(_MIDDLE % json.dumps(name))
            return now if now == before else None

        x, y = self._until(f"something called {name!r}", still)
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def write(self, name: str, text: str) -> None:
        """Click on a field and type a text into it."""
        self.click(name)
        self._call("Input.insertText", text=text)

    def type(self, text: str) -> None:
        """Type a text into the focused element."""
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key that types nothing, such as Tab or Enter, in the focused element."""
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the window, once it has not changed for a second; without pointer, cursor and focus."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=self._height - 1)
        self.run("document.activeElement?.blur()")
        before, since = b"", time.monotonic()

        def still() -> bytes | None:
            nonlocal before, since
            now = base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])
            if now != before:
                before, since = now, time.monotonic()
            return now if time.monotonic() > since + QUIET else None

        path.write_bytes(self._until("the page to stand still", still))

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page, as plain JSON."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, f"{expression}: {done.get('exceptionDetails')}"
        return done["result"].get("value")

    # Internals

    def _until(self, what: str, done: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self.timeout
        while True:
            with contextlib.suppress(PageLeftError):
                if value := done():
                    return value
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {self.timeout:g} s. The page:\n{self.text()[:4000]}")
            time.sleep(POLL)

    def _call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        session = {} if method.startswith("Target.") else self._session
        os.write(
            self._orders, json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0"
        )
        deadline = time.monotonic() + self.timeout
        while (answer := self._next(method, deadline)).get("id") != number:
            pass  # events, which are not used
        if error := answer.get("error"):
            went = any(words in error["message"] for words in _GOES)
            raise (PageLeftError if went else AssertionError)(f"{method}: {error['message']}")
        return answer["result"]

    def _next(self, method: str, deadline: float) -> dict[str, Any]:
        """Return the next response or event."""
        while b"\0" not in self._read:
            if select.select([self._answers], [], [], POLL)[0]:
                self._read += os.read(self._answers, 1 << 20)
                continue
            if dead := self._processes.dead():
                raise AssertionError(f"chromium {dead['chromium']}")
            assert time.monotonic() < deadline, f"{method}: no answer. The browser's log:\n{tail(self._log)}"
        answer, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(answer)
        return found

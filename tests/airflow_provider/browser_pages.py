"""Pages as a person sees them: Debian's Chromium without a window, driven over its own protocol (CDP) through a pipe.

    with Browser(tmp_path) as browser:
        browser.open("http://127.0.0.1:8080/connections")
        browser.wait_for("Add Connection")
        browser.click("Add Connection")
        browser.screenshot(tmp_path / "connection.png")

It resolves no name but loopback's, and ends with its owner. Imports: airflow_processes, and the standard library.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import selectors
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_processes import Processes, tail

WIDTH, HEIGHT = 1400, 900
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--metrics-recording-only", "--no-pings", "--lang=en-US"),
    # A page that asks for fonts or scripts elsewhere does not get them: the picture shows what this machine serves.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
#: The program's file descriptors 3 and 4 are what the flag above reads from and writes to.
_WITH_PIPES = 'orders=$1 answers=$2; shift 2; exec "$@" 3<"$orders" 4>"$answers"'

#: What a person reads: the text, and what stands in the fields, which is no part of the text.
_TEXT = """[document.body.innerText, ...[...document.querySelectorAll('input, textarea')]
    .filter(field => field.type !== 'password').map(field => field.value || field.placeholder)].join('\\n')"""
#: What the page holds, seen or not: its source, and the values of all fields.
_SOURCE = """[document.documentElement.outerHTML, ...[...document.querySelectorAll('input, textarea')]
    .map(field => field.value)].join('\\n')"""
#: The innermost element that is seen and is called so; %s is the name as JSON.
_NAMED = """(name => {
    const seen = each => each.getClientRects().length > 0 && getComputedStyle(each).visibility !== 'hidden';
    const called = each => [each.innerText, each.getAttribute('aria-label'), each.getAttribute('placeholder'),
        each.getAttribute('name'), each.getAttribute('data-testid')].some(text => text && text.trim() === name);
    const found = [...document.querySelectorAll('body *')].filter(each => called(each) && seen(each));
    return found.find(each => !found.some(other => other !== each && each.contains(other)));
})(%s)"""


class Browser:
    """One window of 1400 x 900 pixels; a context manager. Everything that waits does so with a deadline.

    :param folder: an existing directory for the profile, the pipes and the program's log.
    """

    #: Seconds that a page may take to show something, on a machine that is busy with other tests.
    timeout = 60.0

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium")
        assert program, "there is no chromium; install it: apt-get install -y chromium"
        self._program = program
        self._folder = folder
        self._log = folder / "chromium.log"
        self._processes = Processes()
        self._numbers = itertools.count(1)
        self._answers = b""
        self._page: dict[str, str] = {}
        self._orders_fd = self._answers_fd = -1

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        pipes = [self._folder / name for name in ("orders", "answers")]
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        # A reader and a writer of our own keep each pipe open from the start: nothing waits for the other side then.
        self._orders_fd, self._answers_fd = (os.open(pipe, os.O_RDWR | os.O_CLOEXEC) for pipe in pipes)
        home = {"HOME": str(self._folder), "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TZ": "UTC"}
        profile = f"--user-data-dir={self._folder / 'profile'}"
        command = ["sh", "-c", _WITH_PIPES, "sh", *map(str, pipes), self._program, *_FLAGS, profile]
        self._processes.start("chromium", command, home, self._log)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._page = {"sessionId": attached["sessionId"]}
        self._call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        # What moves would be on one picture and not on the next.
        reduced = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        self._call("Emulation.setEmulatedMedia", features=reduced)

    def close(self) -> None:
        """Ends the browser and everything it started."""
        self._processes.close()
        for fd in (self._orders_fd, self._answers_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._orders_fd = self._answers_fd = -1

    def pids(self) -> set[int]:
        """Every living process of the browser."""
        return self._processes.pids()

    # What a person does

    def open(self, url: str) -> None:
        """Goes to an address; what it shows is to be waited for."""
        error = self._call("Page.navigate", url=url).get("errorText")
        assert not error, f"{url}: {error}"

    def wait_for(self, *texts: str) -> str:
        """Waits until all of these can be read on the page, and returns what can be read there."""
        missing = f"{', '.join(map(repr, texts))} on the page"
        self._until(missing, lambda: all(text in self.text() for text in texts))
        return self.text()

    def wait_until_gone(self, text: str) -> None:
        """Waits until this can no longer be read on the page."""
        self._until(f"{text!r} to go", lambda: text not in self.text())

    def text(self) -> str:
        """What can be read on the page; of its fields what stands in them, or else their placeholder."""
        return str(self.run(_TEXT))

    def source(self) -> str:
        """The page as HTML with the values of all fields, those of a key too."""
        return str(self.run(_SOURCE))

    def click(self, name: str) -> None:
        """Clicks in the middle of what has this text, label, placeholder or name."""
        x, y = self._place(name)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            buttons = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **buttons)

    def write(self, name: str, text: str) -> None:
        """Clicks on a field and writes into it."""
        self.click(name)
        self.insert(text)

    def insert(self, text: str) -> None:
        """Writes where the cursor stands."""
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a key that has a name: Enter, Escape, Tab."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Writes the window as a PNG."""
        # The pointer is put aside: what it stands on would look different.
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=HEIGHT - 1)
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, as plain JSON."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    # Inside

    def _place(self, name: str) -> tuple[float, float]:
        """The middle of what is called so, once it stands still."""
        named = _NAMED % json.dumps(name)
        middle = f"(each => {{ if (!each) return null; each.scrollIntoView({{block: 'nearest'}}); const box = "
        middle += f"each.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})({named})"
        before: list[Any] = [None]

        def still() -> Any:
            now = self.run(middle)
            same, before[0] = now == before[0], now
            return now if same and now else None

        x, y = self._until(f"something called {name!r}", still)
        return x, y

    def _until(self, what: str, done: Any) -> Any:
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                if value := done():
                    return value
            except AssertionError as error:
                # Between two pages there is no document, or one without a body.
                if "Cannot read properties of null" not in str(error) and "context" not in str(error):
                    raise
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {self.timeout:g} s. The page:\n{self.text()[:4000]}")
            time.sleep(0.1)

    def _call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": params, **self._page}
        if method.startswith("Target."):
            order.pop("sessionId", None)
        os.write(self._orders_fd, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while (answer := self._next(deadline, method)).get("id") != number:
            pass
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _next(self, deadline: float, method: str) -> dict[str, Any]:
        """The next answer or event."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers_fd, selectors.EVENT_READ)
            while b"\0" not in self._answers:
                if selector.select(0.5):
                    self._answers += os.read(self._answers_fd, 1 << 20)
                    continue
                if dead := self._processes.dead():
                    raise AssertionError(f"chromium {dead['chromium']}")
                assert time.monotonic() < deadline, f"{method}: no answer. The browser's log:\n{tail(self._log)}"
        answer, _, self._answers = self._answers.partition(b"\0")
        found: dict[str, Any] = json.loads(answer)
        return found

"""Pages as a person sees them: Debian's Chromium without a window, driven over its own protocol (CDP) through a pipe.

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
from typing import Any

from lab_processes import Processes, tail
from typing_extensions import Self

WIDTH, HEIGHT = 1400, 900
#: Seconds between two looks, and for how long a page must look the same before it is taken for finished.
POLL, QUIET = 0.2, 1.0
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

#: What a person reads: the text, and what stands in the fields, which is no part of the text; of a key, nothing.
_TEXT = """[document.body?.innerText ?? '', ...[...document.querySelectorAll('input, textarea')]
    .filter(field => field.type !== 'password').map(field => field.value || field.placeholder)].join('\\n')"""
#: What the page holds, seen or not: its source, and the values of all fields, those of a key too.
_SOURCE = """[document.documentElement.outerHTML, ...[...document.querySelectorAll('input, textarea')]
    .map(field => field.value)].join('\\n')"""
#: The middle of the innermost element that is seen and is called so, brought into the window; %s is the name as JSON.
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
#: What the protocol answers when a page goes while it is asked.
_GOES = ("Cannot find default execution context", "Execution context was destroyed", "navigated or closed")


class PageWentError(AssertionError):
    """The page was left while it was asked; the next one can be asked again."""


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
        """Ends the browser and everything it started; the folder stays."""
        self._processes.close()
        for pipe in {self._orders, self._answers} - {-1}:
            os.close(pipe)
        self._orders = self._answers = -1

    def pids(self) -> set[int]:
        """Every living process of the browser."""
        return self._processes.pids()

    def _start(self) -> None:
        pipes = [self._folder / name for name in ("orders", "answers")]
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        # Open for both at our end: neither we nor the browser wait for the other one then.
        self._orders, self._answers = (os.open(pipe, os.O_RDWR | os.O_CLOEXEC) for pipe in pipes)
        profile = f"--user-data-dir={self._folder / 'profile'}"
        command = ["sh", "-c", _WITH_PIPES, "sh", *map(str, pipes), self._program, *_FLAGS, profile]
        env = {"HOME": str(self._folder), "PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC"}
        self._processes.start("chromium", command, env, self._log)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.resize(WIDTH, HEIGHT)
        # The same picture on every machine: what a person may have chosen, and what moves, is set.
        wanted = {"prefers-color-scheme": "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self._call("Emulation.setEmulatedMedia", features=features)

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Makes the window another one, or a phone."""
        self._height = height
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    # What a person does

    def open(self, url: str) -> None:
        """Goes to an address; what it shows is to be waited for."""
        error = self._call("Page.navigate", url=url).get("errorText")
        assert not error, f"{url}: {error}"

    def wait_for(self, *texts: str) -> str:
        """Waits until all of these can be read on the page, and returns what can be read there."""

        def there() -> str:
            now = self.text()
            return now if all(text in now for text in texts) else ""

        found: str = self._until(f"{', '.join(map(repr, texts))} on the page", there)
        return found

    def text(self) -> str:
        """What can be read on the page; of its fields what stands in them, or else their placeholder."""
        return str(self.run(_TEXT)).replace("\N{NO-BREAK SPACE}", " ")  # which editors of code show for each space

    def source(self) -> str:
        """The page as HTML with the values of all fields, those of a key too."""
        return str(self.run(_SOURCE))

    def click(self, name: str) -> None:
        """Clicks in the middle of what has this text, label, placeholder, name or title, once it stands still."""
        before: list[float] | None = None

        def still() -> list[float] | None:
            nonlocal before
            now, before = before, self.run(_MIDDLE % json.dumps(name))
            return now if now == before else None

        x, y = self._until(f"something called {name!r}", still)
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def write(self, name: str, text: str) -> None:
        """Clicks on a field and writes into it."""
        self.click(name)
        self._call("Input.insertText", text=text)

    def type(self, text: str) -> None:
        """Writes where the keyboard's focus is."""
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a key that writes nothing, such as Tab or Enter, where the keyboard's focus is."""
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, path: Path) -> None:
        """Writes the window as a PNG, once it has looked the same for a second; without pointer, cursor and focus."""
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
        """The value of a JavaScript expression in the page, as plain JSON."""
        done = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, f"{expression}: {done.get('exceptionDetails')}"
        return done["result"].get("value")

    # Inside

    def _until(self, what: str, done: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self.timeout
        while True:
            with contextlib.suppress(PageWentError):
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
            pass  # events, which nobody has asked for
        if error := answer.get("error"):
            went = any(words in error["message"] for words in _GOES)
            raise (PageWentError if went else AssertionError)(f"{method}: {error['message']}")
        return answer["result"]

    def _next(self, method: str, deadline: float) -> dict[str, Any]:
        """The next answer or event."""
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

"""Headless Chromium (Debian's), driven by Playwright, for tests and pictures of rendered pages.

    with Browser(tmp_path) as browser:
        browser.open("http://127.0.0.1:8080/connections")
        browser.wait_for("Add Connection")
        browser.click("Add Connection")
        browser.screenshot(tmp_path / "connection.png")

It resolves no name but loopback's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, Self

from playwright.sync_api import Error, sync_playwright

WIDTH, HEIGHT = 1400, 900
#: Seconds between two checks, and seconds for which a page must not change before it counts as finished.
POLL, QUIET = 0.2, 1.0
_FLAGS = (
    "--no-sandbox",
    "--lang=en-US",
    # A page that asks for fonts or scripts from other hosts does not get them: the screenshot shows only local content.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

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


class Browser:
    """One window of 1400 x 900 pixels; a context manager. Everything that waits does so with a deadline.

    :param folder: an existing directory, the home of the browser.
    """

    #: Seconds that a page may take to show something, on a machine that is busy with other tests.
    timeout = 60.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._height = HEIGHT

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            playwright = stack.enter_context(sync_playwright())
            env = {"HOME": str(self._folder), "PATH": os.environ.get("PATH", os.defpath)}
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=_FLAGS, env=env)
            stack.callback(browser.close)
            # Settings that make screenshots the same on every machine.
            fixed = {"color_scheme": "light", "reduced_motion": "reduce", "locale": "en-US", "timezone_id": "UTC"}
            self._page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, **fixed)  # type: ignore[arg-type]
            self._page.set_default_timeout(self.timeout * 1000)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self._height = height
        self._page.set_viewport_size({"width": width, "height": height})

    def use_colors(self, scheme: Literal["light", "dark"]) -> None:
        """Set the colour scheme that the system prefers."""
        self._page.emulate_media(color_scheme=scheme)

    # User actions

    def open(self, url: str) -> None:
        """Go to an address; the caller waits for its content."""
        self._page.goto(url, wait_until="commit")

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

        self._page.mouse.click(*self._until(f"something called {name!r}", still))

    def write(self, name: str, text: str) -> None:
        """Click on a field and type a text into it."""
        self.click(name)
        self.type(text)

    def type(self, text: str) -> None:
        """Type a text into the focused element."""
        self._page.keyboard.insert_text(text)

    def press(self, key: str) -> None:
        """Press a key, such as Tab or Enter, in the focused element."""
        self._page.keyboard.press(key)

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the window, once it has not changed for a second; without pointer, cursor and focus."""
        self._page.mouse.move(1, self._height - 1)
        self.run("document.activeElement?.blur()")
        before, since = b"", time.monotonic()

        def still() -> bytes | None:
            nonlocal before, since
            now = self._page.screenshot()
            if now != before:
                before, since = now, time.monotonic()
            return now if time.monotonic() > since + QUIET else None

        path.write_bytes(self._until("the page to stand still", still))

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page, as plain JSON."""
        return self._page.evaluate(expression)

    def _until(self, what: str, done: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self.timeout
        while True:
            with suppress(Error):  # the page was left during a command, which can be repeated on the next page
                if value := done():
                    return value
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {self.timeout:g} s. The page:\n{self.text()[:4000]}")
            time.sleep(POLL)

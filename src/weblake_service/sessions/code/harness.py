"""Runs a user's Python code: `python -I harness.py ROOM PATH...`.

It runs ROOM/code.py with Playwright's asynchronous `page`, `context` and `browser`, with top-level `await`. The value
of the last expression is written to ROOM/value and the message of an exception to ROOM/error, separate from the output
of the code.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import linecache
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

_CODE_FILE = "code.py"
#: Maximum characters of a value.
_MAX_VALUE_CHARS = 1 << 20


async def main(room: Path) -> int:
    """Run the code; return the exit status of the process."""
    from playwright.async_api import async_playwright

    code = (room / _CODE_FILE).read_text("utf-8")
    # Registers the source, so that tracebacks show the lines of the code, which is not an importable file.
    linecache.cache[_CODE_FILE] = (len(code), None, code.splitlines(keepends=True), _CODE_FILE)
    try:
        # Compiled before the browser is contacted, so that a syntax error is reported at once.
        parts = _compile(code)
        playwright = await async_playwright().start()
        browser = await playwright.chromium.connect_over_cdp(os.environ["CDP_URL"])
        context = browser.contexts[0] if browser.contexts else await browser.new_context()
        page = await _choose_page(context, (room / "page").read_text("utf-8"))
        names = {"__name__": "__main__", "page": page, "context": context, "browser": browser, "playwright": playwright}
        value = None
        for part in parts:
            value = eval(part, names)  # noqa: S307 - running the code is what this program is for
            if inspect.iscoroutine(value) and part.co_flags & inspect.CO_COROUTINE:
                value = await value
        _write(room / "value", _to_json(value))
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
            _write(room / "error", end.code)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001 - any exception is the result of the execution
        _report_exception(error, room)
        return 1
    return 0


def _compile(code: str) -> list[Any]:
    """Return the compiled code up to its last expression, and that expression separately for its value."""
    tree = ast.parse(code, _CODE_FILE)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    parts = [compile(tree, _CODE_FILE, "exec", flags, dont_inherit=True)]
    if isinstance(last, ast.Expr):
        parts.append(compile(ast.Expression(last.value), _CODE_FILE, "eval", flags, dont_inherit=True))
    return parts


async def _choose_page(context: BrowserContext, target: str) -> Page:
    """Return the page with a target id; the last page if that one is closed, a new one if there is none."""
    if len(context.pages) > 1 and target:
        for page in context.pages:
            session = await context.new_cdp_session(page)
            info = (await session.send("Target.getTargetInfo"))["targetInfo"]
            await session.detach()
            if info["targetId"] == target:
                return page
    return context.pages[-1] if context.pages else await context.new_page()


def _to_json(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _report_exception(error: BaseException, room: Path) -> None:
    """Write an exception: its message to the result file, and its traceback within the code to stderr."""
    trace = traceback.TracebackException.from_exception(error)
    _keep_user_frames(trace)
    print("".join(trace.format()), end="", file=sys.stderr)  # noqa: T201
    text = str(error)
    if isinstance(error, SyntaxError):
        text = f"{error.msg} ({error.filename}:{error.lineno})"
    _write(room / "error", f"{type(error).__name__}: {text}".strip(": \n"))


def _keep_user_frames(trace: traceback.TracebackException | None) -> None:
    """Remove all frames of a traceback that do not belong to the user's code."""
    if trace is None:
        return
    own = [frame for frame in trace.stack if frame.filename == _CODE_FILE]
    trace.stack = traceback.StackSummary.from_list(own)
    for other in (trace.__cause__, trace.__context__):
        _keep_user_frames(other)


def _write(file: Path, text: str | None) -> None:
    if text is not None:
        # The code may have deleted its own folder.
        with suppress(OSError):
            file.write_text(text[:_MAX_VALUE_CHARS], "utf-8", errors="replace")


if __name__ == "__main__":
    _room, _paths = Path(sys.argv[1]), sys.argv[2:]
    # Remove this file's folder from the import path: its modules would shadow others with the same names.
    sys.path[:] = [*(path for path in sys.path if path not in {*_paths, str(Path(__file__).parent)}), *_paths]
    sys.argv = [""]
    # Line buffering: output must be written before the code is killed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Not asyncio.run, which waits for threads of the code.
    _status = asyncio.new_event_loop().run_until_complete(main(_room))
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit without waiting for threads of the code or for Playwright's driver; the pages stay open.
    os._exit(_status)

"""The command `agent-browser`: has the service perform one step on the active page of the session of CDP_URL.

It runs as a separate script, with the standard library only. An error is one line on standard error and the exit status
1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

#: Seconds for the response of the service, which has timeouts of its own.
_RESPONSE_TIMEOUT_S = 120.0
_MS_PER_SECOND = 1000
#: Commands with one element argument.
_ELEMENT_COMMANDS = {
    "click": "click an element",
    "dblclick": "click it twice",
    "hover": "move the mouse over it",
    "focus": "give it the focus",
    "check": "set a checkbox",
    "uncheck": "take it back",
    "scrollintoview": "scroll until it is in the window",
}
#: Flags without a value.
_FLAGS = {"--json", "-f", "--full"}


class _CommandError(Exception):
    """A command failed; the message says why in one line."""


def main(words: Sequence[str]) -> int:
    """Run one step; return the exit status of the process."""
    arguments = parse(words)
    try:
        text, value = _run(arguments)
    except _CommandError as error:
        if arguments.json:
            print(json.dumps({"success": False, "data": None, "error": str(error)}))  # noqa: T201
        print(f"agent-browser: {error}", file=sys.stderr)  # noqa: T201
        return 1
    shown = json.dumps({"success": True, "data": value, "error": None}, ensure_ascii=False) if arguments.json else text
    if shown:
        with suppress(BrokenPipeError):
            print(shown)  # noqa: T201
            sys.stdout.flush()
    return 0


def _run(arguments: argparse.Namespace) -> tuple[str, Any]:
    """Return the output of one step as a text and as a value."""
    if arguments.command == "close":
        return "The session stays open; it is ended through the API (DELETE /v2/browser/{id}).", None
    if arguments.command == "wait" and arguments.what.isdigit():
        time.sleep(int(arguments.what) / _MS_PER_SECOND)
        return "", None
    if arguments.command == "eval":
        arguments.script = sys.stdin.read() if arguments.script == ["-"] else " ".join(arguments.script)
    reply = _post(os.environ.get("CDP_URL", ""), vars(arguments))
    if reply["error"] is not None:
        raise _CommandError(reply["error"])
    if reply["png"] is None:
        return reply["text"], reply["value"]
    file = Path(arguments.path or "screenshot.png").absolute()
    try:
        file.write_bytes(b64decode(reply["png"]))
    except OSError as error:
        raise _CommandError(f"{file} cannot be written: {error.strerror}. Name another path.") from error
    return str(file), {"path": str(file)}


def _post(cdp_url: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Have the service perform a command, and return its result."""
    address = cdp_url.replace("ws", "http", 1).replace("/cdp?", "/agent?")
    opener = build_opener(ProxyHandler({}))
    try:
        request = Request(address, json.dumps(arguments).encode(), {"Content-Type": "application/json"})  # noqa: S310
        with opener.open(request, timeout=_RESPONSE_TIMEOUT_S) as reply:
            result: dict[str, Any] = json.load(reply)
            return result
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise _CommandError(f"There is no browser at CDP_URL: {reason}") from error


class _Parser(argparse.ArgumentParser):
    """Prints argument errors as one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see agent-browser --help)", file=sys.stderr)  # noqa: T201
        sys.exit(1)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the command is in `command`. An invalid command line ends the process."""
    stop = words.index("--") if "--" in words else len(words)
    # argparse treats an optional positional as omitted if a flag precedes it, so flags are moved to the end.
    flags = [word for word in words[:stop] if word in _FLAGS]
    plain = [word for word in words[:stop] if word not in _FLAGS]
    return _parser().parse_args([*plain, *flags, *words[stop:]])


def _parser() -> argparse.ArgumentParser:
    anywhere = _Parser(add_help=False)
    anywhere.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="answer as JSON")
    top = _Parser(
        "agent-browser",
        description="Drives the session's browser. Elements are CSS selectors, or refs of the last snapshot: @e5.",
    )
    top.set_defaults(json=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, says: str, *arguments: tuple[Sequence[str], dict[str, Any]]) -> None:
        command = commands.add_parser(name, help=says, description=says, parents=[anywhere])
        for flags, options in arguments:
            command.add_argument(*flags, **options)

    element = (["element"], {"help": "a CSS selector, or a ref as @e5"})
    text = (["text"], {"nargs": "+"})
    add("open", "open an address", (["url"], {}))
    add("goto", "open an address", (["url"], {}))
    add("back", "to the page before")
    add("forward", "to the page after")
    add("reload", "load the page anew")
    add(
        "snapshot",
        "what the page shows, with refs to act on",
        (["-i", "--interactive"], {"action": "store_true", "help": "only what can be acted on"}),
        (["-c", "--compact"], {"action": "store_true", "help": "without boxes that say nothing"}),
        (["-d", "--depth"], {"type": int, "help": "how many levels deep"}),
        (["-s", "--selector"], {"help": "only below this element"}),
    )
    for name, says in _ELEMENT_COMMANDS.items():
        add(name, says, element)
    add("fill", "put a text into a field, in place of what it holds", element, text)
    add("type", "write a text into a field, after what it holds", element, text)
    add("press", "press a key: Enter, Tab, Control+a", (["key"], {}))
    add("select", "choose options of a list", element, (["values"], {"nargs": "+"}))
    add(
        "scroll",
        "scroll the page, or an element",
        (["direction"], {"choices": ["up", "down", "left", "right"]}),
        (["pixels"], {"nargs": "?", "type": int, "default": 600}),
        (["-s", "--selector"], {"help": "the element"}),
    )
    what = {"choices": ["text", "html", "value", "attr", "title", "url", "count"]}
    optional = (["element"], {"nargs": "?"})
    add("get", "read something of the page", (["what"], what), optional, (["name"], {"nargs": "?"}))
    add("is", "ask something about an element", (["what"], {"choices": ["visible", "enabled", "checked"]}), element)
    add("eval", "the value of some JavaScript, - for standard input", (["script"], {"nargs": "+"}))
    add("wait", "wait some milliseconds, or for an element to show", (["what"], {"metavar": "MS|SELECTOR"}))
    full = (["-f", "--full"], {"action": "store_true", "help": "all of the page"})
    add("screenshot", "a picture of the page, as PNG", (["path"], {"nargs": "?"}), full)
    add(
        "tab",
        "list, N or switch N, new [URL], close [N]",
        (["what"], {"nargs": "?", "default": "list"}),
        (["argument"], {"nargs": "?"}),
    )
    add("close", "leave the browser; the session stays open")
    return top


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Messages from the viewer of a live view: validation, and the CDP command for each.

Every client that has the URL of the view is a viewer, so its input is untrusted. Text that is not exactly one of these
messages is ignored: no error is returned that could be probed, and no part of it reaches the browser.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

#: Maximum bytes of one message; a pasted text is the largest part of the largest one.
MAX_BYTES = 64_000
_MAX_TEXT_CHARS, _MAX_URL_CHARS = 16_000, 2048

#: Pixels of the frame.
_Coordinate = Annotated[float, Meta(ge=0, le=10_000)]
_Delta = Annotated[float, Meta(ge=-10_000, le=10_000)]
#: Modifier bit mask: Alt 1, Ctrl 2, Meta 4, Shift 8.
_Modifiers = Annotated[int, Meta(ge=0, le=15)]
_Name = Annotated[str, Meta(max_length=32)]


class _Message(Struct, frozen=True, rename="camel"):
    """Base class of the messages; `type` is the discriminator."""


class Ping(_Message, frozen=True, tag="ping"):
    """A ping; also accepted from read-only viewers."""


class Taken(_Message, frozen=True, tag="taken"):
    """The last frame was drawn and the next one may be sent; also accepted from read-only viewers."""


class Mouse(_Message, frozen=True, tag="mouse"):
    """The pointer moved, or a button was pressed or released."""

    what: Literal["move", "down", "up"]
    x: _Coordinate
    y: _Coordinate
    button: Literal["none", "left", "middle", "right", "back", "forward"] = "none"
    #: Bit mask of the held buttons: left 1, right 2, middle 4.
    buttons: Annotated[int, Meta(ge=0, le=31)] = 0
    click_count: Annotated[int, Meta(ge=0, le=3)] = 0
    modifiers: _Modifiers = 0


class Wheel(_Message, frozen=True, tag="wheel"):
    """The mouse wheel scrolled; the distance is in the frame's pixels."""

    x: _Coordinate
    y: _Coordinate
    dx: _Delta = 0
    dy: _Delta = 0
    modifiers: _Modifiers = 0


class Key(_Message, frozen=True, tag="key"):
    """A key was pressed or released, or produced a character."""

    what: Literal["down", "up", "char"]
    key: _Name = ""
    code: _Name = ""
    #: The text of the key; empty for a key without text.
    text: Annotated[str, Meta(max_length=8)] = ""
    #: The key code of the DOM event (`keyCode`).
    number: Annotated[int, Meta(ge=0, le=255)] = 0
    modifiers: _Modifiers = 0
    repeat: bool = False


class Text(_Message, frozen=True, tag="text"):
    """Pasted text, inserted at once without key events."""

    text: Annotated[str, Meta(min_length=1, max_length=_MAX_TEXT_CHARS)]


class Navigate(_Message, frozen=True, tag="navigate"):
    """Navigate to a URL; `is_web` says whether it is allowed."""

    url: Annotated[str, Meta(max_length=_MAX_URL_CHARS)]

    def is_web(self) -> bool:
        """Return whether this is an http or https URL: viewers must not open file:, javascript: and chrome: URLs."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and bool(parts.hostname) and self.url.isprintable()


class Go(_Message, frozen=True, tag="go"):
    """Go back or forward in the page's history, or reload."""

    where: Literal["back", "forward", "reload"]


class Tab(_Message, frozen=True, tag="tab"):
    """Switch to another tab, counted from 1."""

    number: Annotated[int, Meta(ge=1, le=1000)]


class Answer(_Message, frozen=True, tag="answer"):
    """The answer to an open dialog of the page."""

    accept: bool
    text: Annotated[str, Meta(max_length=_MAX_TEXT_CHARS)] = ""


Message = Ping | Taken | Mouse | Wheel | Key | Text | Navigate | Go | Tab | Answer

_decoder: Decoder[Message] = Decoder(Message)
_MOUSE_EVENTS = {"move": "mouseMoved", "down": "mousePressed", "up": "mouseReleased"}


def read(raw: str | bytes) -> Message | None:
    """Return the message; None for anything else."""
    if len(raw) > MAX_BYTES:
        return None
    try:
        return _decoder.decode(raw)
    except (DecodeError, UnicodeError, RecursionError):
        return None


def command(message: Message, scale: float) -> tuple[str, dict[str, object]] | None:
    """Return the CDP command for an input message; None for any other message.

    Args:
        message: The viewer's message.
        scale: The frame's pixels per CSS pixel.
    """
    match message:
        case Mouse():
            return "Input.dispatchMouseEvent", {
                "type": _MOUSE_EVENTS[message.what],
                "x": message.x / scale,
                "y": message.y / scale,
                "button": message.button,
                "buttons": message.buttons,
                "clickCount": message.click_count,
                "modifiers": message.modifiers,
            }
        case Wheel():
            return "Input.dispatchMouseEvent", {
                "type": "mouseWheel",
                "x": message.x / scale,
                "y": message.y / scale,
                "deltaX": message.dx / scale,
                "deltaY": message.dy / scale,
                "modifiers": message.modifiers,
            }
        case Key():
            return "Input.dispatchKeyEvent", _key(message)
        case Text():
            return "Input.insertText", {"text": message.text}
    return None


def _key(message: Key) -> dict[str, object]:
    kind = {"down": "keyDown" if message.text else "rawKeyDown", "up": "keyUp", "char": "char"}[message.what]
    given: dict[str, object] = {
        "type": kind,
        "key": message.key,
        "code": message.code,
        # Without `nativeVirtualKeyCode`: with it, Chromium executes its own shortcuts, such as F12.
        "windowsVirtualKeyCode": message.number,
        "modifiers": message.modifiers,
        "autoRepeat": message.repeat,
    }
    if message.text and message.what != "up":
        given |= {"text": message.text, "unmodifiedText": message.text}
    return given

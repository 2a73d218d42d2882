"""Messages from the viewer of a live view: validation, and the CDP command for each.

A viewer is whoever has the address of the view: what it sends is a stranger's text. Whatever is not exactly one of the
messages here is nothing: no error goes back that could be probed, and no part of it goes on to the browser.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

#: Bytes of one message; a pasted text is most of the largest one.
LARGEST = 64_000
_LONGEST_TEXT, _LONGEST_URL = 16_000, 2048

#: Pixels of the picture.
_At = Annotated[float, Meta(ge=0, le=10_000)]
_Delta = Annotated[float, Meta(ge=-10_000, le=10_000)]
#: Alt 1, Ctrl 2, Meta 4, Shift 8, added up.
_Modifiers = Annotated[int, Meta(ge=0, le=15)]
_Name = Annotated[str, Meta(max_length=32)]


class _Message(Struct, frozen=True, rename="camel"):
    """One message; `type` says which."""


class Ping(_Message, frozen=True, tag="ping"):
    """Are you there? Anybody may ask."""


class Taken(_Message, frozen=True, tag="taken"):
    """The last picture has been drawn: another one may come. Anybody may say so."""


class Mouse(_Message, frozen=True, tag="mouse"):
    """The pointer moved, or a button went down or up."""

    what: Literal["move", "down", "up"]
    x: _At
    y: _At
    button: Literal["none", "left", "middle", "right", "back", "forward"] = "none"
    #: Those that are held: left 1, right 2, middle 4, added up.
    buttons: Annotated[int, Meta(ge=0, le=31)] = 0
    click_count: Annotated[int, Meta(ge=0, le=3)] = 0
    modifiers: _Modifiers = 0


class Wheel(_Message, frozen=True, tag="wheel"):
    """The page is scrolled; the distance is in the picture's pixels."""

    x: _At
    y: _At
    dx: _Delta = 0
    dy: _Delta = 0
    modifiers: _Modifiers = 0


class Key(_Message, frozen=True, tag="key"):
    """A key went down or up, or made a character."""

    what: Literal["down", "up", "char"]
    key: _Name = ""
    code: _Name = ""
    #: What it writes; empty for a key that writes nothing.
    text: Annotated[str, Meta(max_length=8)] = ""
    #: The number that pages know it by (`keyCode`).
    number: Annotated[int, Meta(ge=0, le=255)] = 0
    modifiers: _Modifiers = 0
    repeat: bool = False


class Text(_Message, frozen=True, tag="text"):
    """Text that was pasted: it is there at once, without keys."""

    text: Annotated[str, Meta(min_length=1, max_length=_LONGEST_TEXT)]


class Navigate(_Message, frozen=True, tag="navigate"):
    """Another page; `is_web` says whether it is one."""

    url: Annotated[str, Meta(max_length=_LONGEST_URL)]

    def is_web(self) -> bool:
        """Return whether it is an http or https address: file:, javascript: and chrome: are none of a viewer's business."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and bool(parts.hostname) and self.url.isprintable()


class Go(_Message, frozen=True, tag="go"):
    """Back or forward in the page's history, or the page once more."""

    where: Literal["back", "forward", "reload"]


class Tab(_Message, frozen=True, tag="tab"):
    """Another tab, counted from 1."""

    number: Annotated[int, Meta(ge=1, le=1000)]


class Answer(_Message, frozen=True, tag="answer"):
    """What an open dialog of the page is answered."""

    accept: bool
    text: Annotated[str, Meta(max_length=_LONGEST_TEXT)] = ""


Message = Ping | Taken | Mouse | Wheel | Key | Text | Navigate | Go | Tab | Answer

_decoder: Decoder[Message] = Decoder(Message)
_MOUSE = {"move": "mouseMoved", "down": "mousePressed", "up": "mouseReleased"}


def read(raw: str | bytes) -> Message | None:
    """Return the message; None for anything else."""
    if len(raw) > LARGEST:
        return None
    try:
        return _decoder.decode(raw)
    except (DecodeError, UnicodeError, RecursionError):
        return None


def command(message: Message, scale: float) -> tuple[str, dict[str, object]] | None:
    """Return the command that a page's session is sent for a message that is input; None for any other message.

    Args:
        message: What the viewer did.
        scale: Pixels of the picture for one of the page's own.
    """
    match message:
        case Mouse():
            return "Input.dispatchMouseEvent", {
                "type": _MOUSE[message.what],
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
        "windowsVirtualKeyCode": message.number,
        "nativeVirtualKeyCode": message.number,
        "modifiers": message.modifiers,
        "autoRepeat": message.repeat,
    }
    if message.text and message.what != "up":
        given |= {"text": message.text, "unmodifiedText": message.text}
    return given

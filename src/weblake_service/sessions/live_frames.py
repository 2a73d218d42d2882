"""Frames of a live view: at most one on its way to the viewer, and the newest one waiting.

A browser that films a page sends the next picture when the ones before are acknowledged. They are, when the viewer has
drawn what it was sent: so a viewer on a slow line gets fewer pictures and never old ones, and nothing piles up here.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Pictures that a browser sends before the first is acknowledged: beyond them it drops what it films.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture (a JPEG) and the size of what it shows, in the page's own pixels."""

    data: bytes
    page_width: float
    page_height: float

    @classmethod
    def from_base64(cls, text: str, page_width: float, page_height: float) -> Frame:
        """Return a picture as the browser's protocol has it."""
        return cls(b64decode(text), page_width, page_height)

    @property
    def scale(self) -> float:
        """Pixels of the picture for one of the page's; 1 where that cannot be told."""
        width, _ = jpeg_size(self.data)
        return width / self.page_width if width and self.page_width > 0 else 1.0


@dataclass(slots=True)
class FrameQueue:
    """The newest picture that was not sent yet, and what of the browser's is to be acknowledged."""

    #: Acknowledges one of the browser's pictures by its number.
    acknowledge: Callable[[int], None]
    newest: Frame | None = None
    #: What the viewer sees.
    shown: Frame | None = None
    #: Whether the viewer has drawn the last one that it was sent.
    acknowledged: bool = True
    #: Whether the browser may have dropped a change: what was last filmed need not be what is there.
    behind: bool = False
    #: Whether the page that is followed now has had no picture yet.
    awaiting_first: bool = True
    _open: list[int] = field(default_factory=list)

    def on_screencast_frame(self, event: dict[str, Any]) -> None:
        """Take in a picture of the browser's (`Page.screencastFrame`), in place of one that was not sent yet."""
        size = event["metadata"]
        self.newest = Frame.from_base64(event["data"], float(size["deviceWidth"]), float(size["deviceHeight"]))
        self.awaiting_first = False
        self._open.append(int(event["sessionId"]))
        self.behind = len(self._open) >= _AHEAD

    def on_screenshot(self, picture: Frame) -> None:
        """Take in a picture that was asked for: what is there now."""
        self.newest, self.awaiting_first, self.behind = picture, False, False

    def next(self) -> Frame | None:
        """Return the picture to send now; None while the viewer draws, or where there is nothing new."""
        if not self.acknowledged or self.newest is None:
            return None
        self.shown, self.newest, self.acknowledged = self.newest, None, False
        return self.shown

    def on_drawn(self) -> None:
        """The viewer has drawn what it was sent: the browser may go on."""
        self.acknowledged = True
        numbers, self._open = self._open, []
        for number in numbers:
            self.acknowledge(number)

    def clear(self) -> None:
        """Another page is followed: nothing of the one before is sent any more."""
        self.newest, self.behind, self.awaiting_first, self._open = None, False, True, []


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the head of a JPEG; zeros where it has none."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # the start of a frame; the three are tables
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0

"""Frames of a live view: at most one in transit to the viewer, and the newest one waiting.

The browser sends the next screencast frame after the previous ones were acknowledged. They are acknowledged when the
viewer has drawn its frame: a viewer with a slow connection gets fewer frames but never old ones, and no backlog builds
up. While too many frames are unacknowledged, the browser drops changes; frames from that time may arrive later.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import time
from typing import Any

#: Frames that a browser sends before the first is acknowledged; it drops frames beyond them.
_UNACKNOWLEDGED_FRAMES = 2
#: Seconds by which a frame's timestamp may be later than its capture: it is the time at which it is to be displayed.
_TIMESTAMP_AHEAD_S = 0.1


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame (a JPEG) and the size of the page area that it shows, in CSS pixels."""

    data: bytes
    page_width: float
    page_height: float

    @classmethod
    def from_base64(cls, text: str, page_width: float, page_height: float) -> Frame:
        """Return a frame from the base64 data of CDP."""
        return cls(b64decode(text), page_width, page_height)

    @property
    def scale(self) -> float:
        """Return the frame's pixels per CSS pixel; 1 if unknown."""
        width, _ = jpeg_size(self.data)
        return width / self.page_width if width and self.page_width > 0 else 1.0


@dataclass(slots=True)
class FrameQueue:
    """The newest unsent frame, and the browser's frames that are to be acknowledged."""

    #: Acknowledges a frame of the browser by its number.
    acknowledge: Callable[[int], None]
    newest: Frame | None = None
    #: The frame that the viewer sees.
    shown: Frame | None = None
    #: Whether the viewer has drawn the last frame that it was sent.
    acknowledged: bool = True
    #: Whether the page may look different from its last frame: there was none yet, or the browser has dropped some.
    behind: bool = True
    _open: list[int] = field(default_factory=list)
    #: When the browser has processed the last acknowledgement (Unix time).
    _acknowledged_at: float = 0.0

    def on_screencast_frame(self, event: dict[str, Any]) -> None:
        """Store a frame of the browser (`Page.screencastFrame`), replacing an unsent one."""
        size = event["metadata"]
        self.newest = Frame.from_base64(event["data"], float(size["deviceWidth"]), float(size["deviceHeight"]))
        self._open.append(int(event["sessionId"]))
        captured_by = float(size.get("timestamp", 0)) - _TIMESTAMP_AHEAD_S
        self.behind = len(self._open) >= _UNACKNOWLEDGED_FRAMES or captured_by < self._acknowledged_at

    def on_screenshot(self, picture: Frame) -> None:
        """Store a screenshot, which shows the current state."""
        self.newest, self.behind = picture, False

    def next(self) -> Frame | None:
        """Return the frame to send now; None while the viewer draws, or if there is no new frame."""
        if not self.acknowledged or self.newest is None:
            return None
        self.shown, self.newest, self.acknowledged = self.newest, None, False
        return self.shown

    def on_drawn(self) -> None:
        """Record that the viewer has drawn its frame, and acknowledge the browser's frames."""
        self.acknowledged = True
        numbers, self._open = self._open, []
        for number in numbers:
            self._acknowledged_at = inf
            self.acknowledge(number)

    def on_acknowledged(self) -> None:
        """Record that the browser has processed an acknowledgement."""
        self._acknowledged_at = time()

    def clear(self) -> None:
        """Discard unsent frames, because another page is followed."""
        self.newest, self.behind, self._open = None, True, []


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the header of a JPEG; zeros if there is none."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # start-of-frame markers
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0

"""The tab that a live view follows: the one opened or navigated last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Maximum characters of a URL and of a title that are sent to the viewer.
_MAX_URL_CHARS, _MAX_TITLE_CHARS = 2048, 300
#: URL prefixes of internal pages of the browser, which are not listed.
_INTERNAL_PREFIXES = ("devtools:", "chrome:", "chrome-untrusted:", "chrome-extension:", "view-source:")


@dataclass(slots=True)
class LiveTabs:
    """The tabs of the browser in the order in which they were opened, and the followed one."""

    #: URL and title by target id.
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Target ids in the order in which they were followed.
    _recent: list[str] = field(default_factory=list)

    @property
    def followed(self) -> str | None:
        """Return the id of the followed page; None if there is none."""
        return self._recent[-1] if self._recent else None

    @property
    def number(self) -> int:
        """Return the position of the followed tab, from 1; 0 if there is none."""
        return 1 + list(self.pages).index(self._recent[-1]) if self._recent else 0

    def add_existing(self, infos: list[Mapping[str, Any]]) -> None:
        """Add the pages that existed before; their order is unknown, and a blank page is followed last."""
        for info in sorted(infos, key=lambda info: str(info.get("url")) != "about:blank"):
            if str(info.get("targetId")) not in self.pages:
                self.on_target_info(info)

    def on_target_info(self, info: Mapping[str, Any]) -> bool:
        """Process a target event; return whether anything that is shown has changed."""
        target, url = str(info.get("targetId")), str(info.get("url", ""))[:_MAX_URL_CHARS]
        if info.get("type") != "page":
            return False
        if url.startswith(_INTERNAL_PREFIXES):
            # A keyboard shortcut can open such a page in a tab.
            return self.on_target_destroyed(target)
        page = (url, str(info.get("title", ""))[:_MAX_TITLE_CHARS])
        before = self.pages.get(target)
        self.pages[target] = page
        if before is None or before[0] != url:
            self.follow(target)
        return before != page

    def on_target_destroyed(self, target: str) -> bool:
        """Process the end of a target; return whether it was one of these tabs."""
        if self.pages.pop(target, None) is None:
            return False
        self._recent.remove(target)
        return True

    def follow(self, target: str) -> None:
        """Follow this page from now on."""
        if target in self._recent:
            self._recent.remove(target)
        self._recent.append(target)

"""The tab that a live view follows: the one opened or navigated last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Characters of an address and of a title that are shown.
_URL, _TITLE = 2048, 300
#: Pages of the browser itself, which nobody asked for.
_OWN = ("devtools://", "chrome-extension://")


@dataclass(slots=True)
class LiveTabs:
    """The browser's pages, in the order in which they were opened, and the one that is followed."""

    #: Address and title, by the id of the target.
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Ids in the order in which one was followed after the other.
    _recent: list[str] = field(default_factory=list)

    @property
    def followed(self) -> str | None:
        """Return the id of the page that is shown; None where there is none."""
        return self._recent[-1] if self._recent else None

    @property
    def number(self) -> int:
        """Return which of the tabs that is, from 1; 0 where there is none."""
        return 1 + list(self.pages).index(self._recent[-1]) if self._recent else 0

    def add_existing(self, infos: list[Mapping[str, Any]]) -> None:
        """Take in the pages that were there first: which was opened last nobody knows, but no empty one."""
        for info in sorted(infos, key=lambda info: str(info.get("url")) != "about:blank"):
            if str(info.get("targetId")) not in self.pages:
                self.on_target_info(info)

    def on_target_info(self, info: Mapping[str, Any]) -> bool:
        """Take in what the browser tells of a target; says whether anything that is shown has changed."""
        target, url = str(info.get("targetId")), str(info.get("url", ""))[:_URL]
        if info.get("type") != "page" or url.startswith(_OWN):
            return False
        page = (url, str(info.get("title", ""))[:_TITLE])
        before = self.pages.get(target)
        self.pages[target] = page
        if before is None or before[0] != url:
            self.follow(target)
        return before != page

    def on_target_destroyed(self, target: str) -> bool:
        """Return a target was closed; says whether it was one of these pages."""
        if self.pages.pop(target, None) is None:
            return False
        self._recent.remove(target)
        return True

    def follow(self, target: str) -> None:
        """Show this page from now on."""
        if target in self._recent:
            self._recent.remove(target)
        self._recent.append(target)

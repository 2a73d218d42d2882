"""The `branding` format: colours, fonts and logo from a page's computed styles, which branding.js reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page


async def branding(page: Page) -> dict[str, object]:
    """Return colours, fonts, sizes, buttons and logo as the contract's `branding`; unknown values are omitted."""
    found = await page.evaluate(_read_script())
    return dict(found) if isinstance(found, dict) else {}


@cache
def _read_script() -> str:
    return Path(__file__).with_name("branding.js").read_text("utf-8")

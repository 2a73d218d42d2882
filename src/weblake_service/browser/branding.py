"""The `branding` format: colours, fonts and logo from a page's computed styles, which branding.js reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from weblake_service.browser.actions import evaluate_isolated
from weblake_service.page_failure import PageFailure

if TYPE_CHECKING:
    from playwright.async_api import Page


async def branding(page: Page) -> dict[str, object]:
    """Return colours, fonts, sizes, buttons and logo as the contract's `branding`; unknown values are omitted.

    Raises PageFailure if the page is not HTML: what is shown of other files has the browser's own styles.
    """
    found = await evaluate_isolated(page, f"({_read_script()})()")
    if not isinstance(found, dict):
        message = f"{page.url} is no HTML page with styles that can be read. Leave `branding` out."
        raise PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)
    return found


@cache
def _read_script() -> str:
    return Path(__file__).with_name("branding.js").read_text("utf-8")

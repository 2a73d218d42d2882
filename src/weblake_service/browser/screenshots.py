"""Screenshots and PDFs of a page, as data URIs.

The data is inline and not linked, so that a stored document is complete.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Page, ViewportSize

#: Maximum pixels of a full page in each direction: the largest bitmap that Chromium renders.
_MAX_PIXELS = 16_000
#: Style sheet for `blockAds` that hides consent dialogs and empty ad slots.
HIDDEN = "{selectors} {{ display: none !important }}"


async def screenshot(page: Page, picture_options: Mapping[str, object], style: str = "") -> str:
    """Return a screenshot: PNG, or JPEG with `quality`; of the viewport, or with `full_page` of the whole page.

    Args:
        page: The page.
        picture_options: `full_page`, `quality`, `viewport`; the page's own viewport is restored afterwards.
        style: A style sheet that applies to the screenshot only.
    """
    before = page.viewport_size
    viewport = picture_options.get("viewport")
    if isinstance(viewport, Mapping):
        await page.set_viewport_size(viewport_of(viewport))
    try:
        return await _capture(page, picture_options, style)
    finally:
        if isinstance(viewport, Mapping) and before is not None:
            await page.set_viewport_size(before)


def viewport_of(picture_options: Mapping[str, Any]) -> ViewportSize:
    """Return the viewport of a request in Playwright's form."""
    return {"width": int(picture_options["width"]), "height": int(picture_options["height"])}


async def _capture(page: Page, picture_options: Mapping[str, object], style: str) -> str:
    quality = picture_options.get("quality")
    how: dict[str, Any] = {"type": "png", "scale": "css", "animations": "disabled", "timeout": 0, "style": style}
    if isinstance(quality, int):
        how |= {"type": "jpeg", "quality": quality}
    if picture_options.get("full_page"):
        how["full_page"] = True
        size, content = page.viewport_size, await _content_size(page)
        if size is not None and max(content.values()) > _MAX_PIXELS:
            height = min(content["height"], _MAX_PIXELS)
            how["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": max(size["height"], height)}
    return _data_uri(f"image/{how['type']}", await page.screenshot(**how))


async def _content_size(page: Page) -> dict[str, float]:
    """Return the width and height of the whole page; from the browser, because a script can hide them."""
    protocol = await page.context.new_cdp_session(page)
    size = (await protocol.send("Page.getLayoutMetrics"))["cssContentSize"]
    await protocol.detach()
    return {"width": size["width"], "height": size["height"]}


async def pdf(page: Page, picture_options: Mapping[str, object]) -> str:
    """Return the page as a PDF: `format` (Letter), `landscape`, `scale` (1; 0.1 to 2)."""
    scale = picture_options.get("scale", 1)
    made = await page.pdf(
        format=str(picture_options.get("format", "Letter")),
        landscape=picture_options.get("landscape") is True,
        scale=float(scale) if isinstance(scale, int | float) else 1.0,
        print_background=True,
    )
    return _data_uri("application/pdf", made)


def _data_uri(kind: str, body: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(body).decode('ascii')}"

"""Makes a page from a response, with the formats that need the response itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from weblake_service.browser.rendering_options import requested_captures
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.document import Page, page_deadline, page_of_response
from weblake_service.page.element_formats import FORMATS, requested_media
from weblake_service.page.parse_process import attributes_of, media_of
from weblake_service.page.requested_formats import format_name, number
from weblake_service.page.selectors import attribute_selectors
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse

#: Formats that are not made from a page alone.
_EXTRA_FORMATS = frozenset(["attributes", "changeTracking", "screenshot", "branding", *FORMATS])


async def make_page(
    fetched: FetchedResponse, url: str, options: Mapping[str, object], converters: ConverterPool, until: float
) -> Page:
    """Make a page from the response to a URL, until a monotonic time; raises PageFailure if it has no text."""
    timeout_s = number(options.get("timeout"), 60_000) / 1000
    page = await page_of_response(fetched, url, _without_extra_formats(options), converters, until)
    named, media = attribute_selectors(options), requested_media(options)
    source = (converters, fetched.content_type, fetched.body)
    found, failures = dict(fetched.captured), dict(fetched.failures)
    selectors = [selector for selector, _ in named]
    for names, named_selectors, read in (
        (["attributes"] if named else [], selectors, partial(attributes_of, *source, options, url)),
        (media, [], partial(media_of, *source, media, fetched.url, url)),
    ):
        try:
            async with page_deadline(url, timeout_s, until=until, selectors=named_selectors):
                found |= await read() if names else {}
        except PageFailure as failure:
            failures |= dict.fromkeys(names, failure)
    for name in (*media, *requested_captures(options)):
        if name not in found and name not in failures:
            failures[name] = _not_on_page(url, name)
    # The metadata stays the last field.
    metadata = page.document.pop("metadata", None)
    document = {**page.document, **found, "metadata": metadata}
    return replace(page, document=document, failures=failures)


def _not_on_page(url: str, name: str) -> PageFailure:
    if name in FORMATS:
        return PageFailure("SCRAPE_NO_MEDIA", f"{url} has no {name} of its own. Leave the format out.", status=404)
    actions = name == "actions"
    code = "SCRAPE_ACTIONS_NOT_SUPPORTED" if actions else "SCRAPE_UNSUPPORTED_FILE_ERROR"
    message = f"{url} is a file, and `{name}` needs a web page. Leave it out."
    return PageFailure(code, message, status=400 if actions else 500)


def _without_extra_formats(options: Mapping[str, object]) -> Mapping[str, object]:
    formats = options.get("formats")
    if not isinstance(formats, list | tuple):
        return options
    return {**options, "formats": [one for one in formats if format_name(one) not in _EXTRA_FORMATS]}

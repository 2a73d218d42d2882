"""Makes pages from new or recorded responses, and adds the formats that need the response itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from weblake_service.browser.rendering_options import requested_captures
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.audio_video import FORMATS, requested_media
from weblake_service.page.document import Page, page_deadline
from weblake_service.page.parse_process import attributes_of, media_of
from weblake_service.page.requested_formats import number
from weblake_service.page.selectors import attribute_selectors
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse, Fetcher

#: Formats that are not made from a page alone.
_EXTRA_FORMATS = frozenset(["attributes", "changeTracking", "screenshot", "branding", *FORMATS])
#: Makes a page from a URL, with the given fetcher.
Scrape = Callable[[str, Mapping[str, object], Fetcher], Awaitable[Page]]


@dataclass(frozen=True, slots=True)
class AnsweredPage:
    """A page and the response that it was made from."""

    document: dict[str, object]
    final_url: str
    links: list[str]
    credits: int
    fetched: FetchedResponse | None
    #: The browser profile after the visit; None if it is not to be saved.
    profile: bytes | None = None
    #: Why parts of the page (formats, actions) could not be made, by their names.
    failures: dict[str, PageFailure] = field(default_factory=dict)


class RecordingFetcher(Fetcher):
    """Fetches through another fetcher and keeps the response."""

    def __init__(self, inner: Fetcher) -> None:
        super().__init__(allow_private=inner.allow_private, max_body=inner.max_body)
        self._inner = inner
        self.fetched: FetchedResponse | None = None

    async def get(self, url: str, **options: object) -> FetchedResponse:
        """Return the target's response."""
        self.fetched = await self._inner.get(url, **options)  # type: ignore[arg-type]
        return self.fetched


class ReplayFetcher(Fetcher):
    """Returns one recorded response for every request."""

    def __init__(self, fetched: FetchedResponse) -> None:
        super().__init__()
        self._fetched = fetched

    async def get(self, url: str, **options: object) -> FetchedResponse:
        """Return the recorded response."""
        return self._fetched


async def scrape_with(
    url: str,
    options: Mapping[str, object],
    fetcher: RecordingFetcher | ReplayFetcher,
    scrape: Scrape,
    converters: ConverterPool,
) -> AnsweredPage:
    """Make a page from the response of a fetcher; raises PageFailure if there is none, or it has no text."""
    timeout_s = number(options.get("timeout"), 60_000) / 1000
    until = time.monotonic() + timeout_s
    page = await scrape(url, _without_extra_formats(options), fetcher)
    fetched = fetcher.fetched if isinstance(fetcher, RecordingFetcher) else None
    answer, named = fetched or await fetcher.get(url), attribute_selectors(options)
    media, source = requested_media(options), (converters, answer.content_type, answer.body)
    found, failures = dict(answer.captured), dict(answer.failures)
    selectors = [selector for selector, _ in named]
    for names, named_selectors, read in (
        (["attributes"] if named else [], selectors, partial(attributes_of, *source, options, url)),
        (media, [], partial(media_of, *source, media, answer.url, url)),
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
    return AnsweredPage(document, page.final_url, page.links, page.credits, fetched, failures=failures)


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
    kept = [one for one in formats if (one.get("type") if isinstance(one, Mapping) else one) not in _EXTRA_FORMATS]
    return {**options, "formats": kept}

"""Makes pages from new or recorded responses, and adds the formats that need the response itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.audio_video import FORMATS, requested_media
from weblake_service.page.document import Page, page_deadline
from weblake_service.page.parse_process import attributes_of, media_of
from weblake_service.page.requested_formats import number
from weblake_service.page.selectors import attribute_selectors
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

    @property
    def captured(self) -> Mapping[str, object]:
        """Return the results of a browser besides the source."""
        return self._fetched.captured

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
    """Make a page from the response of a fetcher; raises PageFailure."""
    page = await scrape(url, _without_extra_formats(options), fetcher)
    fetched = fetcher.fetched if isinstance(fetcher, RecordingFetcher) else None
    document = page.document
    if attribute_selectors(options):
        answer = fetched or await fetcher.get(url)
        async with page_deadline(url, number(options.get("timeout"), 60_000) / 1000):
            found = await attributes_of(converters, answer.content_type, answer.body, options, url)
        document = _with_fields(document, {"attributes": found})
    if media := requested_media(options):
        answer = fetched or await fetcher.get(url)
        async with page_deadline(url, number(options.get("timeout"), 60_000) / 1000):
            found = await media_of(converters, answer.content_type, answer.body, media, answer.url, url)
        document = _with_fields(document, found)
    captured = fetcher.captured if isinstance(fetcher, ReplayFetcher) else {}
    if captured:
        document = _with_fields(document, captured)
    return AnsweredPage(document, page.final_url, page.links, page.credits, fetched)


def _with_fields(document: Mapping[str, object], more: Mapping[str, object]) -> dict[str, object]:
    """Return the document with additional fields before its metadata."""
    rest = {name: value for name, value in document.items() if name != "metadata"}
    return {**rest, **more, "metadata": document.get("metadata")}


def _without_extra_formats(options: Mapping[str, object]) -> Mapping[str, object]:
    formats = options.get("formats")
    if not isinstance(formats, list | tuple):
        return options
    kept = [one for one in formats if (one.get("type") if isinstance(one, Mapping) else one) not in _EXTRA_FORMATS]
    return {**options, "formats": kept}

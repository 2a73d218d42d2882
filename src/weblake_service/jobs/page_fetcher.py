"""Fetches a page over HTTP or, if the request needs it, in a browser with the team's profile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from weblake_service.browser.browser_identity import BrowserIdentity
from weblake_service.browser.rendering_options import option_that_needs_browser
from weblake_service.jobs.browser_profiles import BrowserProfiles
from weblake_service.page.requested_formats import number
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse


class FreshPage(Protocol):
    """A fetched page, as returned by the `web` package."""

    @property
    def document(self) -> dict[str, object]:
        """Return the document in its wire form, without a scrape id."""

    @property
    def final_url(self) -> str:
        """Return the final URL after redirects."""

    @property
    def links(self) -> list[str]:
        """Return the page's links."""

    @property
    def credits(self) -> int:
        """Return the price in credits."""

    @property
    def failures(self) -> Mapping[str, PageFailure]:
        """Return why parts of the page (formats, actions) could not be made, by their names."""

    @property
    def fetched(self) -> FetchedResponse | None:
        """Return the target's response for the cache; None if it must not be stored."""


#: Fetches a page and returns it as a document; raises PageFailure.
ScrapePage = Callable[[str, Mapping[str, object]], Awaitable[FreshPage]]
#: Makes a document from an earlier response.
RemakePage = Callable[[str, Mapping[str, object], FetchedResponse], Awaitable[FreshPage]]
#: Loads a page in a browser and returns it as a document; raises PageFailure.
BrowsePage = Callable[[str, Mapping[str, object], BrowserIdentity], Awaitable[FreshPage]]


@dataclass(frozen=True, slots=True)
class PageFetcher:
    """The functions that fetch a page."""

    scrape: ScrapePage
    remake: RemakePage
    browse: BrowsePage
    profiles: BrowserProfiles

    async def fetch(self, url: str, options: Mapping[str, object], team: str) -> FreshPage:
        """Fetch or load a page for a team; its profile is saved once the page is loaded.

        Raises:
            PageFailure: The page could not be fetched, or 409 if another session holds the profile's lock all the time.
        """
        if not option_that_needs_browser(options):
            return await self.scrape(url, options)
        profile = options.get("profile")
        if not isinstance(profile, Mapping):
            return await self.browse(url, options, BrowserIdentity(team))
        name = str(profile["name"])
        if profile.get("save_changes") is False:
            return await self.browse(url, options, BrowserIdentity(team, await self.profiles.load(team, name)))
        async with self.profiles.locked(team, name, number(options.get("timeout"), 60_000) / 1000):
            page = await self.browse(
                url, options, BrowserIdentity(team, await self.profiles.load(team, name), saves_profile=True)
            )
            state = getattr(page, "profile", None)
            if isinstance(state, bytes):
                warning = await self.profiles.save(team, name, state)
                if warning:
                    said = page.document.get("warning")
                    page.document["warning"] = f"{said} {warning}" if said else warning
            return page

"""Fetches a page over HTTP or, if the request needs it, in a browser with the team's profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weblake_service.browser.context_settings import BrowserIdentity
from weblake_service.browser.rendering_options import option_that_needs_browser
from weblake_service.jobs.browser_profiles import BrowserProfiles
from weblake_service.page.document import Page
from weblake_service.page.requested_formats import number
from weblake_service.web.http_web import HttpWeb


@dataclass(frozen=True, slots=True)
class PageFetcher:
    """Fetches pages for teams."""

    web: HttpWeb
    profiles: BrowserProfiles

    async def fetch(self, url: str, options: Mapping[str, object], team: str) -> Page:
        """Fetch or load a page for a team; its profile is saved once the page is loaded.

        Raises:
            PageFailure: The page could not be fetched, or 409 if another session holds the profile's lock all the time.
        """
        if not option_that_needs_browser(options):
            return await self.web.scrape(url, options)
        profile = options.get("profile")
        if not isinstance(profile, Mapping):
            return await self.web.browse(url, options, BrowserIdentity())
        name = str(profile["name"])
        if profile.get("save_changes") is False:
            return await self.web.browse(url, options, BrowserIdentity(await self.profiles.load(team, name)))
        async with self.profiles.locked(team, name, number(options.get("timeout"), 60_000) / 1000):
            page = await self.web.browse(
                url, options, BrowserIdentity(await self.profiles.load(team, name), saves_profile=True)
            )
            if page.profile is not None:
                warning = await self.profiles.save(team, name, page.profile)
                if warning:
                    said = page.document.get("warning")
                    page.document["warning"] = f"{said} {warning}" if said else warning
            return page

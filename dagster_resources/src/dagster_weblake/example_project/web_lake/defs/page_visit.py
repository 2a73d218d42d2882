"""An asset that lands a page and then runs code in the browser in which the page is still open.

It needs a service that runs its users' code, such as `weblake serve --allow-code-execution` with Chromium and
`weblake[browser]`. Other services answer 503 and name what is missing; the page has landed by then.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

import dagster as dg

from dagster_weblake import ScrapeRequest, WeblakeMetadataSet, WeblakeResource, build_weblake_specs
from weblake.errors import WeblakeError

PAGE = ScrapeRequest(
    url=os.environ.get("EXAMPLE_SITE", "https://example.org/"), options={"formats": ["markdown"]}, max_credits=10
)
#: JavaScript for node, in which `page` is Playwright's page. Its return value is the result.
CODE = "return await page.title()"


# No retry policy: a browser session that has ended cannot be resumed. Another try needs another scrape, by a new run.
@dg.multi_asset(
    specs=build_weblake_specs(
        dg.AssetSpec(
            "page_visit",
            group_name="browser",
            description="A page, and what code has found in it; the metadata tell the title and the browser's cost.",
        ),
        PAGE,
    ),
    pool="weblake",
)
def page_visit(context: dg.AssetExecutionContext, weblake: WeblakeResource) -> Iterator[dg.MaterializeResult[None]]:
    """Land the page, run the code in its browser, and stop the browser."""
    for result in weblake.run(context, PAGE):
        scrape_id = str(WeblakeMetadataSet.extract(result.metadata or {}).job_id)
        # The browser is stopped also after an error, because it is billed by the minute until then.
        try:
            reply = weblake.client.interact(scrape_id, code=CODE, timeout=60)
        except BaseException:
            with suppress(WeblakeError):  # the error of the call above is the one to report
                weblake.client.stop_interact(scrape_id)
            raise
        closed = weblake.client.stop_interact(scrape_id)
        if reply.exit_code or reply.error:
            raise dg.Failure(f"The code has failed: {reply.error or reply.stderr}", allow_retries=False)
        context.add_asset_metadata(
            {
                "title": dg.MetadataValue.text(reply.result or ""),
                "browser_seconds": round((closed.session_duration_ms or 0) / 1000, 3),
                "browser_credits": float(closed.credits_billed or 0),
            }
        )
        yield result

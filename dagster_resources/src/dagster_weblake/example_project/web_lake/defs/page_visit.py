"""A page lands, and then code runs in the browser that still holds it: scrape, then interact.

It takes a service that runs its users' code, such as `weblake serve --allow-code-execution` with Chromium and
`weblake[browser]`. One without answers 503 and says what it lacks; the page has landed by then.
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
#: JavaScript for node, in which `page` is Playwright's page. What it returns is the result.
CODE = "return await page.title()"


# No retry policy: a browser that has ended does not come back. Another try takes another scrape, which a new run makes.
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
    """Lands it, runs the code in its browser, and ends that."""
    for result in weblake.run(context, PAGE):
        scrape_id = str(WeblakeMetadataSet.extract(result.metadata or {}).job_id)
        # However it goes, the browser is ended: it is paid by the minute until then.
        try:
            reply = weblake.client.interact(scrape_id, code=CODE, timeout=60)
        except BaseException:
            with suppress(WeblakeError):  # that of the call above is what has to be told
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

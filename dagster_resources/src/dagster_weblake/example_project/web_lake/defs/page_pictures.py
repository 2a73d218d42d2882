"""An asset of pages with screenshots, in the lake, with previews of the screenshots on Dagster's pages.

It needs a service with a browser: `weblake serve` has one if Chromium and `weblake[browser]` are installed. Other
services answer 503 and say so.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

import weblake as core
from dagster_weblake import (
    DEFAULT_RETRIES,
    BatchScrapeRequest,
    WeblakeMetadataSet,
    WeblakeResource,
    build_weblake_specs,
)

PICTURES = BatchScrapeRequest(
    urls=[os.environ.get("EXAMPLE_SITE", "https://example.org/")],
    options={
        # The viewport as a PNG; `"full_page": True` takes the whole page.
        "formats": ["markdown", {"type": "screenshot", "viewport": {"width": 1280, "height": 800}}],
        # The small JPEG of the same visit is for Dagster, which keeps metadata in its own database, with every
        # materialization and without expiry: a full picture would add a megabyte each time. Dagster shows a picture
        # behind [Show Markdown]; only Markdown below 1,000 characters is shown directly, and no picture is that small.
        "actions": [{"type": "screenshot", "quality": 50, "viewport": {"width": 640, "height": 400}}],
    },
    max_credits=10,
)
#: Pictures that Dagster gets, and characters of one: larger pictures are only in the lake.
SHOWN, LARGEST = 3, 80_000


@dg.multi_asset(
    specs=build_weblake_specs(
        dg.AssetSpec(
            "page_pictures",
            group_name="browser",
            description="Pages with their pictures; `pictures` in the metadata shows the first ones.",
        ),
        PICTURES,
    ),
    retry_policy=DEFAULT_RETRIES,
    pool="weblake",
)
def page_pictures(context: dg.AssetExecutionContext, weblake: WeblakeResource) -> Iterator[dg.MaterializeResult[None]]:
    """Land the pages, and add previews of their pictures to the metadata."""
    for result in weblake.run(context, PICTURES):
        landed = WeblakeMetadataSet.extract(result.metadata or {})
        # Only `actions` is read, so that the full pictures are not.
        load = core.read(str(weblake.root), columns=["actions"], loads=[str(landed.load_id)])
        small = [uri for batch in load.to_batches(batch_size=8) for row in batch.to_pylist() if (uri := picture(row))]
        shown = "\n\n".join(f"![Page {number}]({uri})" for number, uri in enumerate(small[:SHOWN], 1))
        context.add_asset_metadata({"pictures": dg.MetadataValue.md(shown or "None that is small enough.")})
        yield result


def picture(row: Mapping[str, Any]) -> str:
    """Return the data URI of a row's small picture; empty if there is none, or if it is too large."""
    (uri, *_) = (row["actions"] or {}).get("screenshots") or [""]
    return uri if uri.startswith("data:image/") and len(uri) <= LARGEST else ""

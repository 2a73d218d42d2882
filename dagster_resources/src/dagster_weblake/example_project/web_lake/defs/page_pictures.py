"""Pages and pictures of them, in the lake, and a glance at the pictures on Dagster's pages.

It takes a service with a browser: `weblake serve` has one where Chromium and `weblake[browser]` are installed. One
without answers 503 and says so.
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
        # What is seen without scrolling, as a PNG; `"full_page": True` takes all of it.
        "formats": ["markdown", {"type": "screenshot", "viewport": {"width": 1280, "height": 800}}],
        # The same visit's small JPEG is for Dagster, which keeps metadata in its own database, with every
        # materialization and for good: a full picture in it would be a megabyte each time. Dagster shows a picture
        # behind [Show Markdown]; only Markdown below 1,000 characters stands open, and no picture is as small.
        "actions": [{"type": "screenshot", "quality": 50, "viewport": {"width": 640, "height": 400}}],
    },
    max_credits=10,
)
#: Pictures that Dagster is given, and characters of one: what is larger is in the lake all the same.
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
    """Lands them, and adds what can be seen of them."""
    for result in weblake.run(context, PICTURES):
        landed = WeblakeMetadataSet.extract(result.metadata or {})
        # `actions` alone: the full pictures are not read for this.
        load = core.read(str(weblake.root), columns=["actions"], loads=[str(landed.load_id)])
        small = [uri for batch in load.to_batches(batch_size=8) for row in batch.to_pylist() if (uri := picture(row))]
        shown = "\n\n".join(f"![Page {number}]({uri})" for number, uri in enumerate(small[:SHOWN], 1))
        context.add_asset_metadata({"pictures": dg.MetadataValue.md(shown or "None that is small enough.")})
        yield result


def picture(row: Mapping[str, Any]) -> str:
    """The data URI of a row's small picture; empty where there is none, or one that is not small."""
    (uri, *_) = (row["actions"] or {}).get("screenshots") or [""]
    return uri if uri.startswith("data:image/") and len(uri) <= LARGEST else ""

"""Tests that the overridden methods of a component's subclass are used, with every way to wait."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
from component_files import assets_of, spec_of
from gated_site import GatedSite
from in_process import Bench
from sensor_bench import Ticker

from dagster_weblake import (
    BatchScrapeRequest,
    WeblakeBatchScrapeComponent,
    WeblakeCrawlComponent,
    WeblakeResource,
)
from dagster_weblake.requests import Request


class Ours(WeblakeBatchScrapeComponent):
    """A subclass with both overrides, as a project has it."""

    def get_asset_spec(self, request: Request) -> dg.AssetSpec:
        assert isinstance(request, BatchScrapeRequest)
        spec = super().get_asset_spec(request)
        return spec.replace_attributes(key=["ours", "pages"], owners=["team:ours"]).merge_attributes(
            tags={"urls": str(len(request.urls))}  # type: ignore[arg-type]
        )

    def execute(
        self, context: dg.AssetExecutionContext, weblake: WeblakeResource, request: Request
    ) -> Iterator[dg.MaterializeResult[None]]:
        assert isinstance(request, BatchScrapeRequest)
        for result in super().execute(context, weblake, request):
            told = f"{context.asset_key.to_user_string()}: {len(request.urls)}"  # type: ignore[arg-type]
            yield result._replace(metadata={**(result.metadata or {}), "ours": told})


def test_overrides_are_used_when_the_step_waits(bench: Bench, site: GatedSite) -> None:
    component = Ours(asset=dg.AssetSpec("pages"), urls=site.pages(2))
    defs = component.build_defs(dg.ComponentTree.for_test().load_context)
    spec = spec_of(defs, "ours/pages")
    assert (list(spec.owners), spec.tags["urls"], spec.kinds) == (["team:ours"], "2", {"weblake", "parquet"})
    run = bench.run(assets_of(defs))
    assert run.metadata("ours/pages")["ours"] == "ours/pages: 2"
    assert (bench.rows(), bench.started) == (2, 1)


def test_overrides_are_used_by_both_steps_when_a_sensor_waits(bench: Bench, site: GatedSite) -> None:
    component = Ours(asset=dg.AssetSpec("pages"), urls=site.held(2), wait="sensor", pool="weblake")
    defs = component.build_defs(dg.ComponentTree.for_test().load_context)
    assets = assets_of(defs)
    assert list(spec_of(defs, "ours/pages_job").owners) == ["team:ours"]
    started = bench.run(assets, "ours/pages_job")
    assert started.metadata("ours/pages_job")["ours"] == "ours/pages_job: 2"
    assert (bench.rows(), bench.started) == (0, 1)
    (sensor,) = defs.sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    ticker = Ticker(bench, sensor, assets)
    assert ticker.tick().requests == []
    site.release()
    tick = ticker.until(lambda tick: bool(tick.requests))
    result = ticker.run(tick.requests[0])
    assert result.success
    (event,) = result.get_asset_materialization_events()
    found = event.step_materialization_data.materialization
    assert found.asset_key.to_user_string() == "ours/pages"
    assert found.metadata["ours"].value == "ours/pages: 2"
    assert (bench.rows(), bench.started) == (2, 1)


class Changed(WeblakeCrawlComponent):
    """A subclass that asks for something else, and uses the client itself."""

    def execute(
        self, context: dg.AssetExecutionContext, weblake: WeblakeResource, request: Request
    ) -> Iterator[dg.MaterializeResult[None]]:
        if context.run.tags.get("ours/wrong"):
            weblake.client.get_crawl("00000000-0000-4000-8000-000000000000")
        yield from super().execute(context, weblake, request)


def test_errors_of_the_client_in_a_subclass_are_handled_like_others(bench: Bench, site: GatedSite) -> None:
    component = Changed(asset=dg.AssetSpec("docs"), url=f"{site.url}/", options={"limit": 1})
    assets = assets_of(component.build_defs(dg.ComponentTree.for_test().load_context))
    run = bench.run(assets, tags={"ours/wrong": "yes"})
    assert not run.success
    assert "weblake/error" in run.failure().metadata
    assert run.retries() == []
    assert bench.run(assets).success
    assert bench.rows() == 1

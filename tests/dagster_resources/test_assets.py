"""Tests of the builders of assets: their arguments and specs, and functions that return a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from gated_site import GatedSite
from in_process import Bench

from dagster_weblake import (
    DEFAULT_RETRIES,
    BatchScrapeRequest,
    CrawlRequest,
    ScrapeRequest,
    WeblakeResource,
    build_table_asset,
    build_weblake_assets,
    build_weblake_specs,
    weblake_assets,
)

REQUEST = BatchScrapeRequest(urls=["https://docs.example.com/a"])
CATALOG: dict[str, Any] = {
    "description": "What the shop sells.",
    "group_name": "web",
    "owners": ["team:data"],
    "tags": {"site": "shop"},
    "kinds": {"duckdb"},
    "automation_condition": dg.AutomationCondition.eager(),
    "freshness_policy": dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=36)),
    "metadata": {"cost center": "web"},
}
Make = Callable[..., Sequence[dg.AssetsDefinition]]
SOURCES = """\
import dagster as dg
from dagster_weblake import *

REQUEST = CrawlRequest(url="https://docs.example.com/")

built = build_weblake_assets(  # built
    "built", REQUEST
)
waiting = build_weblake_assets("waiting", REQUEST, wait="sensor")  # waiting

@weblake_assets(  # decorated
    wait="step",
)
def decorated(built):
    return REQUEST

def factory(name):
    return build_table_asset(name, deps=[built])  # table

made = dg.with_source_code_references([*built, *waiting, *decorated, *factory("table")])
"""
A, B = "https://a.example/", "https://b.example/"
URL = "https://docs.example.com/"


def by_factory(asset: Any = "pages", **options: Any) -> Sequence[dg.AssetsDefinition]:
    return build_weblake_assets(asset, REQUEST, **options)


def by_decorator(asset: Any = None, **options: Any) -> Sequence[dg.AssetsDefinition]:
    @weblake_assets(asset, **options)
    def pages() -> BatchScrapeRequest:
        return REQUEST

    return pages


def by_table(asset: Any = "pages", **options: Any) -> Sequence[dg.AssetsDefinition]:
    return build_table_asset(asset, table_format="delta", **options)


FAMILY = pytest.mark.parametrize("make", [by_factory, by_decorator, by_table])


def specs(assets: Sequence[dg.AssetsDefinition]) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for each in assets for spec in each.specs}


def test_references_to_source_code_are_of_the_users_code(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(SOURCES)
    names: dict[str, Any] = {}
    exec(compile(SOURCES, str(file), "exec"), names)
    found = {}
    for name, spec in specs(names["made"]).items():
        (reference,) = spec.metadata["dagster/code_references"].code_references
        assert reference.file_path == str(file)
        found[name] = SOURCES.splitlines()[reference.line_number - 1].partition("# ")[2]
    assert found == {**{name: name for name in ("built", "decorated", "table", "waiting")}, "waiting_job": "waiting"}


@pytest.mark.parametrize(
    ("partitions", "more", "refused"),
    [
        (({"day": "{partition_key}"}, None), {}, "day; load_date"),
        (({"day": "x", "site": "y"}, {"site": "y", "day": "x"}), {}, "day, site; site, day"),
        ((None, {"source": "web"}), {"to": "s3://lake/web", "wait": "sensor"}, "in s3://lake/web with different"),
        (({"day": "{partition_key}"}, {"day": "monday"}), {}, None),
    ],
)
def test_path_keys_of_one_root_are_compared_when_definitions_load(
    partitions: tuple[dict[str, str] | None, ...], more: dict[str, Any], refused: str | None
) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    given = [CrawlRequest(url=URL, partition=partition) for partition in partitions]
    made = [
        build_weblake_assets(name, each, partitions_def=days, **more) for name, each in zip("ab", given, strict=True)
    ]
    assets = [asset for each in (*made, by_table("table")) for asset in each]
    defs = dg.Definitions(assets=assets, resources={"weblake": WeblakeResource(root="s3://lake/other")})
    if refused is None:
        dg.Definitions.validate_loadable(defs)
        return
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"assets 'a' and 'b' land in") as raised:
        dg.Definitions.validate_loadable(defs)
    assert refused in str(raised.value)


@FAMILY
def test_an_unknown_argument_is_refused(make: Make) -> None:
    with pytest.raises(TypeError, match=r"no argument 'partition_def'\. Did you mean 'partitions_def'"):
        make(partition_def=dg.StaticPartitionsDefinition(["a"]))


@FAMILY
def test_all_builders_have_the_same_arguments_checks_and_defaults(make: Make) -> None:
    parts = dg.StaticPartitionsDefinition(["a"])
    hook = dg.HookDefinition(name="hook", hook_fn=lambda *_: None)
    step = {"pool": "web", "op_tags": {"a": "b"}, "hooks": {hook}, "resource_key": "other", "to": "s3://lake/web"}
    (made,) = make(partitions_def=parts, backfill_policy=dg.BackfillPolicy.single_run(), **step)
    assert isinstance(made, dg.AssetsDefinition)
    assert (made.op.pool, made.op.tags["a"], made.hook_defs) == ("web", "b", {hook})
    assert (made.partitions_def, made.required_resource_keys) == (parts, {"other", "io_manager"})
    assert made.backfill_policy == dg.BackfillPolicy.single_run()
    (spec,) = specs(make(dg.AssetSpec("pages"), to="s3://lake/web")).values()
    assert {"weblake", "s3"} < spec.kinds
    assert spec.description
    described = specs(make(**CATALOG))["pages"]
    assert (described.description, described.group_name) == (CATALOG["description"], "web")
    assert (described.owners, described.tags["site"]) == (["team:data"], "shop")
    assert described.kinds == {"weblake", "delta" if make is by_table else "parquet", "duckdb"}
    assert described.freshness_policy == CATALOG["freshness_policy"]
    (plain,) = make()
    assert (plain.op.retry_policy, plain.op.name, len(plain.op.pool or "")) == (DEFAULT_RETRIES, "pages", 0)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'pages': group_name is given in its AssetSpec and"):
        make(dg.AssetSpec("pages", group_name="a"), group_name="b")


@pytest.mark.parametrize("given", ["detla", ""])
def test_a_table_has_a_known_format(given: Any) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=rf"'t': table_format is '{given}'. Give 'delta' or"):
        build_table_asset("t", table_format=given)


@FAMILY
def test_an_asset_is_a_definition_of_dagster_and_a_sequence_of_itself(make: Make) -> None:
    made = make()

    @dg.asset(deps=[made])
    def one() -> None: ...

    @dg.asset(deps=made)
    def other() -> None: ...

    for each in (one, other):
        assert [dep.asset_key.to_user_string() for spec in each.specs for dep in spec.deps] == ["pages"]
    assert (list(made), len(made), made[0], made[-1]) == ([made], 1, made, made)
    assert [*made, one] == made + [one] == [made, one]  # type: ignore[operator] # noqa: RUF005
    assert isinstance(dg.AssetSelection.assets(made), dg.AssetSelection)  # type: ignore[arg-type]
    for assets in (made, [made], [*made]):
        dg.Definitions.validate_loadable(
            dg.Definitions(assets=assets, resources={"weblake": WeblakeResource(root="memory://")})  # type: ignore[arg-type]
        )


@FAMILY
def test_deps_accept_all_forms_of_dagster_and_the_list_of_an_asset(make: Make) -> None:
    @dg.asset
    def up() -> None: ...

    waiting = build_weblake_assets(["web", "waiting"], REQUEST, wait="sensor")
    deps = [up, "text", dg.AssetKey("key"), dg.AssetSpec("spec"), dg.AssetDep("dep"), waiting]
    found = {dep.asset_key.to_user_string() for dep in specs(make(deps=deps))["pages"].deps}
    assert found == {"up", "text", "key", "spec", "dep", "web/waiting"}


def test_the_decorator_without_parentheses_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"@weblake_assets\(\) with parentheses"):
        weblake_assets(lambda: REQUEST)  # type: ignore[arg-type]


class Where(dg.Config):
    """Where the pages are."""

    base: str


def test_a_decorated_function_builds_the_request_from_its_inputs(bench: Bench, site: GatedSite) -> None:
    @dg.asset
    def numbers() -> list[int]:
        return [0, 2]

    @weblake_assets(dg.AssetSpec("chosen", group_name="web"), ins={"ids": dg.AssetIn("numbers")}, partitions_def=None)
    def chosen(
        context: dg.AssetExecutionContext, ids: list[int], weblake: WeblakeResource, config: Where
    ) -> BatchScrapeRequest:
        """Pages that were chosen."""
        assert weblake.client.credit_usage().data.remaining_credits
        assert context.run.run_id
        return BatchScrapeRequest(urls=[f"{config.base}/page/{n}" for n in ids])

    spec = chosen[0].specs_by_key[dg.AssetKey("chosen")]
    assert (spec.description, spec.group_name) == ("Pages that were chosen.", "web")
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == ["numbers"]
    config = dg.RunConfig(ops={"chosen": Where(base=site.url)})
    assert bench.run([numbers, *chosen], run_config=config).success
    assert bench.rows() == 2


def test_requests_without_a_job_cannot_wait_with_a_sensor() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="Asset 'page': wait='sensor' is for jobs"):
        build_weblake_assets("page", ScrapeRequest(url="https://a.example/"), wait="sensor")


def test_a_url_in_the_catalog_has_no_user_info_and_no_query() -> None:
    described = [
        build_weblake_specs("docs", CrawlRequest(url=url))[0].description
        for url in (
            "https://me:test-secret@a.example/x@y?token=test-secret#test-secret",
            "https://a.example/#test-secret",
            "https://me:test-secret@a.example//x@y",
        )
    ]
    assert described == [f"Pages of a crawl of {address}." for address in (f"{A}x@y", A, f"{A}/x@y")]
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="url has the scheme 'me'") as caught:
        build_weblake_specs("docs", CrawlRequest(url="me:test-secret@a.example"))
    assert "test-secret" not in str(caught.value)


def test_every_attribute_of_a_spec_is_kept() -> None:
    spec = dg.AssetSpec(
        ["web", "eu", "docs"],
        deps=["list"],
        description="Mine.",
        metadata={"mine": 1, "dagster/table_name": "mine.docs"},
        skippable=True,
        group_name="web",
        code_version="7",
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=1)),
        automation_condition=dg.AutomationCondition.eager(),
        owners=["me@example.com", "team:web"],
        tags={"tier": "1"},
        kinds={"python"},
    )
    (data,) = build_weblake_specs(spec, CrawlRequest(url=A))
    for name in ("key", "deps", "description", "skippable", "group_name", "code_version", "owners"):
        assert getattr(data, name) == getattr(spec, name), name
    assert (data.freshness_policy, data.automation_condition) == (spec.freshness_policy, spec.automation_condition)
    assert (data.metadata["mine"], data.metadata["dagster/table_name"]) == (1, "mine.docs")
    assert data.tags["tier"] == "1"
    assert data.kinds == {"python", "weblake", "parquet"}
    job, data = build_weblake_specs(spec, CrawlRequest(url=A), wait="sensor")
    assert (job.automation_condition, data.automation_condition) == (spec.automation_condition, None)
    assert job.key == dg.AssetKey(["web", "eu", "docs_job"])
    assert (job.deps, [dep.asset_key for dep in data.deps]) == (list(spec.deps), [job.key])
    assert (job.owners, job.group_name, job.tags["tier"]) == (spec.owners, "web", "1")


def test_a_root_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="`to` has a user name or password") as caught:
        build_weblake_assets("docs", CrawlRequest(url=URL), to="s3://test-user:test-secret@lake/web")
    assert "test-secret" not in str(caught.value)
    assert build_weblake_assets("docs", CrawlRequest(url=URL), to="abfs://container@account.dfs.example.com/web")

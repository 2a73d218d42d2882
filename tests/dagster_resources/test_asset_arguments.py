"""Tests of the keyword arguments of factory and decorator: Dagster's own are effective, unknown ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from dagster_weblake import BatchScrapeRequest, build_weblake_assets, build_weblake_specs, weblake_assets

REQUEST = BatchScrapeRequest(urls=["https://docs.example.com/a"])
CATALOG: dict[str, Any] = {
    "description": "What the shop sells.",
    "group_name": "web",
    "owners": ["team:data"],
    "tags": {"site": "shop"},
    "kinds": {"duckdb"},
    "automation_condition": dg.AutomationCondition.eager(),
}
Make = Callable[..., list[dg.AssetsDefinition]]


def by_factory(**options: Any) -> list[dg.AssetsDefinition]:
    return build_weblake_assets("pages", REQUEST, **options)


def by_decorator(**options: Any) -> list[dg.AssetsDefinition]:
    @weblake_assets(**options)
    def pages() -> BatchScrapeRequest:
        return REQUEST

    return pages


BOTH = pytest.mark.parametrize("make", [by_factory, by_decorator])


def specs(assets: list[dg.AssetsDefinition]) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for each in assets for spec in each.specs}


@BOTH
@pytest.mark.parametrize(
    ("name", "meant"),
    [("partition_def", "partitions_def"), ("retry_polcy", "retry_policy"), ("groupname", "group_name")],
)
def test_an_unknown_argument_is_refused_with_the_nearest_name(make: Make, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'. Did you mean '{meant}'"):
        make(**{name: None})


@BOTH
def test_an_argument_with_no_similar_name_is_refused_with_all_names(make: Make) -> None:
    with pytest.raises(TypeError, match=r"'zzz'. It takes .*group_name.*resource_key"):
        make(zzz=1)


@BOTH
def test_the_arguments_of_a_dagster_asset_describe_the_asset(make: Make) -> None:
    spec = specs(make(**CATALOG))["pages"]
    assert spec.description == CATALOG["description"]
    assert (spec.group_name, spec.owners, spec.tags["site"]) == ("web", ["team:data"], "shop")
    assert spec.kinds == {"weblake", "parquet", "duckdb"}
    assert spec.automation_condition == CATALOG["automation_condition"]


@BOTH
def test_with_a_sensor_the_starting_asset_has_the_condition_and_both_the_group(make: Make) -> None:
    found = specs(make(wait="sensor", **CATALOG))
    assert {spec.group_name for spec in found.values()} == {"web"}
    assert found["pages_job"].automation_condition == CATALOG["automation_condition"]
    assert found["pages"].automation_condition is None


def test_specs_take_the_same_arguments() -> None:
    (spec,) = build_weblake_specs("pages", REQUEST, group_name="web", kinds={"duckdb"})
    assert (spec.group_name, spec.kinds) == ("web", {"weblake", "parquet", "duckdb"})
    with pytest.raises(TypeError, match="Did you mean 'owners'"):
        build_weblake_specs("pages", owner=["team:data"])  # type: ignore[call-arg]


def test_attributes_of_the_spec_are_kept_and_not_repeated() -> None:
    given = dg.AssetSpec("pages", group_name="web", tags={"a": "1"}, kinds={"duckdb"}, deps=["up"])
    (spec,) = build_weblake_specs(given, REQUEST, tags={"b": "2"}, kinds={"snowflake"}, deps=["other"])
    assert {name: spec.tags.get(name) for name in "ab"} == {"a": "1", "b": "2"}
    assert spec.kinds == {"weblake", "parquet", "duckdb", "snowflake"}
    assert sorted(dep.asset_key.to_user_string() for dep in spec.deps) == ["other", "up"]
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'pages': group_name is given in its AssetSpec and"):
        build_weblake_assets(given, REQUEST, group_name="other")


@BOTH
def test_deps_accept_all_forms_of_dagster_and_the_list_of_an_asset(make: Make) -> None:
    @dg.asset
    def up() -> None: ...

    waiting = build_weblake_assets(["web", "waiting"], REQUEST, wait="sensor")
    deps = [up, "text", dg.AssetKey("key"), dg.AssetSpec("spec"), dg.AssetDep("dep"), waiting]
    found = {dep.asset_key.to_user_string() for dep in specs(make(deps=deps))["pages"].deps}
    assert found == {"up", "text", "key", "spec", "dep", "web/waiting"}


def test_a_dagster_asset_depends_on_the_asset_by_its_key_or_its_list() -> None:
    pages = by_factory()

    @dg.asset(deps=["pages"])
    def by_key() -> None: ...

    @dg.asset(deps=pages)
    def by_list() -> None: ...

    for each in (by_key, by_list):
        assert [dep.asset_key.to_user_string() for spec in each.specs for dep in spec.deps] == ["pages"]


def test_an_asset_has_a_description_by_default() -> None:
    assert specs(by_factory())["pages"].description == "Pages of a list of URLs, scraped as one job."
    assert specs(by_decorator())["pages"].description == "Pages of the request that `pages` returns."

    @weblake_assets()
    def told() -> BatchScrapeRequest:
        """The catalog's pages."""
        return REQUEST

    assert specs(told)["told"].description == "The catalog's pages."


def test_the_decorator_without_parentheses_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"@weblake_assets\(\) with parentheses"):
        weblake_assets(lambda: REQUEST)  # type: ignore[arg-type]

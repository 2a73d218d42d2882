"""Tests of the keyword arguments of factory and decorator: Dagster's own are effective, unknown ones are refused."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import dagster as dg
import pytest

from dagster_weblake import (
    DEFAULT_RETRIES,
    BatchScrapeRequest,
    WeblakeCrawlComponent,
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


def by_factory(asset: Any = "pages", **options: Any) -> Sequence[dg.AssetsDefinition]:
    return build_weblake_assets(asset, REQUEST, **options)


def by_decorator(asset: Any = None, **options: Any) -> Sequence[dg.AssetsDefinition]:
    @weblake_assets(asset, **options)
    def pages() -> BatchScrapeRequest:
        return REQUEST

    return pages


def by_table(asset: Any = "pages", **options: Any) -> Sequence[dg.AssetsDefinition]:
    return build_table_asset(asset, table_format="delta", **options)


BOTH = pytest.mark.parametrize("make", [by_factory, by_decorator])
FAMILY = pytest.mark.parametrize("make", [by_factory, by_decorator, by_table])


def specs(assets: Sequence[dg.AssetsDefinition]) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for each in assets for spec in each.specs}


@FAMILY
@pytest.mark.parametrize(
    ("name", "meant"),
    [("partition_def", "partitions_def"), ("retry_polcy", "retry_policy"), ("groupname", "group_name")],
)
def test_an_unknown_argument_is_refused_with_the_nearest_name(make: Make, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'. Did you mean '{meant}'"):
        make(**{name: None})


@FAMILY
def test_an_argument_with_no_similar_name_is_refused_with_all_names(make: Make) -> None:
    for name in ("zzz", "policy", "timeout"):
        with pytest.raises(TypeError, match=rf"'{name}'. It takes .*group_name.*resource_key"):
            make(**{name: 1})


@FAMILY
@pytest.mark.parametrize("name", ["code_version", "skippable", "key"])
def test_an_attribute_of_a_spec_that_is_no_argument_is_given_in_a_spec(make: Make, name: str) -> None:
    with pytest.raises(TypeError, match=rf"'{name}'. Give a dg.AssetSpec with {name}"):
        make(**{name: None})


@FAMILY
def test_the_arguments_of_a_dagster_asset_describe_the_asset(make: Make) -> None:
    spec = specs(make(**CATALOG))["pages"]
    assert spec.description == CATALOG["description"]
    assert (spec.group_name, spec.owners, spec.tags["site"]) == ("web", ["team:data"], "shop")
    assert spec.kinds == {"weblake", "delta" if make is by_table else "parquet", "duckdb"}
    assert spec.automation_condition == CATALOG["automation_condition"]
    assert spec.freshness_policy == CATALOG["freshness_policy"]
    assert spec.metadata["cost center"] == "web"


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
    (plain,) = make()
    assert (plain.op.retry_policy, plain.op.name, len(plain.op.pool or "")) == (DEFAULT_RETRIES, "pages", 0)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'pages': `to` has a user name"):
        make(to="s3://user:secret@lake/web")
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="'pages': group_name is given in its AssetSpec and"):
        make(dg.AssetSpec("pages", group_name="a"), group_name="b")


@pytest.mark.parametrize("given", ["detla", "Delta", "", "parquet"])
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
    assert [one] + made == [one, made]  # type: ignore[operator] # noqa: RUF005
    assert isinstance(dg.AssetSelection.assets(made), dg.AssetSelection)  # type: ignore[arg-type]
    for assets in (made, [made], [*made]):
        dg.Definitions.validate_loadable(
            dg.Definitions(assets=assets, resources={"weblake": WeblakeResource(root="memory://")})  # type: ignore[arg-type]
        )


SOURCES = """\
    import dagster as dg
    from dagster_weblake import *

    REQUEST = CrawlRequest(url="https://docs.example.com/")

    @dg.asset
    def earlier(): ...

    built = build_weblake_assets(  # built
        "built", REQUEST
    )
    waiting = build_weblake_assets("waiting", REQUEST, wait="sensor")  # waiting

    @weblake_assets(  # decorated
        wait="step",
    )
    def decorated(earlier):
        return REQUEST

    def factory(name):
        return build_table_asset(name, deps=[built])  # table

    table = factory("table")
    made = dg.with_source_code_references([earlier, *built, *waiting, *decorated, *table])
"""


def test_references_to_source_code_are_of_the_users_code(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(textwrap.dedent(SOURCES))
    lines = file.read_text().splitlines()
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    found = {}
    for name, spec in specs(names["made"]).items():
        (reference,) = spec.metadata["dagster/code_references"].code_references
        assert reference.file_path == str(file)
        found[name] = lines[reference.line_number - 1].partition("# ")[2]
    assert found == {
        **{"earlier": "", "built": "built", "decorated": "decorated", "table": "table"},
        **{"waiting": "waiting", "waiting_job": "waiting"},
    }
    op = names["decorated"].op.compute_fn.decorated_fn
    assert list(inspect.signature(op).parameters) == ["context", "earlier", "weblake"]
    assert get_type_hints(op)["weblake"] is WeblakeResource


def test_a_component_does_not_refer_to_installed_packages() -> None:
    component = WeblakeCrawlComponent(asset=dg.AssetSpec("docs"), url="https://docs.example.com/")
    (made,) = component.build_defs(dg.ComponentTree.for_test().load_context).assets or ()
    (asset,) = dg.with_source_code_references([made])  # type: ignore[list-item]
    (reference,) = asset.specs_by_key[dg.AssetKey("docs")].metadata["dagster/code_references"].code_references  # type: ignore[union-attr]
    assert reference.file_path == __file__


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


@FAMILY
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

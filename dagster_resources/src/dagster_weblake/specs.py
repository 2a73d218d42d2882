"""Asset specs of landed data, and the keyword arguments that the factory, the decorator and the specs share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.requests import (
    ActivityRequest,
    BatchScrapeRequest,
    CrawlRequest,
    JobRequest,
    ParseRequest,
    Request,
    ScrapeRequest,
    UsageRequest,
    check_request,
    code_version_of,
    invalid,
)
from dagster_weblake.secret_config import has_user_info
from weblake import orchestration
from weblake.errors import InvalidOption

#: How an asset waits for its job: in the step that started it, or by a sensor, without a waiting process.
Wait = Literal["step", "sensor"]
#: The name of an asset: a key in any of Dagster's forms, or a spec with more.
Named = dg.AssetSpec | dg.AssetKey | str | Sequence[str]

#: The ending of the key of an asset that starts jobs for another one.
JOB_SUFFIX = "_job"
_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}


class SpecOptions(TypedDict, total=False):
    """The catalog options of an asset, with the meanings that they have in `dg.asset`.

    With `wait="sensor"` the deps and the automation condition belong to `<asset>_job`, which starts the job.
    """

    description: str | None
    deps: Iterable[Any] | None
    """Upstream assets that are not read: in any form that Dagster takes, or the list that `build_weblake_assets`
    returns for one asset."""
    group_name: str | None
    owners: Sequence[str] | None
    tags: Mapping[str, str] | None
    kinds: Set[str] | None
    """In addition to `weblake`, `parquet` and the kind of storage."""
    automation_condition: dg.AutomationCondition[Any] | None
    freshness_policy: dg.FreshnessPolicy | None
    metadata: Mapping[str, Any] | None


class StepOptions(TypedDict, total=False):
    """The execution options of an asset's steps, with the meanings that they have in `dg.multi_asset`."""

    backfill_policy: dg.BackfillPolicy | None
    """Default: one partition in each run. A run of several starts all of their jobs before it waits for the first."""
    pool: str | None
    """The concurrency pool of the steps that call the service."""
    retry_policy: dg.RetryPolicy | None
    """Default: DEFAULT_RETRIES."""
    op_tags: Mapping[str, object] | None
    hooks: Set[dg.HookDefinition] | None
    resource_key: str
    """The key of the WeblakeResource; default `weblake`."""


class AssetOptions(SpecOptions, StepOptions, total=False):
    """The keyword arguments of every builder of assets: those of the asset and of its steps."""


def split_options(options: AssetOptions) -> tuple[SpecOptions, StepOptions]:
    """Return the options of the spec, with those that are unknown, and the options of the steps."""
    of_step = {name: value for name, value in options.items() if name in StepOptions.__annotations__}
    of_spec = {name: value for name, value in options.items() if name not in of_step}
    return cast("SpecOptions", of_spec), cast("StepOptions", of_step)


@orchestration.document
def build_weblake_specs(
    asset: Named,
    request: Request | None = None,
    *,
    wait: Wait = "step",
    to: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    **options: Unpack[SpecOptions],
) -> list[dg.AssetSpec]:
    """Return the spec of an asset that lands a request; with `wait="sensor"`, the spec of its job asset before it.

    For assets with a custom body: see `WeblakeResource.run`.

    Args:
        asset: The asset's key, or a spec, all of which is kept: group, owners, tags, description, deps, automation
            condition, freshness policy, metadata.
        request: The request; its digest is the code version if the spec has none. None: pages, and the author sets the
            code version.
        wait: As for `build_weblake_assets`.
        to: The dataset's root, if it is not the resource's.
        partitions_def: The partitions, if the spec has none.
        **options: See SpecOptions.

    Raises:
        DagsterInvalidDefinitionError: The contract refuses the request, or `wait="sensor"` is used for a request that
            is no job. The service is not asked.
        TypeError: A keyword argument that does not exist.
    """
    spec = named_spec(asset, to, partitions_def, options)
    if wait not in get_args(Wait):
        raise invalid(spec.key, InvalidOption(f"wait is {wait!r}.", hint="Give 'step' or 'sensor'."))
    if request is not None:
        check_request(request, spec.key)
        if wait == "sensor":
            try:
                job_of(request)
            except InvalidOption as error:
                raise invalid(spec.key, error) from None
    table = "documents" if request is None else request.table
    usage = request if isinstance(request, UsageRequest) else None
    version = spec.code_version or (None if request is None else code_version_of(request))
    data = spec.replace_attributes(
        code_version=version or ...,
        kinds=spec.kinds | {"parquet"},
        metadata={
            **metadata.definition_metadata(
                table, report=usage.name if usage else None, budget=usage.budget if usage else None, to=to
            ),
            **spec.metadata,
        },
        description=spec.description or (None if request is None else _described(request)) or ...,
    )
    if wait == "step":
        return [data]
    job = _job_spec(data, spec, table, to)
    return [job, data.replace_attributes(deps=[job.key], automation_condition=None)]


def named_spec(
    asset: Named, to: str | None, partitions_def: dg.PartitionsDefinition[str] | None, options: SpecOptions
) -> dg.AssetSpec:
    """Return the spec of an asset of this package, with what all of them have; raise if `to` holds a secret."""
    spec = _with_options(asset if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset), options)
    if has_user_info(to):
        wrong = InvalidOption(
            "`to` has a user name or password, which Dagster would store and show.",
            hint="Give credentials in the environment, or as storage_options of the resource.",
        )
        raise invalid(spec.key, wrong)
    where = _SCHEMES.get((to or "").partition("://")[0])
    kinds = {"weblake"} | ({where} if where else set())
    return spec.replace_attributes(
        partitions_def=partitions_def or spec.partitions_def or ..., kinds=spec.kinds | kinds
    )


def _job_spec(data: dg.AssetSpec, spec: dg.AssetSpec, table: str, to: str | None) -> dg.AssetSpec:
    """Return the spec of the asset that starts the jobs of `data`; what requests runs of `spec` requests runs of it."""
    return dg.AssetSpec(
        job_key(data.key),
        deps=spec.deps,
        description=f"The job whose pages land as {data.key.to_user_string()}.",
        group_name=data.group_name,
        owners=data.owners,
        tags={name: value for name, value in data.tags.items() if not name.startswith("dagster/kind/")},
        kinds={"weblake"},
        code_version=data.code_version,
        automation_condition=spec.automation_condition,
        partitions_def=data.partitions_def,
        metadata=metadata.definition_metadata(table, to=to, starts=data.key.to_user_string()),
    )


def job_of(request: Request) -> CrawlRequest | BatchScrapeRequest:
    """Return the request, if it is for a job.

    Raises:
        InvalidOption: It is not, or may start none, so that a sensor has nothing to wait for.
    """
    if isinstance(request, BatchScrapeRequest) and request.refresh_after is not None:
        raise InvalidOption(
            "wait='sensor' is for jobs, and with refresh_after there is none if no URL is due.",
            hint="Leave wait='step'.",
        )
    if not isinstance(request, CrawlRequest | BatchScrapeRequest):
        raise InvalidOption(
            f"wait='sensor' is for jobs, and a {type(request).__name__} starts none.", hint="Leave wait='step'."
        )
    return request


def job_key(key: dg.AssetKey) -> dg.AssetKey:
    """Return the key of the asset that starts the jobs of another one: `docs_job` for `docs`."""
    return dg.AssetKey([*key.path[:-1], key.path[-1] + JOB_SUFFIX])


def _described(request: Request) -> str | None:
    """Return a sentence for the catalog; it names an address without user and query, which may hold secrets."""
    if isinstance(request, CrawlRequest):
        if isinstance(request.url, dg.EnvVar):
            return f"Pages of a crawl of the site in {request.url.env_var_name}."
        without_query = re.split("[?#]", request.url)[0]
        address = re.sub("^([^/]*//)?[^/]*@", r"\1", without_query)
        return f"Pages of a crawl of {address}."
    return _DESCRIPTIONS.get(type(request))


_DESCRIPTIONS: dict[type, str] = {
    BatchScrapeRequest: "Pages of a list of URLs, scraped as one job.",
    ScrapeRequest: "One page, scraped.",
    ParseRequest: "One file, parsed.",
    JobRequest: "Pages of jobs that were started elsewhere.",
    UsageRequest: "What the team has used, month by month.",
    ActivityRequest: "The calls of the last 24 hours, by day.",
}


def _with_options(spec: dg.AssetSpec, options: SpecOptions) -> dg.AssetSpec:
    """Return the spec with the arguments in it; tags, kinds, metadata and deps are added to those of the spec.

    Raises:
        DagsterInvalidDefinitionError: The spec and the arguments both give the same attribute.
        TypeError: There is no such argument.
    """
    for name in options.keys() - SpecOptions.__annotations__.keys():
        near = get_close_matches(name, [*AssetOptions.__annotations__, "partitions_def", "request", "wait"], n=1)
        raise TypeError(f"There is no argument {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    merged = {name: given.pop(name) for name in ("tags", "kinds", "metadata") if name in given}
    deps = list(_deps(given.pop("deps", ())))
    for name in given:
        if getattr(spec, name, None):
            raise dg.DagsterInvalidDefinitionError(
                f"Asset {spec.key.to_user_string()!r}: {name} is given in its AssetSpec and as an argument. "
                "Give it in one place."
            )
    return spec.replace_attributes(**given).merge_attributes(deps=deps or ..., **merged)


def _deps(given: Iterable[Any]) -> Iterable[Any]:
    for dep in given:
        if isinstance(dep, list) and dep and all(isinstance(each, dg.AssetsDefinition) for each in dep):
            # With wait="sensor" there are two assets; this is the one that holds the data.
            yield from (spec.key for each in dep for spec in each.specs if "weblake/starts" not in spec.metadata)
        else:
            yield dep

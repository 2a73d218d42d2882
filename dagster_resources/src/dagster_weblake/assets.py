"""Assets that land the data of a request, given directly or returned by a function.

    docs = build_weblake_assets("docs", CrawlRequest(url="https://docs.example.com/", options={"limit": 500}))

    @weblake_assets(partitions_def=sites, wait="sensor")
    def pages(context, url_list: pa.Table):
        return BatchScrapeRequest(urls=url_list, options={"formats": ["markdown"]})

Both return an asset that starts its job, waits and lands; or with `wait="sensor"` a list of two, `pages_job` that
starts it and `pages` that lands it after `build_collect_sensor` has found that the job has ended, so that no process
waits.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Unpack, cast

import dagster as dg

from dagster_weblake import landing
from dagster_weblake.failures import DEFAULT_RETRIES, translate_errors
from dagster_weblake.requests import (
    BatchScrapeRequest,
    JobRequest,
    LandingRequest,
    Request,
    invalid,
)
from dagster_weblake.resource import WeblakeResource
from dagster_weblake.specs import (
    AssetOptions,
    Named,
    StepOptions,
    Wait,
    build_weblake_specs,
    job_key,
    job_of,
    split_options,
)
from dagster_weblake.step import Result
from weblake import orchestration
from weblake.errors import InvalidOption

#: A function that returns a request; its parameters are like those of a function under `@dg.asset`.
RequestFunction = Callable[..., Request]
#: A function that returns the request of a step, from its context and inputs.
_Request = Callable[[dg.AssetExecutionContext, Mapping[str, object]], Request]
#: A function that replaces the body of every step of an asset. In a step that only collects, only the limits of the
#: request count, since the job has been started already.
StepBody = Callable[[dg.AssetExecutionContext, WeblakeResource, Request], Iterator[Result]]


class WeblakeAsset(dg.AssetsDefinition, Sequence[dg.AssetsDefinition]):
    """An asset of this package. It is also a sequence of itself alone: `assets=docs`, `assets=[*docs, other]`."""

    def __getitem__(self, index: Any) -> Any:
        return [self][index]

    def __len__(self) -> int:
        return 1

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [self, *other]

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, self]


class JobConfig(dg.Config):
    """Run config that names the job to land, if the request does not."""

    kind: str
    job_id: str


@orchestration.document
def build_weblake_assets(
    asset: Named,
    request: Request,
    *,
    wait: Wait = "step",
    to: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    execute: StepBody | None = None,
    **options: Unpack[AssetOptions],
) -> WeblakeAsset:
    """Return the asset that lands a request; with `wait="sensor"`, a list: the asset that starts its job, and that one.

    Args:
        asset: The asset's key or spec.
        request: The request; its text may name the partition.
        wait: `step`: the step waits for its job. `sensor`: `<asset>_job` starts it, `<asset>` lands it, and
            `build_collect_sensor` requests the run that lands it; both may also be materialized by hand, or in one run.
        to: The dataset's root, if it is not the resource's.
        partitions_def: The partitions: days, months, or names of sites, but never one for each URL.
        execute: Replaces the body of each step: of the one that lands, and with `wait="sensor"` also of the one that
            starts. It gets the context, the resource and the request, and yields the step's results.
        **options: Catalog and execution options: see SpecOptions and StepOptions.

    Raises:
        DagsterInvalidDefinitionError: The contract refuses the request, or `wait="sensor"` is used for a request that
            is no job. The service is not asked.
        TypeError: A keyword argument that does not exist.
    """
    of_spec, of_step = split_options(options)
    ins: dict[str, dg.AssetIn] = {}
    if isinstance(request, BatchScrapeRequest) and isinstance(request.urls, dg.AssetKey):
        ins = {"urls": dg.AssetIn(request.urls)}

    def ask(context: dg.AssetExecutionContext, given: Mapping[str, object]) -> Request:
        if isinstance(request, BatchScrapeRequest) and ins:
            return replace(request, urls=given["urls"])
        config = given.get("config")
        if isinstance(request, JobRequest) and isinstance(config, JobConfig):
            return replace(request, kind=config.kind, job_id=config.job_id)
        return request

    parameters = [_parameter(name, None) for name in ins]
    if isinstance(request, JobRequest) and not (request.kind and request.job_id):
        parameters.append(_parameter("config", JobConfig))
    specs = build_weblake_specs(asset, request, wait=wait, to=to, partitions_def=partitions_def, **of_spec)
    terms = request if isinstance(request, LandingRequest) else None
    path_keys = tuple(terms.partition or ("load_date",)) if terms else None
    return AssetBuilder(ask, parameters, ins, wait, to, terms, of_step, caller(), execute, path_keys).make(specs)


@orchestration.document
def weblake_assets(
    asset: Named | None = None,
    *,
    wait: Wait = "step",
    to: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    ins: Mapping[str, dg.AssetIn] | None = None,
    terms: LandingRequest | None = None,
    **options: Unpack[AssetOptions],
) -> Callable[[RequestFunction], WeblakeAsset]:
    """Make assets from a function that returns a request; its parameters are its inputs, as in `@dg.asset`.

    The function is called once for a run, in the step that starts; it may take `context`, upstream assets, resources
    and config. Everything else is as in `build_weblake_assets`.

    Args:
        asset: The asset's key or spec; the function's name by default.
        wait: As in `build_weblake_assets`.
        to: As in `build_weblake_assets`.
        partitions_def: As in `build_weblake_assets`.
        ins: Inputs that are not named like their assets.
        terms: With `wait="sensor"`: a request whose tolerances and limits apply to the landing; its other fields do not
            count. The function cannot give them, because it is called in another step. Default: a request's defaults.
        **options: Catalog and execution options: see SpecOptions and StepOptions.

    Raises:
        DagsterInvalidDefinitionError: `terms` has a value that is of a wrong type or out of its range.
        TypeError: A keyword argument that does not exist.
    """
    of_spec, of_step = split_options(options)
    if callable(asset):
        raise TypeError("weblake_assets takes its arguments first: write @weblake_assets() with parentheses.")

    def decorate(asks: RequestFunction) -> WeblakeAsset:
        named = asks.__name__ if asset is None else asset
        signature = inspect.signature(asks)
        hints = inspect.get_annotations(asks, eval_str=True)
        given = [_parameter(name, hints.get(name)) for name in signature.parameters]
        with_context = bool(given) and given[0].name in ("context", "_context", "_")

        def ask(context: dg.AssetExecutionContext, inputs: Mapping[str, object]) -> Request:
            return asks(context, **inputs) if with_context else asks(**inputs)

        parameters = given[1:] if with_context else given
        inputs = {each.name: dg.AssetIn() for each in parameters if _is_input(each)} | dict(ins or {})
        specs = build_weblake_specs(named, wait=wait, to=to, partitions_def=partitions_def, **of_spec)
        if terms is not None:
            try:
                terms.terms()
            except InvalidOption as error:
                raise invalid(specs[-1].key, error) from None
        if not specs[-1].description:
            text = inspect.getdoc(asks) or f"Pages of the request that `{asks.__name__}` returns."
            specs = [*specs[:-1], specs[-1].replace_attributes(description=text)]
        code = getattr(inspect.unwrap(asks), "__code__", None)
        source = (code.co_filename, code.co_firstlineno) if code else caller()
        return AssetBuilder(ask, parameters, inputs, wait, to, terms, of_step, source).make(specs)

    return decorate


def run_step(
    context: dg.AssetExecutionContext,
    weblake: WeblakeResource,
    request: Request,
    *,
    key: dg.AssetKey,
    data: dg.AssetKey,
    wait: Wait,
    to: str | None,
) -> Iterator[Result]:
    """Run the default body of a step of the asset `key`.

    With `wait="step"` it starts the job, waits and lands. With `wait="sensor"` it lands if `key` is `data`, the asset
    that holds the data; else it starts the job. Errors are those of `WeblakeResource.run`.
    """
    if wait == "step":
        return weblake.run(context, request, key=key, to=to)
    assert isinstance(request, LandingRequest)
    if key == data:
        return landing.collect(context, weblake, request, key, to, job_key(key))
    return landing.start(context, weblake, request, key, to, data)


@dataclass(frozen=True, slots=True)
class AssetBuilder:
    """Makes the ops of an asset, or of a job asset and the asset that lands its data."""

    #: None if there is no request.
    ask: _Request | None
    #: The parameters of the op that starts, after the context: the inputs that Dagster passes.
    parameters: list[inspect.Parameter]
    ins: Mapping[str, dg.AssetIn]
    wait: Wait
    to: str | None
    terms: LandingRequest | None
    step: StepOptions
    #: The file and line of the user's code that define the asset.
    source: tuple[str, int]
    execute: StepBody | None = None
    #: The path keys of its loads, if they are known before it runs.
    path_keys: tuple[str, ...] | None = None

    def make(self, specs: list[dg.AssetSpec]) -> WeblakeAsset:
        """Return the asset of one spec, or the list of the assets of two."""
        # The first op depends on the assets that it takes as inputs.
        (first, ins), data = _depending_on(specs[0], self.ins), specs[-1].key
        asset = self._asset(first, data, self.parameters, ins)
        if len(specs) == 1:
            return asset
        # Two assets are a list, which Dagster's loaders of modules take as a whole; its elements have the other type.
        return cast("WeblakeAsset", [asset, self._asset(specs[1], data, [], {})])

    def _asset(
        self,
        spec: dg.AssetSpec,
        data: dg.AssetKey,
        parameters: list[inspect.Parameter],
        ins: Mapping[str, dg.AssetIn],
    ) -> WeblakeAsset:
        options = {"retry_policy": DEFAULT_RETRIES, **self.step}
        name = str(options.pop("resource_key", "weblake"))
        asked = name in (each.name for each in parameters)  # also by the function that returns the request
        parameters = [_parameter("context", dg.AssetExecutionContext), *parameters]
        if not asked:
            parameters = [*parameters, _parameter(name, WeblakeResource)]
        body = self.execute or partial(run_step, key=spec.key, data=data, wait=self.wait, to=self.to)

        def run(context: dg.AssetExecutionContext, **given: object) -> Iterator[Result]:
            weblake = given[name] if asked else given.pop(name)
            assert isinstance(weblake, WeblakeResource)
            yield from body(context, weblake, self._request(context, given, lands=spec.key == data))

        compute = _at_source(run, *self.source)
        compute.__signature__ = inspect.Signature(parameters)
        compute.__annotations__ = {
            each.name: each.annotation for each in parameters if each.annotation is not each.empty
        }
        decorate = dg.multi_asset(name=spec.key.to_python_identifier(), specs=[spec], ins=ins, **options)  # type: ignore[arg-type]
        asset = decorate(compute)
        asset.__class__, asset.op.__class__ = WeblakeAsset, _LandingOp
        root = self.to.rstrip("/") if self.to else f"the root of the resource {name!r}"
        if self.path_keys is not None:
            cast("_LandingOp", asset.op).lands = data.to_user_string(), self.path_keys, root
        return cast("WeblakeAsset", asset)

    def _request(self, context: dg.AssetExecutionContext, given: Mapping[str, object], *, lands: bool) -> Request:
        """Return the request of a step; one that only lands gets limits and tolerances."""
        if self.wait == "sensor" and lands:
            terms = self.terms or LandingRequest()
            return terms  # type: ignore[return-value]
        with translate_errors(context):
            request = cast("Request", self.ask and self.ask(context, given))
            if self.wait == "step":
                return request
            job = job_of(request)
        self._warn_of_other_terms(context, job)
        return job

    def _warn_of_other_terms(self, context: dg.AssetExecutionContext, request: LandingRequest) -> None:
        """Log which limits and tolerances of a request do not apply to its landing, in another step."""
        terms = self.terms or LandingRequest()
        given = [each.name for each in fields(LandingRequest) if getattr(request, each.name) != each.default]
        other = [name for name in given if name != "partition" and getattr(request, name) != getattr(terms, name)]
        if other:
            context.log.warning(
                f"The step that lands the pages does not know {', '.join(other)} of this request, which a function has "
                "returned: there, a job over its limit is not cancelled. Give @weblake_assets a request with the same "
                "values as `terms`."
            )


class _LandingOp(dg.OpDefinition):
    """The op of an asset. When a job is built from all assets, it compares the path keys of those of one root.

    This is when definitions load, and the first time that their assets are seen together.
    """

    #: The asset that the op lands, the path keys of its loads, and their root; empty if the keys are unknown.
    lands: tuple[str, tuple[str, ...], str] = ("", (), "")

    def get_resource_requirements(self, handle: Any, asset_layer: Any, *more: Any) -> Any:
        """Return what the op requires.

        Raises:
            DagsterInvalidDefinitionError: Another asset of the job lands in the same root with other path keys.
        """
        for each in asset_layer.data if asset_layer else ():
            both = self.lands, getattr(each.assets_def.node_def, "lands", self.lands)
            (name, keys, root), (other, theirs, where) = sorted(both)
            if where == root and theirs != keys:
                raise dg.DagsterInvalidDefinitionError(
                    f"The assets {name!r} and {other!r} land in {root} with different path keys: {', '.join(keys)}; "
                    f"{', '.join(theirs)}. All assets of a root have the same keys, by default load_date: give the "
                    "same keys as `partition` of their requests, or another root as `to`."
                )
        return super().get_resource_requirements(handle, asset_layer, *more)


def caller() -> tuple[str, int]:
    """Return the file and line of the user's code that is being executed: of the call of a builder."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in ("dagster_weblake", "dagster"):
        frame = frame.f_back
    return ("", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _at_source(body: Callable[..., Iterator[Result]], file: str, line: int) -> Any:
    """Return a function that runs the body and that, for `inspect` and in tracebacks, is at a line of the user's code.

    `dg.with_source_code_references` links to that file and line. To find the line, `inspect` reads `__wrapped__`, and
    before Python 3.13 it searches upwards for a line that begins a function. So the wrapped function has a source text
    of its own in `linecache`, in which its only function begins at this line.
    """

    def compute(context: dg.AssetExecutionContext, **given: object) -> Iterator[Result]:
        yield from body(context, **given)

    text = "\n" * (line - 1) + "def compute(): ...\n"
    name = f"<{file}, line {line}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    places = (file if Path(file).is_file() else __file__, name)
    codes = [compute.__code__.replace(co_filename=at, co_firstlineno=line) for at in places]
    placed, wrapped = (FunctionType(code, globals(), closure=compute.__closure__) for code in codes)
    placed.__wrapped__ = wrapped  # type: ignore[attr-defined]
    return placed


def _is_input(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter of an asset's function is an upstream asset, and not a resource or the config."""
    kind = parameter.annotation
    if parameter.name == "config" or dg.ResourceParam[object].__metadata__[0] in getattr(kind, "__metadata__", ()):  # type: ignore[attr-defined]
        return False
    kind = getattr(kind, "__origin__", kind)
    return not (isinstance(kind, type) and issubclass(kind, dg.ConfigurableResource | dg.ConfigurableIOManager))


def _depending_on(spec: dg.AssetSpec, ins: Mapping[str, dg.AssetIn]) -> tuple[dg.AssetSpec, Mapping[str, dg.AssetIn]]:
    """Return the spec with the inputs as dependencies, and the inputs without what their dependencies have."""
    known = {dep.asset_key for dep in spec.deps}
    keys = {_key_of(name, given): name for name, given in ins.items()}
    more = {
        key: dg.AssetDep(key, partition_mapping=ins[name].partition_mapping)
        for key, name in keys.items()
        if key not in known
    }
    bare = {keys[key]: ins[keys[key]]._replace(key=key, key_prefix=[], partition_mapping=None) for key in more}
    return (spec.replace_attributes(deps=[*spec.deps, *more.values()]) if more else spec), {**ins, **bare}


def _key_of(name: str, given: dg.AssetIn) -> dg.AssetKey:
    if given.key is not None:
        return dg.AssetKey.from_coercible(given.key)
    return dg.AssetKey([*(given.key_prefix or []), name])


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    found = inspect.Parameter.empty if annotation is None else annotation
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=found)

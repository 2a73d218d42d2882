"""The base of all components: one or two assets with a resource, and two methods that a subclass may override."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import dagster as dg
from pydantic import PrivateAttr, model_validator

from dagster_weblake.assets import build_weblake_assets, run_step
from dagster_weblake.components.attributes import (
    Block,
    ResolvedAsset,
    ResolvedBackfillPolicy,
    ResolvedResource,
    ResolvedRetryPolicy,
    doc,
)
from dagster_weblake.failures import DEFAULT_RETRIES, translate_errors
from dagster_weblake.requests import Request, check
from dagster_weblake.resource import WeblakeResource
from dagster_weblake.specs import Wait, build_weblake_specs
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from dagster_weblake.step import Result


class LandingComponent(dg.Component, Block, ABC):
    """An asset that lands the data of a request. The service is not called before the asset is materialized."""

    asset: ResolvedAsset
    to: Annotated[
        str | None,
        doc("The dataset's root, if it is not the resource's: a path or a storage URL.", "s3://lake/web"),
    ] = None
    pool: Annotated[str | None, doc("The concurrency pool of the steps that call the service.", "weblake")] = None
    retry_policy: ResolvedRetryPolicy = DEFAULT_RETRIES
    backfill_policy: ResolvedBackfillPolicy = None
    resource_key: Annotated[
        str | None,
        doc(
            "The key of the project's WeblakeResource, default `weblake`; or the key under which other definitions can "
            "use the component's own resource, default none.",
            "weblake",
        ),
    ] = None
    resource: ResolvedResource = None

    #: Attributes whose environment variables are resolved by the run: `resource` and `options` may hold secrets.
    late = frozenset({"resource", "options"})
    #: The attribute that a wrong threshold of the checks is in.
    threshold: ClassVar[str] = "checks"
    #: The key of the asset that holds the data; set when the definitions are built.
    _data_key: dg.AssetKey | None = PrivateAttr(default=None)

    @property
    @abstractmethod
    def request(self) -> Request:
        """Return the request of the component."""

    @property
    def waiting(self) -> Wait:
        """Return how the asset waits for its job, if the request is a job."""
        return "step"

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        check(self.request)
        try:
            self._checks(self.asset, "weblake")
        except InvalidOption as error:
            raise ValueError(f"{self.threshold}: {error}") from None
        return self

    def get_asset_spec(self, request: Request) -> dg.AssetSpec:
        """Return the spec of the asset that holds the data. Override it to change how the asset is shown and grouped.

        It is called once, when the definitions are built. With `wait: sensor` the spec of `<key>_job` is derived from
        it: the group, owners, tags, upstream assets and automation condition belong to the job.

        Args:
            request: The request, such as a CrawlRequest.
        """
        return build_weblake_specs(self.asset, request, to=self.to)[0]

    def execute(
        self, context: dg.AssetExecutionContext, weblake: WeblakeResource, request: Request
    ) -> Iterator[dg.MaterializeResult[None]]:
        """Run the body of the component's steps. Override it to do something before, after, or instead of it.

        With `wait: step` there is one step: it starts the job, waits and lands. With `wait: sensor` there are two, in
        two runs, and this is the body of both: first that of `<key>_job`, which starts, then that of `<key>`, which
        lands; `context.asset_key` distinguishes them. In the step that starts, changing the request changes the job
        that is paid; in the one that only lands, only its limits and tolerances have an effect. A step that is retried
        executes again, and pays only for what was not paid before.

        Args:
            context: The context of the step.
            weblake: The resource; its client can be used while the step runs.
            request: The request, with the URLs of the upstream asset in it.

        Yields:
            The step's one result. In a step that partly failed, the partitions that succeeded are reported as events
            before it fails.

        Raises:
            dagster.Failure: The load failed; `allow_retries` says whether another try may help.
            dagster.RetryRequested: The service named a time to wait.
        """
        key = context.asset_key
        data = self._data_key or key
        yield from run_step(context, weblake, request, key=key, data=data, wait=self.waiting, to=self.to)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets, with the checks, the sensor and the resource that the attributes ask for."""
        request, spec = self.request, self.get_asset_spec(self.request)
        self._data_key = spec.key
        # Dagster refuses two resources under one key, so each component's own resource has a key of its own.
        own = "weblake" if self.resource is None else f"weblake__{spec.key.to_python_identifier()}"
        key = self.resource_key or own
        assets = build_weblake_assets(
            spec,
            request,
            wait=self.waiting,
            to=self.to,
            execute=self._steps,
            backfill_policy=self.backfill_policy,
            pool=self.pool,
            retry_policy=self.retry_policy,
            resource_key=key,
        )
        return dg.Definitions(
            assets=assets,
            asset_checks=self._checks(next(iter(assets[-1].specs)), key),
            sensors=self._sensors(assets, key),
            resources={} if self.resource is None else {key: self.resource},
        )

    def _steps(self, context: dg.AssetExecutionContext, weblake: WeblakeResource, request: Request) -> Iterator[Result]:
        # Errors of a subclass's own calls of the client get the same messages, and are retried only if that can help.
        with translate_errors(context):
            yield from self.execute(context, weblake, request)

    def _checks(self, asset: dg.AssetSpec, resource_key: str) -> list[dg.AssetChecksDefinition]:
        return []

    def _sensors(self, assets: Sequence[dg.AssetsDefinition], resource_key: str) -> list[dg.SensorDefinition]:
        return []

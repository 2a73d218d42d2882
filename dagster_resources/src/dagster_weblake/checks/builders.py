"""Builders of asset checks: of landed documents, load by load, and of a team's usage.

The checks read the landed files and the ledger and never call the service. They look at the loads that the check's own
run has landed, else the latest load of the run's partition, else the latest of the asset; if a newer load has replaced
one of these, they look at the newer one. For freshness, give the asset a `dg.FreshnessPolicy`.
"""

# No postponed annotations: Dagster evaluates the annotation of a check's `context`.
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.checks import findings
from dagster_weblake.checks.findings import Finding, Limits, Load
from dagster_weblake.failures import in_dagster_terms
from dagster_weblake.metadata import load_named_by, named_loads
from dagster_weblake.metadata.text_format import amount, plain
from weblake import orchestration
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from weblake.orchestration import Dataset

__all__ = ["build_document_checks", "build_usage_checks"]

#: A reference to an asset: what Dagster's own builders of checks accept, or the return value of `build_weblake_assets`.
Asset = dg.AssetsDefinition | Sequence[dg.AssetsDefinition] | dg.AssetSpec | dg.AssetKey | str | Sequence[str]

#: The run tag with which Dagster names the partition that is materialized.
_PARTITION = "dagster/partition"
_MONTH = re.compile(r"\d{4}-\d\d")
#: Pages of materializations that are searched for one that names a load.
_SOME = 1
_REPORTS = ("credits", "tokens", "credits_by_key", "tokens_by_key")


class NothingLandedError(Exception):
    """There is no load to check; the text says why and what to do."""


def build_document_checks(
    asset: Asset,
    *,
    to: str | None = None,
    min_rows: int = 1,
    max_error_ratio: float = 0.1,
    max_duplicate_urls: int = 0,
    max_credits: float | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    checks: Iterable[str] | None = None,
    resource_key: str = "weblake",
) -> dg.AssetChecksDefinition:
    """Return checks of the documents that an asset has landed, computed in one step and from storage alone.

    - `rows_above_zero`: at least `min_rows` documents.
    - `error_ratio`: at most this share of the submitted pages failed, were rejected or are missing. Pages that
      robots.txt excludes are reported and do not count as errors.
    - `duplicate_urls`: at most this many rows of the load have the URL of another one.
    - `schema_matches`: the file has exactly the columns that this version writes.
    - `receipt_matches_files`: every file of the receipt exists, with its bytes and rows.
    - `credits_under_budget`: the job cost no more than `max_credits`; only if that is given. If the service did not say
      what the job cost, the check warns.

    Args:
        asset: The asset, its spec or key, or what `build_weblake_assets` returned.
        to: The asset's own root; by default the one in its definition, else the resource's.
        min_rows: Documents that a load has at least.
        max_error_ratio: The share of the submitted pages that may have failed, from 0 to 1.
        max_duplicate_urls: Rows that may have the URL of another row of the load.
        max_credits: Credits that the job may have cost.
        severity: The severity of a check that fails.
        blocking: Whether a failed check of severity ERROR keeps the assets downstream from being materialized.
        checks: The names of the checks to build; by default all.
        resource_key: The name of the WeblakeResource.

    Raises:
        InvalidOption: A threshold is out of its range, or there is no such check.
    """
    limits = Limits(min_rows, max_error_ratio, max_duplicate_urls, max_credits)
    names = _names(checks, limits)
    target = _target(asset, "documents")
    to = to or _own_root(target)
    key = target.key
    specs = [
        dg.AssetCheckSpec(name, asset=key, description=findings.CHECKS[name].__doc__, blocking=blocking)
        for name in names
    ]

    @dg.multi_asset_check(
        name=f"{key.to_python_identifier()}__{'_'.join(['document_checks'] if checks is None else names)}",
        specs=specs,
        can_subset=True,
        required_resource_keys={resource_key},
    )
    def document_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        wanted = {each.name for each in context.selected_asset_check_keys}
        dataset = _dataset(context, resource_key, to)
        loads: list[Load] = []
        nothing = Finding("There is no load to check: no URL was due.", passed=True)
        try:
            with in_dagster_terms():
                loads = _loads_of(context, key, dataset)
        except NothingLandedError as error:
            nothing = Finding(str(error))
        for name in names:
            if name in wanted:
                yield _result(key, name, _worst(name, loads, limits) if loads else nothing, severity)

    return document_checks


def build_usage_checks(
    asset: Asset,
    *,
    budget: float | None = None,
    report: str | None = None,
    to: str | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    resource_key: str = "weblake",
) -> dg.AssetChecksDefinition:
    """Return the check `usage_under_budget`: the usage of a month (UTC) so far, as it was last landed.

    It looks at the month of the run's partition, or at each month of a run over several, and fails if one of them is
    over the budget. Without partitions it looks at the current month. If nothing of the month has landed, it warns.

    Args:
        asset: The asset of the usage, its spec or key, or what `build_weblake_assets` returned.
        budget: Credits or tokens that one month may use; by default the one in the asset's definition.
        report: credits, tokens, credits_by_key or tokens_by_key; by default the one in the asset's definition, else
            credits.
        to: The asset's own root; by default the one in its definition, else the resource's.
        severity: The severity of the check when it fails.
        blocking: Whether a failure of severity ERROR keeps the assets downstream from being materialized.
        resource_key: The name of the WeblakeResource.

    Raises:
        InvalidOption: The budget is no amount, or there is no such report.
    """
    target = _target(asset, "usage_periods")
    most = amount(target.metadata.get("weblake/budget") if budget is None else budget)
    if most is None or most < 0:
        raise InvalidOption(f"The budget is {budget}.", hint="Give a number of credits or tokens, 0 or more.")
    to = to or _own_root(target)
    key = target.key
    wanted = report or str(target.metadata.get("weblake/report", "credits"))
    if wanted not in _REPORTS:
        raise InvalidOption(f"There is no usage report {plain(wanted, 40)!r}.", hint=f"Reports: {', '.join(_REPORTS)}.")
    check = findings.usage_under_budget

    @dg.asset_check(
        asset=key,
        name=check.__name__,
        description=check.__doc__,
        blocking=blocking,
        required_resource_keys={resource_key},
    )
    def usage_checks(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        dataset = _dataset(context, resource_key, to)
        found = [check(dataset, wanted, most, month) for month in _months_of(context, key)]
        # The newest month that fails; else the newest that passes; else the newest that has not landed.
        finding = max(reversed(found), key=lambda each: (not each.unknown, not each.passed))
        return _result(key, check.__name__, finding, severity)

    return usage_checks


def _names(checks: Iterable[str] | None, limits: Limits) -> list[str]:
    """Return the names of the requested checks, in the order in which they are shown."""
    if limits.min_rows < 0 or limits.max_duplicate_urls < 0:
        raise InvalidOption("min_rows or max_duplicate_urls is negative.", hint="Give a number of rows, 0 or more.")
    if not 0 <= limits.max_error_ratio <= 1:
        raise InvalidOption(f"max_error_ratio is {limits.max_error_ratio}.", hint="It is a share, from 0 to 1.")
    if limits.max_credits is not None and not 0 <= limits.max_credits < math.inf:
        raise InvalidOption(f"max_credits is {limits.max_credits}.", hint="Give a number of credits, 0 or more.")
    known = [name for name in findings.CHECKS if name != "credits_under_budget" or limits.max_credits is not None]
    if checks is None:
        return known
    asked = [checks] if isinstance(checks, str) else list(checks)
    unknown = [name for name in asked if name not in known]
    if unknown or not asked:
        raise InvalidOption(
            f"There is no check {plain(unknown[0], 40)!r}." if unknown else "No check is wanted.",
            hint=f"Checks: {', '.join(known)}; credits_under_budget needs max_credits.",
        )
    return [name for name in known if name in asked]


def _target(asset: Asset, table: str) -> dg.AssetSpec:
    """Return the spec of the asset that holds the table; a bare one if only its key is known."""
    if isinstance(asset, dg.AssetSpec):
        return asset
    if isinstance(asset, dg.AssetKey | str):
        return dg.AssetSpec(asset)
    parts = [asset] if isinstance(asset, dg.AssetsDefinition) else list(asset)
    definitions = [each for each in parts if isinstance(each, dg.AssetsDefinition)]
    if not definitions:
        return dg.AssetSpec([str(part) for part in parts])
    specs = [spec for definition in definitions for spec in definition.specs]
    holding = [spec for spec in specs if spec.metadata.get("weblake/table") == table] or specs
    if len(holding) != 1:
        keys = ", ".join(spec.key.to_user_string() for spec in holding)
        raise InvalidOption(f"Several assets could be meant: {keys}.", hint="Give the spec or the key of one.")
    return holding[0]


def _own_root(target: dg.AssetSpec) -> str | None:
    to = target.metadata.get("weblake/to")
    return to if isinstance(to, str) else None


def _dataset(context: dg.AssetCheckExecutionContext, resource_key: str, to: str | None) -> "Dataset":
    dataset: Dataset = getattr(context.resources, resource_key).dataset(to)
    return dataset


def _worst(name: str, loads: Sequence[Load], limits: Limits) -> Finding:
    """Return the finding of the first load that fails, else of the last load."""
    for load in loads:
        finding = findings.find(name, load, limits)
        if not finding.passed:
            break
    about: dict[str, float | str | dg.MetadataValue] = {"load_id": plain(load.receipt.load_id)}
    if load.partition is not None:
        about["partition"] = plain(load.partition)
    if len(loads) > 1:
        about["loads"] = len(loads)
    return replace(finding, metadata={**finding.metadata, **about})


def _result(key: dg.AssetKey, name: str, finding: Finding, severity: dg.AssetCheckSeverity) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        passed=finding.passed,
        asset_key=key,
        check_name=name,
        metadata=dict(finding.metadata),
        severity=dg.AssetCheckSeverity.WARN if finding.unknown else severity,
        description=plain(finding.says),
    )


def _loads_of(context: dg.AssetCheckExecutionContext, key: dg.AssetKey, dataset: "Dataset") -> list[Load]:
    """Return the loads to check, newest first: of each partition that the check's own run has landed, else one.

    Raises:
        NothingLandedError: There is none, although URLs were due.
    """
    landed: dict[str | None, tuple[str, dg.EventLogRecord]] = {}
    for record in _materializations(context, key):
        if load_id := load_named_by(record):
            landed.setdefault(record.partition_key, (load_id, record))
    named = list(landed.values()) or [_newest(context, key)]
    return [_landed_load(load_id, record, dataset) for load_id, record in named if load_id]


def _months_of(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[str]:
    """Return the months, YYYY-MM, that the check's own run has landed; else that of its partition; else the current."""
    landed = {record.partition_key for record in _materializations(context, key)}
    months = {str(name)[:7] for name in landed or {context.run.tags.get(_PARTITION)}}
    return sorted(filter(_MONTH.fullmatch, months)) or [f"{datetime.now(timezone.utc):%Y-%m}"]


def _newest(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> tuple[str, dg.EventLogRecord]:
    """Return the newest load of the run's partition, else of the asset, with its event; empty if no URL was due."""
    instance, partition = context.instance, context.run.tags.get(_PARTITION)
    found = None if partition is None else _first(named_loads(instance, key, [partition], pages=_SOME))
    if found is None:
        found = _first(named_loads(instance, key, pages=_SOME))
        if partition is not None and found is not None and found[1].partition_key is not None:
            found = None  # the newest one is of another partition
    if found is None:
        where = "" if partition is None else f", partition {plain(partition, 200)},"
        raise NothingLandedError(
            f"{key.to_user_string()}{where} has no materialization yet that names a load of weblake: there is nothing "
            "to check. Materialize it."
        )
    return found


def _first(named: Iterator[tuple[str, dg.EventLogRecord]]) -> tuple[str, dg.EventLogRecord] | None:
    """Return the first load with its event; else the first event for which no URL was due."""
    found = None
    for each in named:
        if each[0]:
            return each
        found = found or each
    return found


def _materializations(context: dg.AssetCheckExecutionContext, key: dg.AssetKey) -> list[dg.EventLogRecord]:
    """Return the materializations of the asset by the check's own run, newest first."""
    events = context.instance.get_records_for_run(
        context.run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION, ascending=False
    )
    return [record for record in events.records if record.asset_key == key]


def _landed_load(load_id: str, record: dg.EventLogRecord, dataset: "Dataset") -> Load:
    newest = orchestration.LoadState(dataset, load_id).current
    landing = newest.landed
    if landing is None:
        event = record.asset_materialization
        root = event.metadata.get("weblake/root") if event is not None else None
        landed = root.value if root is not None else None
        elsewhere = f" It landed in {plain(landed, 300)}: give `to`." if landed not in (None, dataset.url) else ""
        raise NothingLandedError(f"Load {plain(newest.load_id, 40)} is not on record in {dataset.url}.{elsewhere}")
    return Load(dataset, landing.receipt, record.partition_key)

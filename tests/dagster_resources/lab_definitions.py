"""Plain Dagster assets for the tests of the lab: they log, wait and fail as files in LAB_FILES say."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

FILES = Path(os.environ["LAB_FILES"])


class Words(dg.Config):
    """What `told` repeats."""

    text: str


# Dagster keeps the description compressed, in the snapshot of the job.
@dg.asset(
    key=["lab", "told"],
    description="a word that stands in compressed snapshots: quincunx",
    check_specs=[dg.AssetCheckSpec("long_enough", asset=["lab", "told"])],
)
def told(
    context: dg.AssetExecutionContext, config: Words
) -> Iterator[dg.AssetObservation | dg.MaterializeResult[None]]:
    """Tells metadata of many kinds."""
    print(f"printed {config.text}")
    yield dg.AssetObservation(context.asset_key, metadata={"seen": len(config.text)})
    yield dg.MaterializeResult(
        metadata={
            "dagster/row_count": 2**40,
            "dagster/uri": dg.MetadataValue.url("memory://lab"),
            "dagster/column_schema": dg.TableSchema([dg.TableColumn("url", "string"), dg.TableColumn("n", "int64")]),
            "preview": dg.MetadataValue.table([dg.TableRecord({"url": "a", "n": 1})]),
            "plot": dg.MetadataValue.md("**bold**"),
            "ratio": 0.5,
            "complete": True,
            "counts": {"stored": [1, 2]},
            "nothing": None,
        },
        check_results=[dg.AssetCheckResult(passed=len(config.text) > 3, metadata={"length": len(config.text)})],
    )


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b", "c"]))
def lettered(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """One partition per run."""
    return dg.MaterializeResult(metadata={"letter": context.partition_key})


@dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="sites"))
def visited(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """A partition that is added while Dagster runs."""
    return dg.MaterializeResult(metadata={"site": context.partition_key})


class Hold(dg.Config):
    """Which file `held` waits for."""

    file: str


@dg.asset
def held(context: dg.AssetExecutionContext, config: Hold) -> dg.MaterializeResult[None]:
    """Waits for a file."""
    while not (FILES / config.file).exists():
        time.sleep(0.05)
    return dg.MaterializeResult(metadata={"pid": os.getpid()})


@dg.asset
def first(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Always succeeds."""
    return dg.MaterializeResult(metadata={"run": context.run_id})


@dg.asset(deps=[first])
def second(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Fails until a file is there."""
    if not (FILES / "second may pass").exists():
        raise dg.Failure("there is no such file yet", allow_retries=False)
    return dg.MaterializeResult(metadata={"run": context.run_id})


@dg.asset
def mailed(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """What the sensor asks for."""
    return dg.MaterializeResult(metadata={"mail": context.run.tags["lab/mail"]})


@dg.sensor(target=[mailed], minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def inbox(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """A run per file."""
    mails = sorted(FILES.glob("*.mail"))
    for mail in mails:
        yield dg.RunRequest(run_key=mail.name, tags={"lab/mail": json.loads(mail.read_text())})
    if not mails:
        yield dg.SkipReason("no mail")


defs = dg.Definitions(assets=[told, lettered, visited, held, first, second, mailed], sensors=[inbox])

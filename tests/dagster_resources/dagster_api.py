"""Access to Dagster's GraphQL as its pages use it: launches, terminations, backfills, sensors, and page content.

An asset is named by its user string, `prefix/name`. Methods that wait take a limit in seconds and raise an
AssertionError with the ends of the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dagster_events import ASSET_EVENT, METADATA, AssetEvent, CheckResult, Run, metadata_of
from graphql_client import ERROR, GraphqlClient, said

#: The states that no run leaves.
ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})

#: The states that no backfill leaves.
BACKFILL_ENDED = frozenset({"COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"})

_RUN = "runId status rootRunId parentRunId tags { key value }"
_LAUNCHED = "... on LaunchRunSuccess { run { runId } } ... on RunConfigValidationInvalid { errors { message } }"


class DagsterApi(GraphqlClient):
    """What a user does to runs, backfills, sensors and assets."""

    # Runs

    def launch(
        self,
        asset_keys: Collection[str],
        partition: str | None = None,
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        job: str = "__ASSET_JOB",
    ) -> str:
        """Materialises assets with their checks and returns the run's id; no assets: all of the job."""
        given = {**(tags or {}), **({"dagster/partition": partition} if partition is not None else {})}
        selector: dict[str, Any] = {**self.location(), "jobName": job}
        if asset_keys:
            selector["assetSelection"] = [_key(key) for key in _each(asset_keys)]
        parameters = {
            "selector": selector,
            "runConfigData": dict(run_config or {}),
            "executionMetadata": {"tags": _tags(given)},
        }
        field = f"mutation launchPipelineExecution(executionParams: $params) {{ {_LAUNCHED} }}"
        run: str = self.ask(field, "LaunchRunSuccess", params=("ExecutionParams!", parameters))["run"]["runId"]
        return run

    def reexecute(self, run_id: str, strategy: str = "FROM_FAILURE", tags: Mapping[str, str] | None = None) -> str:
        """Repeats a run, FROM_FAILURE or ALL_STEPS, as the button on its page does; returns the new run's id."""
        parameters = {"parentRunId": run_id, "strategy": strategy, "extraTags": _tags(tags or {})}
        field = f"mutation launchPipelineReexecution(reexecutionParams: $params) {{ {_LAUNCHED} }}"
        run: str = self.ask(field, "LaunchRunSuccess", params=("ReexecutionParams!", parameters))["run"]["runId"]
        return run

    def terminate(self, run_id: str, policy: str = "SAFE_TERMINATE") -> None:
        """A user's termination; it returns when the run worker was told, not when the run is CANCELED."""
        self.ask(
            """mutation terminateRun(runId: $run, terminatePolicy: $policy) {
                ... on TerminateRunSuccess { run { runId } } ... on TerminateRunFailure { message } }""",
            "TerminateRunSuccess",
            run=("String!", run_id),
            policy=("TerminateRunPolicy", policy),
        )

    def run(self, run_id: str) -> Run:
        """One run."""
        return Run.of(self.ask(f"runOrError(runId: $run) {{ ... on Run {{ {_RUN} }} }}", "Run", run=("ID!", run_id)))

    def runs(
        self, tags: Mapping[str, str] | None = None, statuses: Collection[str] | None = None, limit: int = 100
    ) -> list[Run]:
        """Runs that have all of the tags and one of the states, the newest first."""
        wanted: dict[str, Any] = {"tags": _tags(tags)} if tags else {}
        if statuses:
            wanted["statuses"] = list(_each(statuses))
        field = f"runsOrError(filter: $filter, limit: $limit) {{ ... on Runs {{ results {{ {_RUN} }} }} }}"
        found = self.ask(field, "Runs", filter=("RunsFilter", wanted), limit=("Int", limit))
        return [Run.of(each) for each in found["results"]]

    def wait_status(self, run_id: str, statuses: Collection[str] = ENDED, timeout: float = 240) -> str:
        """Waits for one of the states and returns it; a run that ended otherwise fails at once, with its events."""
        wanted = set(_each(statuses))

        def reached() -> str | None:
            status = self.run(run_id).status
            assert status in wanted or status not in ENDED, f"the run is {status}\n{self.describe(run_id)}"
            return status if status in wanted else None

        what = f"run {run_id} to be {' or '.join(sorted(wanted))}"
        status = self.until(what, reached, timeout, lambda: self.describe(run_id))
        assert status is not None
        return status

    def wait_retry(self, run_id: str, timeout: float = 240) -> Run:
        """Waits for the run that repeats this one, by itself or by a user, and returns the newest."""
        return self.until(
            f"a run that repeats {run_id}",
            lambda: self.runs({"dagster/parent_run_id": run_id}, limit=1),
            timeout,
            lambda: self.describe(run_id),
        )[0]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """All events of a run in their order: eventType, message, stepKey, timestamp (epoch ms), metadata, error."""
        field = f"""logsForRun(runId: $run, afterCursor: $after) {{ ... on EventConnection {{ cursor hasMore events {{
            ... on MessageEvent {{ eventType message stepKey level timestamp }}
            ... on DisplayableEvent {{ metadataEntries {{ {METADATA} }} }}
            ... on ErrorEvent {{ error {{ {ERROR} }} }}
        }} }} }}"""
        found: list[dict[str, Any]] = []
        after, more = None, True
        while more:
            page = self.ask(field, "EventConnection", run=("ID!", run_id), after=("String", after))
            found += page["events"]
            after, more = page["cursor"], page["hasMore"]
        for event in found:
            event["metadata"] = metadata_of(event.pop("metadataEntries", None) or [])
        return found

    def wait_event(self, run_id: str, done: Callable[[dict[str, Any]], object], timeout: float = 240) -> dict[str, Any]:
        """Waits for the first event of a run for which `done` is true."""
        what = f"an event of run {run_id}"
        found = self.until(
            what, lambda: [e for e in self.events(run_id) if done(e)], timeout, lambda: self.describe(run_id)
        )
        return found[0]

    def describe(self, run_id: str) -> str:
        """The state of a run and its last events: for messages."""
        lines = [f"run {run_id} is {self.run(run_id).status}"]
        for event in self.events(run_id)[-25:]:
            lines.append(f"{event['eventType'] or event['level']} {event['stepKey'] or ''}: {event['message']}")
            lines += [said(event["error"])] if event.get("error") else []
        return "\n".join(lines)

    # Backfills

    def backfill(
        self,
        asset_keys: Collection[str],
        partitions: Iterable[str],
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Starts a backfill of these partitions and returns its id."""
        parameters = {
            "assetSelection": [_key(key) for key in _each(asset_keys)],
            "partitionNames": list(partitions),
            "runConfigData": dict(run_config or {}),
            "tags": _tags(tags or {}),
        }
        field = """mutation launchPartitionBackfill(backfillParams: $params) {
            ... on LaunchBackfillSuccess { backfillId } }"""
        backfill: str = self.ask(field, "LaunchBackfillSuccess", params=("LaunchBackfillParams!", parameters))[
            "backfillId"
        ]
        return backfill

    def reexecute_backfill(self, backfill_id: str, strategy: str = "FROM_FAILURE") -> str:
        """Repeats a backfill that has ended, as the button on its page does; returns the new backfill's id."""
        field = """mutation reexecutePartitionBackfill(reexecutionParams: $params) {
            ... on LaunchBackfillSuccess { backfillId } }"""
        parameters = {"parentRunId": backfill_id, "strategy": strategy}
        backfill: str = self.ask(field, "LaunchBackfillSuccess", params=("ReexecutionParams", parameters))["backfillId"]
        return backfill

    def backfill_status(self, backfill_id: str) -> str:
        """The state of a backfill: REQUESTED until one of BACKFILL_ENDED."""
        field = (
            f"partitionBackfillOrError(backfillId: $id) {{ ... on PartitionBackfill {{ status error {{ {ERROR} }} }} }}"
        )
        found = self.ask(field, "PartitionBackfill", id=("String!", backfill_id))
        assert not found["error"], f"backfill {backfill_id}: {said(found['error'])}"
        status: str = found["status"]
        return status

    def wait_backfill(self, backfill_id: str, timeout: float = 300) -> str:
        """Waits until a backfill has ended and returns how."""

        def ended() -> str | None:
            status = self.backfill_status(backfill_id)
            return status if status in BACKFILL_ENDED else None

        def why() -> str:
            return "\n".join(self.describe(run.run_id) for run in self.runs({"dagster/backfill": backfill_id}))

        status = self.until(f"backfill {backfill_id} to end", ended, timeout, why)
        assert status is not None
        return status

    def backfill_counts(self, backfill_id: str) -> dict[str, dict[str, int]]:
        """Asset -> how many of its partitions are targeted, materialized and failed."""
        field = """partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { assetBackfillData {
            assetBackfillStatuses { ... on AssetPartitionsStatusCounts { assetKey { path }
                targeted: numPartitionsTargeted materialized: numPartitionsMaterialized failed: numPartitionsFailed
        } } } } }"""
        found = self.ask(field, "PartitionBackfill", id=("String!", backfill_id))
        counts = found["assetBackfillData"]["assetBackfillStatuses"]
        return {"/".join(each.pop("assetKey")["path"]): each for each in counts if each}

    # Sensors

    def ticks(self, sensor: str, limit: int = 50) -> list[dict[str, Any]]:
        """The ticks of a sensor, the newest first: status, runIds, skipReason, cursor, timestamp (epoch s), error."""
        field = """sensorOrError(sensorSelector: $sensor) { ... on Sensor { sensorState { ticks(limit: $limit) {
            status runIds skipReason cursor timestamp error { message stack } } } } }"""
        selector = {**self.location(), "sensorName": sensor}
        found = self.ask(field, "Sensor", sensor=("SensorSelector!", selector), limit=("Int", limit))
        ticks: list[dict[str, Any]] = found["sensorState"]["ticks"]
        return ticks

    def wait_sensor_runs(self, sensor: str, number: int = 1, timeout: float = 240) -> list[str]:
        """Waits until a sensor has asked for so many runs, and returns all of theirs, the oldest first."""

        def asked() -> list[str] | None:
            runs = [run for tick in reversed(self.ticks(sensor)) for run in tick["runIds"]]
            return runs if len(runs) >= number else None

        def why() -> str:
            return "\n".join(map(str, self.ticks(sensor, limit=5))) + "\n" + self.tails()

        runs = self.until(f"{number} runs that sensor {sensor} asked for", asked, timeout, why)
        assert runs is not None
        return runs

    # Assets

    def add_dynamic_partition(self, partitions_def: str, key: str) -> None:
        """Adds a key to a dynamic partitions definition."""
        self.ask(
            """mutation addDynamicPartition(repositorySelector: $repo, partitionsDefName: $name, partitionKey: $key) {
                ... on AddDynamicPartitionSuccess { partitionKey } }""",
            "AddDynamicPartitionSuccess",
            repo=("RepositorySelector!", self.location()),
            name=("String!", partitions_def),
            key=("String!", key),
        )

    def materializations(self, key: str, limit: int = 100) -> list[AssetEvent]:
        """The materializations of an asset, the newest first."""
        return self._asset_events(key, "assetMaterializations", limit)

    def observations(self, key: str, limit: int = 100) -> list[AssetEvent]:
        """The observations of an asset, the newest first."""
        return self._asset_events(key, "assetObservations", limit)

    def asset_checks(self, key: str) -> dict[str, CheckResult | None]:
        """The checks of an asset by name with their latest execution, None for one that never ran."""
        field = f"""assetNodeOrError(assetKey: $key) {{ ... on AssetNode {{ assetChecksOrError {{
            __typename ... on AssetChecks {{ checks {{ name executionForLatestMaterialization {{
                status runId evaluation {{ severity description metadataEntries {{ {METADATA} }} }}
        }} }} }} }} }} }}"""
        checks = self.ask(field, "AssetNode", key=("AssetKeyInput!", _key(key)))["assetChecksOrError"]
        assert checks["__typename"] == "AssetChecks", f"checks of {key}: {checks}"
        return {each["name"]: CheckResult.of(each["executionForLatestMaterialization"]) for each in checks["checks"]}

    def _asset_events(self, key: str, field: str, limit: int) -> list[AssetEvent]:
        field = (
            f"assetOrError(assetKey: $key) {{ ... on Asset {{ events: {field}(limit: $limit) {{ {ASSET_EVENT} }} }} }}"
        )
        found = self.ask(field, "Asset", key=("AssetKeyInput!", _key(key)), limit=("Int", limit))
        return [AssetEvent.of(event) for event in found["events"]]


def _key(user_string: str) -> dict[str, list[str]]:
    return {"path": user_string.split("/")}


def _each(names: Collection[str]) -> Collection[str]:
    """A single name is meant as one, and not as its letters."""
    return [names] if isinstance(names, str) else names


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]

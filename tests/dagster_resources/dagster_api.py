"""Access to Dagster's GraphQL as its pages use it: launches, terminations, backfills, sensors, and metadata.

An asset is named by its user string, `prefix/name`. Methods that wait take a limit in seconds and raise an
AssertionError with the ends of the logs.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

#: The states that no run, and no backfill, leaves.
ENDED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
BACKFILL_ENDED = frozenset({"COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"})
#: How often a waiting method looks, in seconds.
POLL = 0.2

_ERROR = "message stack causes { message stack }"
_RUN = "runId status rootRunId parentRunId tags { key value }"
_LAUNCHED = "... on LaunchRunSuccess { run { runId } } ... on RunConfigValidationInvalid { errors { message } }"
#: The metadata entries that weblake and the events of processes have, and the field of the value of each.
_VALUES = {"Text": "text", "Markdown": "mdStr", "Url": "url", "Bool": "boolValue", "Timestamp": "timestamp"}
_FIELDS = " ".join(f"... on {kind}MetadataEntry {{ {field} }}" for kind, field in _VALUES.items())
_METADATA = f"""metadataEntries {{ __typename label
    ... on IntMetadataEntry {{ intRepr }} ... on FloatMetadataEntry {{ floatRepr }} {_FIELDS} }}"""


@dataclass(frozen=True)
class AssetEvent:
    """One materialization; `timestamp` is in epoch seconds, `metadata` is label -> value."""

    run_id: str
    partition: str | None
    timestamp: float
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run; `root` and `parent` are None for a run that repeats no other."""

    run_id: str
    status: str
    root: str | None
    parent: str | None
    tags: dict[str, str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Run:
        """From the fields of _RUN."""
        tags = {tag["key"]: tag["value"] for tag in found["tags"]}
        return cls(found["runId"], found["status"], found["rootRunId"], found["parentRunId"], tags)


class DagsterApi(abc.ABC):
    """What a user does to runs, backfills, sensors and assets of an instance that has one code location."""

    url: str

    def __init__(self) -> None:
        # A proxy of the environment has no part in what happens on loopback.
        self._http = httpx.Client(timeout=240, trust_env=False)

    @abc.abstractmethod
    def dead(self) -> Mapping[str, str]:
        """Processes that ended by themselves: name -> how."""

    @abc.abstractmethod
    def tails(self) -> str:
        """The ends of the logs of the instance's processes."""

    # Asking

    def until(self, what: str, done: Callable[[], T], timeout: float = 240, why: Callable[[], str] | None = None) -> T:
        """Waits for the first true value and returns it; AssertionError when it is late, or when Dagster died."""
        deadline = time.monotonic() + timeout
        while not (value := done()):
            assert not (dead := self.dead()), f"waiting for {what}, but: {dead}"
            assert time.monotonic() < deadline, f"{what}: not within {timeout:g} s\n{(why or self.tails)()}"
            time.sleep(POLL)
        return value

    def ask(self, field: str, wanted: str, /, **variables: tuple[str, Any]) -> dict[str, Any]:
        """One field of the root and its answer; an answer that is no `wanted` fails with what Dagster said.

        :param field: the field with its arguments and selection, as `runOrError(runId: $run) { … on Run { status } }`;
            a mutation starts with the word `mutation`.
        :param variables: name -> (GraphQL type, value).
        """
        kind, _, body = field.partition(" ") if field.startswith("mutation ") else ("query", "", field)
        opening = body.index("{") + 1
        errors = f"__typename ... on Error {{ message ... on PythonError {{ {_ERROR} }} }}"
        declared = ", ".join(f"${name}: {of}" for name, (of, _) in variables.items())
        head = f"{kind}({declared})" if declared else kind
        query = f"{head} {{ {body[:opening]} {errors} {body[opening:]} }}"
        given = {name: value for name, (_, value) in variables.items()}
        try:
            reply = self._http.post(f"{self.url}/graphql", json={"query": query, "variables": given})
        except httpx.HTTPError as error:
            raise AssertionError(f"no answer from {self.url}: {error!r}\n{self.dead() or self.tails()}") from error
        assert "json" in reply.headers.get("content-type", ""), reply.text[:2000]
        assert not reply.json().get("errors"), f"{reply.text[:4000]}\n{query}"
        found: dict[str, Any]
        (found,) = reply.json()["data"].values()
        assert found["__typename"] == wanted, f"{body.split('(')[0]}: {found}"
        return found

    def location(self) -> dict[str, str]:
        """The selector of the only code location; AssertionError with its traceback if it does not load."""
        (entry,) = self.ask(
            f"""workspaceOrError {{ ... on Workspace {{ locationEntries {{ name locationOrLoadError {{
                __typename ... on RepositoryLocation {{ repositories {{ name }} }} ... on PythonError {{ {_ERROR} }}
            }} }} }} }}""",
            "Workspace",
        )["locationEntries"]
        loaded = entry["locationOrLoadError"]
        assert loaded and loaded["__typename"] == "RepositoryLocation", f"the code does not load: {loaded}"  # noqa: PT018
        return {"repositoryLocationName": entry["name"], "repositoryName": loaded["repositories"][0]["name"]}

    # Runs

    def launch(
        self,
        asset_keys: Collection[str],
        partition: str | None = None,
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Materialises assets with their checks and returns the run's id."""
        given = {**(tags or {}), **({"dagster/partition": partition} if partition is not None else {})}
        selector = {**self.location(), "jobName": "__ASSET_JOB", "assetSelection": [_key(key) for key in asset_keys]}
        parameters = {
            "selector": selector,
            "runConfigData": dict(run_config or {}),
            "executionMetadata": {"tags": _tags(given)},
        }
        field = f"mutation launchPipelineExecution(executionParams: $params) {{ {_LAUNCHED} }}"
        run: str = self.ask(field, "LaunchRunSuccess", params=("ExecutionParams!", parameters))["run"]["runId"]
        return run

    def reexecute(self, run_id: str, strategy: str = "FROM_FAILURE") -> str:
        """Repeats a run, FROM_FAILURE or ALL_STEPS, as the button on its page does; returns the new run's id."""
        parameters = {"parentRunId": run_id, "strategy": strategy}
        field = f"mutation launchPipelineReexecution(reexecutionParams: $params) {{ {_LAUNCHED} }}"
        run: str = self.ask(field, "LaunchRunSuccess", params=("ReexecutionParams!", parameters))["run"]["runId"]
        return run

    def terminate(self, run_id: str) -> None:
        """A user's termination; it returns when the run worker was told, not when the run is CANCELED."""
        field = """mutation terminateRun(runId: $run, terminatePolicy: SAFE_TERMINATE) {
            ... on TerminateRunSuccess { run { runId } } ... on TerminateRunFailure { message } }"""
        self.ask(field, "TerminateRunSuccess", run=("String!", run_id))

    def run(self, run_id: str) -> Run:
        """One run."""
        return Run.of(self.ask(f"runOrError(runId: $run) {{ ... on Run {{ {_RUN} }} }}", "Run", run=("ID!", run_id)))

    def runs(self, tags: Mapping[str, str] | None = None, statuses: Collection[str] | None = None) -> list[Run]:
        """Runs that have all of the tags and one of the states, the newest first."""
        wanted: dict[str, Any] = {"tags": _tags(tags)} if tags else {}
        if statuses:
            wanted["statuses"] = list(statuses)
        field = f"runsOrError(filter: $filter, limit: 100) {{ ... on Runs {{ results {{ {_RUN} }} }} }}"
        return [Run.of(each) for each in self.ask(field, "Runs", filter=("RunsFilter", wanted))["results"]]

    def wait_status(self, run_id: str, statuses: Collection[str] = ENDED, timeout: float = 240) -> str:
        """Waits for one of the states and returns it; a run that ended otherwise fails at once, with its events."""

        def reached() -> str | None:
            status = self.run(run_id).status
            assert status in statuses or status not in ENDED, f"the run is {status}\n{self.describe(run_id)}"
            return status if status in statuses else None

        what = f"run {run_id} to be {' or '.join(sorted(statuses))}"
        return str(self.until(what, reached, timeout, lambda: self.describe(run_id)))

    def wait_retry(self, run_id: str) -> Run:
        """Waits for the run that repeats this one, by itself or by a user, and returns the newest."""
        tags = {"dagster/parent_run_id": run_id}
        found = self.until(f"a run that repeats {run_id}", lambda: self.runs(tags), why=lambda: self.describe(run_id))
        return found[0]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """All events of a run in their order: eventType, message, stepKey, metadata, error."""
        field = f"""logsForRun(runId: $run, afterCursor: $after) {{ ... on EventConnection {{ cursor hasMore events {{
            ... on MessageEvent {{ eventType message stepKey level }}
            ... on DisplayableEvent {{ {_METADATA} }}
            ... on ErrorEvent {{ error {{ {_ERROR} }} }}
        }} }} }}"""
        found: list[dict[str, Any]] = []
        after, more = None, True
        while more:
            page = self.ask(field, "EventConnection", run=("ID!", run_id), after=("String", after))
            found += page["events"]
            after, more = page["cursor"], page["hasMore"]
        for event in found:
            event["metadata"] = _metadata_of(event.pop("metadataEntries", None) or [])
        return found

    def describe(self, run_id: str) -> str:
        """The state of a run and its last events: for messages."""
        lines = [f"run {run_id} is {self.run(run_id).status}"]
        for event in self.events(run_id)[-25:]:
            lines.append(f"{event['eventType'] or event['level']} {event['stepKey'] or ''}: {event['message']}")
            lines += [str(event["error"])] if event.get("error") else []
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
            "assetSelection": [_key(key) for key in asset_keys],
            "partitionNames": list(partitions),
            "runConfigData": dict(run_config or {}),
            "tags": _tags(tags or {}),
        }
        return self._backfill("launchPartitionBackfill(backfillParams: $params)", "LaunchBackfillParams!", parameters)

    def reexecute_backfill(self, backfill_id: str) -> str:
        """Repeats a backfill that has ended from failure, as the button on its page does; returns the new one's id."""
        parameters = {"parentRunId": backfill_id, "strategy": "FROM_FAILURE"}
        return self._backfill("reexecutePartitionBackfill(reexecutionParams: $params)", "ReexecutionParams", parameters)

    def _backfill(self, mutation: str, kind: str, parameters: Mapping[str, Any]) -> str:
        field = f"mutation {mutation} {{ ... on LaunchBackfillSuccess {{ backfillId }} }}"
        backfill: str = self.ask(field, "LaunchBackfillSuccess", params=(kind, parameters))["backfillId"]
        return backfill

    def wait_backfill(self, backfill_id: str) -> str:
        """Waits until a backfill has ended and returns how."""
        field = f"""partitionBackfillOrError(backfillId: $id) {{
            ... on PartitionBackfill {{ status error {{ {_ERROR} }} }} }}"""

        def ended() -> str | None:
            found = self.ask(field, "PartitionBackfill", id=("String!", backfill_id))
            assert not found["error"], found["error"]
            return found["status"] if found["status"] in BACKFILL_ENDED else None

        def why() -> str:
            return "\n".join(self.describe(run.run_id) for run in self.runs({"dagster/backfill": backfill_id}))

        return str(self.until(f"backfill {backfill_id} to end", ended, 300, why))

    # Sensors and assets

    def ticks(self, sensor: str) -> list[dict[str, Any]]:
        """The ticks of a sensor, the newest first: status, runIds, skipReason, timestamp (epoch s), error."""
        field = """sensorOrError(sensorSelector: $sensor) { ... on Sensor { sensorState { ticks(limit: 50) {
            status runIds skipReason timestamp error { message stack } } } } }"""
        selector = {**self.location(), "sensorName": sensor}
        found: list[dict[str, Any]] = self.ask(field, "Sensor", sensor=("SensorSelector!", selector))["sensorState"][
            "ticks"
        ]
        return found

    def wait_sensor_runs(self, sensor: str) -> list[str]:
        """Waits until a sensor has asked for a run, and returns all of theirs, the oldest first."""

        def asked() -> list[str]:
            return [run for tick in reversed(self.ticks(sensor)) for run in tick["runIds"]]

        return self.until(
            f"a run that sensor {sensor} asked for", asked, why=lambda: f"{self.ticks(sensor)[:5]}\n{self.tails()}"
        )

    def materializations(self, key: str) -> list[AssetEvent]:
        """The materializations of an asset, the newest first."""
        field = f"""assetOrError(assetKey: $key) {{ ... on Asset {{
            assetMaterializations(limit: 100) {{ runId partition timestamp {_METADATA} }} }} }}"""
        found = self.ask(field, "Asset", key=("AssetKeyInput!", _key(key)))["assetMaterializations"]
        return [
            AssetEvent(
                each["runId"], each["partition"], int(each["timestamp"]) / 1000, _metadata_of(each["metadataEntries"])
            )
            for each in found
        ]

    def asset_checks(self, key: str) -> dict[str, str]:
        """The checks of an asset that have run, by name, with the state of their latest execution."""
        field = """assetNodeOrError(assetKey: $key) { ... on AssetNode { assetChecksOrError {
            ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } }"""
        checks = self.ask(field, "AssetNode", key=("AssetKeyInput!", _key(key)))["assetChecksOrError"]["checks"]
        latest = {each["name"]: each["executionForLatestMaterialization"] for each in checks}
        return {name: found["status"] for name, found in latest.items() if found}


def _metadata_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Label -> value; None for kinds that no test reads."""
    values = {}
    for entry in entries:
        kind = entry["__typename"].removesuffix("MetadataEntry")
        # The plain fields of numbers are null beyond 32 bits, and for numbers that JSON lacks.
        numbers = {"Int": lambda e=entry: int(e["intRepr"]), "Float": lambda e=entry: float(e["floatRepr"])}
        values[entry["label"]] = numbers[kind]() if kind in numbers else entry.get(_VALUES.get(kind, ""))
    return values


def _key(user_string: str) -> dict[str, list[str]]:
    return {"path": user_string.split("/")}


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]

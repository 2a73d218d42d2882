"""Access to a running Airflow by its REST API and log files: DAGs, runs, tasks, XComs, waits with deadlines.

This module does not import Airflow, which runs in other processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

POLL = 0.15


class AirflowRest:
    """The base of a lab; needs `url` to be up and `logs` to be where tasks log."""

    def __init__(self) -> None:
        self.url = ""
        self.logs = Path()
        self._http = httpx.Client(timeout=240, trust_env=False)

    def dead(self) -> Mapping[str, str]:
        """Processes of the lab that ended by themselves: name -> how."""
        raise NotImplementedError

    def until(self, what: str, done: Callable[[], Any], timeout: float = 240, why: Callable[[], str] = str) -> Any:
        """Polls `done` until it is truthy and returns that; AssertionError at the deadline or when a process died."""
        deadline = time.monotonic() + timeout
        while not (value := done()):
            if dead := self.dead():
                raise AssertionError(f"waiting for {what}, but: " + "\n".join(f"{k} {v}" for k, v in dead.items()))
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {timeout:g} s\n{why()}".rstrip())
            time.sleep(POLL)
        return value

    def api(self, method: str, path: str, json: Any = None, params: Mapping[str, Any] | None = None) -> Any:
        """One request below /api/v2; its parsed JSON, None for an empty body; AssertionError says what was refused."""
        if "authorization" not in self._http.headers:
            token = self._http.get(f"{self.url}/auth/token").raise_for_status().json()["access_token"]
            self._http.headers["authorization"] = f"Bearer {token}"
        reply = self._http.request(method, f"{self.url}/api/v2{path}", json=json, params=params)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text[:2000]}"
        return reply.json() if reply.content else None

    # DAGs

    def wait_for_dags(self, dag_ids: Collection[str], timeout: float = 240) -> None:
        """Waits until all of these are parsed; an import error of any file is raised at once."""
        missing = set(dag_ids)

        def there() -> bool:
            missing.difference_update(dag["dag_id"] for dag in self.api("GET", "/dags?limit=100")["dags"])
            if missing and (errors := self.api("GET", "/importErrors")["import_errors"]):
                raise AssertionError("\n".join(f"{each['filename']}: {each['stack_trace']}" for each in errors))
            return not missing

        self.until("DAGs to be parsed", there, timeout, lambda: f"missing: {', '.join(sorted(missing))}")

    def unpause(self, dag_id: str) -> None:
        """Lets the scheduler run the DAG."""
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, logical_date: datetime | None = None) -> str:
        """Unpauses the DAG, starts a run and returns its id."""
        self.unpause(dag_id)
        body = {"logical_date": logical_date.isoformat() if logical_date else None, "conf": dict(conf or {})}
        run_id: str = self.api("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"]
        return run_id

    # Runs

    def run_state(self, dag_id: str, run_id: str) -> str:
        """The state of a DAG run."""
        state: str = self.api("GET", _run(dag_id, run_id))["state"]
        return state

    def wait_run(
        self, dag_id: str, run_id: str, states: Collection[str] = ("success", "failed"), timeout: float = 240
    ) -> str:
        """Waits for one of the states and returns it; the error names the tasks' states and ends of their logs."""
        state: str = self.until(
            f"run {run_id} of {dag_id} to be {' or '.join(sorted(states))}",
            lambda: (now := self.run_state(dag_id, run_id)) in states and now,
            timeout,
            lambda: self.describe(dag_id, run_id),
        )
        return state

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Marks a DAG run as a user does."""
        self.api("PATCH", _run(dag_id, run_id), {"state": state})

    def describe(self, dag_id: str, run_id: str) -> str:
        """The state of a run and its tasks, with the ends of their logs: for messages."""
        lines = [f"the run is {self.run_state(dag_id, run_id)}"]
        for task in self.tasks(dag_id, run_id):
            lines.append(f"-- {task['task_id']}[{task['map_index']}]: {task['state']}, try {task['try_number']}")
            log = self.log(dag_id, run_id, task["task_id"], task["try_number"], task["map_index"])
            lines += log.splitlines()[-25:]
        return "\n".join(lines)

    # Tasks

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """All task instances of a run, up to 100."""
        found: list[dict[str, Any]] = self.api("GET", f"{_run(dag_id, run_id)}/taskInstances?limit=100")[
            "task_instances"
        ]
        return found

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """One task instance: state, try_number, max_tries, pid, hostname and the rest of what the API tells."""
        found: dict[str, Any] = self.api("GET", _task(dag_id, run_id, task_id, map_index))
        return found

    def wait_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        states: Iterable[str],
        timeout: float = 240,
        map_index: int = -1,
        try_number: int | None = None,
    ) -> dict[str, Any]:
        """Waits until the task instance (in this try, if given) has one of the states, and returns it."""
        wanted = {states} if isinstance(states, str) else set(states)

        def there() -> dict[str, Any] | None:
            now = self.task(dag_id, run_id, task_id, map_index)
            return now if now["state"] in wanted and try_number in (None, now["try_number"]) else None

        what = f"task {task_id}[{map_index}] of {dag_id} to be {' or '.join(sorted(map(str, wanted)))}"
        what += f" in try {try_number}" if try_number else ""
        found: dict[str, Any] = self.until(what, there, timeout, lambda: self.describe(dag_id, run_id))
        return found

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Marks a task instance as a user does."""
        self.api("PATCH", _task(dag_id, run_id, task_id, map_index), {"new_state": state})

    def clear(
        self, dag_id: str, run_id: str, task_ids: Iterable[str | tuple[str, int]], only_failed: bool = False
    ) -> None:
        """Clears task instances of a run, as a user does; a pair names one map index."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(task_ids), "only_failed": only_failed}
        cleared = self.api("POST", f"/dags/{dag_id}/clearTaskInstances", body)
        assert cleared["total_entries"], f"nothing was cleared: {cleared}"

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """The value of an XCom, as plain JSON."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        return self.api("GET", path, params={"map_index": map_index, "deserialize": True})["value"]

    def has_xcom(self, dag_id: str, run_id: str, task_id: str, key: str) -> bool:
        """Whether a task has an XCom of this key."""
        entries = self.api("GET", f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries")
        return any(entry["key"] == key for entry in entries["xcom_entries"])

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """The log of one try from its files, the triggerer's part too; in order of time."""
        folder = self.logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        if map_index >= 0:
            folder /= f"map_index={map_index}"
        files = sorted(folder.glob(f"attempt={try_number}.log*"))
        lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
        return "\n".join(text for _, text in sorted((_entry(line) for line in lines), key=lambda entry: entry[0]))


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"


def _task(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    return f"{_run(dag_id, run_id)}/taskInstances/{quote(task_id)}" + (f"/{map_index}" if map_index >= 0 else "")


#: What is the same in every line of a task's log, or is of no use without Airflow's source.
_NOISE = ("dag_id", "run_id", "task_id", "map_index", "ti_id", "try_number", "logger", "filename", "lineno")


def _entry(line: str) -> tuple[str, str]:
    """The time of a log line, and the line with its texts unescaped; one that is not JSON as it is, at the end."""
    try:
        entry = json.loads(line)
    except ValueError:
        return "~", line
    if not isinstance(entry, dict):
        return "~", line
    when, level, event = (str(entry.pop(name, "")) for name in ("timestamp", "level", "event"))
    rest = [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in entry.items() if k not in _NOISE]
    return when, " ".join([when, level, event, *rest])

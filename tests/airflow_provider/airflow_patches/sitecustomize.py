"""Imported by each Python process of the lab: changes to Airflow and to the provider for which there is no setting.

- The execution API is built in its newest version only. Building its nine versions takes 4 s of CPU in each process
  that serves it, at the first request: the API server, the triggerer, and `dag.test()`. Tasks and triggers of the same
  Airflow use the newest.
- A supervisor looks at least four times a second whether its process has ended. It can miss the end, and waits ten
  seconds more when a triggerer is shut down; a triggerer looks for new triggers when this wait is over.
- Airflow kills a stopped task, and the provider gives up asking Airflow, after ten times as long:
  on a busy machine each of these steps takes seconds.
"""

import importlib.util
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

#: Factor of the time limits that a busy machine exceeds.
BUSY = 10


class _Patches(MetaPathFinder):
    """Finds `newest_version.py` in place of Airflow's list of versions, and changes other modules once imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "airflow.api_fastapi.execution_api.versions":
            return importlib.util.spec_from_file_location(fullname, Path(__file__).with_name("newest_version.py"))
        if fullname not in _CHANGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _CHANGES[fullname](module)

        loader.exec_module = exec_module
        return spec


def _change_supervisor(supervisor: Any) -> None:
    service = supervisor.WatchedSubprocess._service_subprocess

    def at_most(self: object, max_wait_time: float, *args: Any, **kwargs: Any) -> Any:
        return service(self, min(max_wait_time, 0.25), *args, **kwargs)

    supervisor.WatchedSubprocess._service_subprocess = at_most
    kill = supervisor.ActivitySubprocess.kill
    later_s = kill.__defaults__[1] * BUSY

    def kill_later(
        self: object, signal_to_send: int = signal.SIGINT, escalation_delay: float = later_s, force: bool = False
    ) -> None:
        kill(self, signal_to_send, escalation_delay, force)

    supervisor.ActivitySubprocess.kill = kill_later


def _change_killing(killing: Any) -> None:
    killing.ANSWER_S *= BUSY


_CHANGES: Mapping[str, Callable[[ModuleType], None]] = {
    "airflow.sdk.execution_time.supervisor": _change_supervisor,
    "airflow_provider_weblake.operators.killing": _change_killing,
}

sys.meta_path.insert(0, _Patches())

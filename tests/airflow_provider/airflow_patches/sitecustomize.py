"""Imported by each Python process of the lab: two changes to Airflow for which it has no setting.

- The execution API is built in its newest version only. Building its nine versions takes 4 s of CPU in each process
  that serves it, at the first request: the API server, the triggerer, and `dag.test()`. Tasks and triggers of the same
  Airflow use the newest.
- A supervisor looks at least four times a second whether its process has ended. It can miss the end, and waits ten
  seconds more when a triggerer is shut down; a triggerer looks for new triggers when this wait is over.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class _Patches(MetaPathFinder):
    """Finds `newest_version.py` in place of Airflow's list of versions, and changes the supervisor once imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "airflow.api_fastapi.execution_api.versions":
            return importlib.util.spec_from_file_location(fullname, Path(__file__).with_name("newest_version.py"))
        if fullname != "airflow.sdk.execution_time.supervisor":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _look_often(module)

        loader.exec_module = exec_module
        return spec


def _look_often(supervisor: Any) -> None:
    service = supervisor.WatchedSubprocess._service_subprocess

    def at_most(self: object, max_wait_time: float, *args: Any, **kwargs: Any) -> Any:
        return service(self, min(max_wait_time, 0.25), *args, **kwargs)

    supervisor.WatchedSubprocess._service_subprocess = at_most


sys.meta_path.insert(0, _Patches())

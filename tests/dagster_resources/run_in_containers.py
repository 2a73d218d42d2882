"""Executes the job of container_definitions.py as a run worker does, with processes in the place of containers.

    python run_in_containers.py

The last line on standard output is what happened, as JSON (see container_processes.py).
"""

from __future__ import annotations

import json
import os
from typing import Any

import container_definitions
import container_processes
import dagster as dg

K8S_LAUNCHER = {
    "module": "dagster_k8s",
    "class": "K8sRunLauncher",
    "config": {
        "service_account_name": "dagster",
        "instance_config_map": "dagster-instance",
        "dagster_home": "/opt/dagster/home",
        "job_image": "example.com/lake:1",
    },
}


def main() -> None:
    settings: dict[str, Any] = {"telemetry": {"enabled": False}}
    if os.environ["EXECUTOR"] == "docker":
        container_processes.docker()
    else:
        container_processes.kubernetes()
        settings["run_launcher"] = K8S_LAUNCHER
    home = container_processes.FOLDER / "home"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home), overrides=settings) as instance:
        job = dg.reconstructable(container_definitions.land)
        with dg.execute_job(job, instance=instance) as result:
            loads = [
                {name: value.value for name, value in event.materialization.metadata.items() if "/" in name}
                for event in result.get_asset_materialization_events()
            ]
            found = {"success": result.success, "loads": [each.get("weblake/load_id") for each in loads]}
            found["rows"] = [each.get("dagster/row_count") for each in loads]
    left = container_processes.wait_for_all()
    print(json.dumps({**found, "jobs": container_processes.jobs(), "left": left}))


if __name__ == "__main__":
    main()

"""`weblake demo`: the whole story on one machine, against a site that comes with it.

site, stations    what the site says, as pages that are the same on every machine
site_server       serves them on a loopback port
story             the steps: serve, crawl, batch, batch again, Airflow, Dagster, usage, activity
airflow_step      the step that runs an example DAG, where the provider is installed
dagster_step      the step that materializes the example assets, where the integration is installed
guest_process     what the two have in common: a process of its own that ends with the demo
telling           what people see at the end
"""

from __future__ import annotations

from pathlib import Path


def run_demo(to: Path | None = None, *, as_json: bool = False) -> None:
    """Run the demo and show what came of it.

    Args:
        to: The dataset's root, created when missing; one that holds loads keeps them. By default a fresh directory
            below the current one: `weblake-demo`, then `weblake-demo-2` and so on.
        as_json: Prints one JSON object, `{"root", "loads", "usage", "activity", "seconds"}`, in place of the tables.

    Raises:
        InvalidOption: `to` is a URL.
        FeatureMissing: The extra `weblake[local]` is not installed.
        StorageRefused: The directory cannot be written, or another demo is running in it.
        WeblakeError: What else stood in the way.
    """
    from weblake.demo import story, telling

    told = story.play(to)
    if as_json:
        telling.show_object(told)
    else:
        telling.show_all(told)

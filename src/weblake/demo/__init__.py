"""`weblake demo`: an end-to-end demo on one machine, against an included site.

site, stations    the content of the site, the same on every machine
site_server       serves the site on a loopback port
story             the steps: serve, crawl, batch, batch again, Airflow, Dagster, usage, activity
airflow_step      the step that runs an example DAG, if the provider is installed
dagster_step      the step that materializes the example assets, if the integration is installed
guest_process     the process of an Airflow or Dagster step, which ends with the demo
telling           the output at the end
"""

from __future__ import annotations

from pathlib import Path


def run_demo(to: Path | None = None, *, as_json: bool = False) -> None:
    """Run the demo and show its results.

    Args:
        to: The dataset's root, created if missing; existing loads are kept. By default a new directory below the
            current
            one: `weblake-demo`, then `weblake-demo-2` and so on.
        as_json: Whether to print one JSON object, `{"root", "loads", "usage", "activity", "seconds"}`, instead of
            tables.

    Raises:
        InvalidOption: `to` is a URL.
        FeatureMissing: The extra `weblake[local]` is not installed.
        StorageRefused: The directory cannot be written, or another demo is running in it.
        WeblakeError: Any other failure of a step.
    """
    from weblake.demo import story, telling

    told = story.play(to)
    if as_json:
        telling.show_object(told)
    else:
        telling.show_all(told)

"""weblake for Apache Airflow: web data landed as Parquet, exactly once, paid once.

DAGs import from `operators.weblake`, `sensors.weblake`, `hooks.weblake`, `triggers.weblake`, `assets.weblake` and
`url_shards`. Every Airflow process imports this package to read get_provider_info, so this module imports neither
Airflow nor other modules of the package.
"""

import re
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

#: The oldest supported release of Airflow: up to 3.0.3, a task that is stopped is not told, so its job would go on
#: unwanted; 3.0.4 and 3.0.5 are not tested.
_OLDEST = (3, 0, 6)


def _check_airflow() -> None:
    """Raise an error if the installed Airflow is too old, as an installer that ignores dependencies may leave it."""
    try:
        found = version("apache-airflow")
    except PackageNotFoundError:
        return  # a worker with the task SDK only
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", found)
    if numbers and tuple(int(part or 0) for part in numbers.groups()) < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise RuntimeError(
            f"airflow-provider-weblake {__version__} needs Apache Airflow {needed} or later, and this is {found}: "
            "upgrade Airflow, or uninstall the provider."
        )


_check_airflow()

"""weblake for Apache Airflow: web data landed as Parquet, exactly once, paid once.

DAGs import from `operators.weblake`, `sensors.weblake`, `hooks.weblake`, `triggers.weblake` and `assets.weblake`, and
`url_shards`. Every Airflow process loads this package to read get_provider_info; so nothing of ours or of Airflow's is
imported here.
"""

import re
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

#: The oldest release of Airflow with all that is built on here: retry policies, and triggers that hear of a kill.
_OLDEST = (3, 3, 2)


def _check_airflow() -> None:
    """Says what is wrong where an installer that minds no dependencies has put this beside an older Airflow."""
    try:
        found = version("apache-airflow")
    except PackageNotFoundError:
        return  # a worker with the task SDK alone
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", found)
    if numbers and tuple(int(part or 0) for part in numbers.groups()) < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise RuntimeError(
            f"airflow-provider-weblake {__version__} needs Apache Airflow {needed} or later, and this is {found}: "
            "upgrade Airflow, or uninstall the provider."
        )


_check_airflow()

"""weblake for Apache Airflow: web data landed as Parquet, exactly once, paid once.

DAGs import from `operators.weblake`, `sensors.weblake`, `hooks.weblake`, `triggers.weblake` and `assets.weblake`, and
`url_shards`. Every Airflow process loads this package to read get_provider_info; so nothing is imported here.
"""

__version__ = "0.1.0"

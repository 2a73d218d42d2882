"""weblake for Apache Airflow: the hook, operators, sensors and trigger come with the Airflow issue."""

__version__ = "0.1.0"

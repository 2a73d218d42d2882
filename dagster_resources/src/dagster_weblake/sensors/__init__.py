"""Sensors for jobs that have ended, for jobs and loads of other programs, and for closed usage periods."""

from __future__ import annotations

from dagster_weblake.sensors.collect import build_collect_sensor
from dagster_weblake.sensors.elsewhere_jobs import build_jobs_elsewhere_sensor
from dagster_weblake.sensors.elsewhere_loads import build_loads_elsewhere_sensor
from dagster_weblake.sensors.usage_closed import build_usage_closed_sensor

__all__ = [
    "build_collect_sensor",
    "build_jobs_elsewhere_sensor",
    "build_loads_elsewhere_sensor",
    "build_usage_closed_sensor",
]

"""The sensor that has ended jobs collected."""

from __future__ import annotations

from dagster_weblake.sensors.collect import build_collect_sensor

__all__ = ["build_collect_sensor"]

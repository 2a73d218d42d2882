"""Asset checks of landed documents and of the team's usage."""

from __future__ import annotations

from dagster_weblake.checks.builders import build_document_checks, build_usage_checks

__all__ = ["build_document_checks", "build_usage_checks"]

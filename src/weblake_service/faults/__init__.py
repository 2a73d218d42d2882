"""Fault injection: rules that make requests, pages and webhooks fail on purpose, for tests."""

from __future__ import annotations

from weblake_service.faults.active_rules import ActiveFaults, FaultyWebhookSender
from weblake_service.faults.middleware import FaultMiddleware
from weblake_service.faults.rule_files import read_file, read_rule, read_rules
from weblake_service.faults.rules import Rule

__all__ = [
    "ActiveFaults",
    "FaultMiddleware",
    "FaultyWebhookSender",
    "Rule",
    "read_file",
    "read_rule",
    "read_rules",
]

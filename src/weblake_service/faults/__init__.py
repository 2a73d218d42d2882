"""The fault menu: what a test wants to go wrong, and the doors through which it does.

rules     what a rule says
reading   how rules are read from JSON and from files
active_rules  the rules that hold, and what they do
replies   replies on their way out, spoilt
middleware  the requests that are struck
webhooks  the webhooks that are struck
"""

from __future__ import annotations

from weblake_service.faults.active_rules import Faults, PageEffect
from weblake_service.faults.middleware import FaultDoor
from weblake_service.faults.rule_files import read_file, read_rule, read_rules
from weblake_service.faults.rules import Rule
from weblake_service.faults.webhooks import FaultyPost

__all__ = ["FaultDoor", "Faults", "FaultyPost", "PageEffect", "Rule", "read_file", "read_rule", "read_rules"]

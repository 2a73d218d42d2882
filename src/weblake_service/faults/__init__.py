"""The fault menu: what a test wants to go wrong, and the doors through which it does.

rules     what a rule says
reading   how rules are read from JSON and from files
menu      the rules that hold, and what they do
replies   replies on their way out, spoilt
door      the requests that are struck
posts     the webhooks that are struck
"""

from __future__ import annotations

from weblake_service.faults.door import FaultDoor
from weblake_service.faults.menu import Faults, PageEffect
from weblake_service.faults.posts import FaultyPost
from weblake_service.faults.reading import read_file, read_rule, read_rules
from weblake_service.faults.rules import Rule

__all__ = ["FaultDoor", "Faults", "FaultyPost", "PageEffect", "Rule", "read_file", "read_rule", "read_rules"]

"""Fault rules that tests add by method calls.

faults.add(status=503, path="/v2/crawl$", times=2, retry_after=1)
with faults.add(stall_job=True, job="crawl"):
    ...                                          # a crawl makes no progress in this block

`weblake serve --faults FILE` reads rules from a TOML or JSON file:

    [[rules]]
    match = { method = "POST", path = "/v2/crawl$" }
    times = 2
    effect = { status = 429, retry_after = 5 }

    [[rules]]
    probability = 0.1
    seed = 7
    times = 1000000
    effect = { fail_page = "SCRAPE_TIMEOUT" }
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from weblake.testing.control import Control


class WeblakeFaults:
    """The fault rules of a service. The first rule that applies to a request decides."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def add(
        self,
        *,
        method: str | None = None,
        path: str = "",
        job: str | None = None,
        event: str | None = None,
        nth: int = 1,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
        **effect: object,
    ) -> FaultRule:
        """Add a rule after the existing ones and return it; as a context manager it is removed at the end of the block.

        Args:
            method: For requests: the HTTP method.
            path: A regular expression, searched in a request's path and query, the URL of a page (fail_page,
                lose_page, stall_job), or the URL of a receiver (effects on webhooks).
            job: The id of a job, or the kind of jobs: batch_scrape, crawl, scrape, map, search, parse.
            event: For webhooks: an event such as `completed`, or in full `crawl.completed`.
            nth: The number of the first match that the rule applies to.
            times: How many times the rule applies; None until it is removed.
            probability: The share of the matches that the rule applies to; `seed` selects them.
            seed: The seed of the selection.
            effect: One or more of the effects that docs/site/tasks/testing.md lists, such as `status=503`.

        Raises:
            ValueError: The effect is unknown or the rule is invalid; the message lists the known effects.
        """
        __tracebackhide__ = True
        match = {"method": method, "path": path, "job": job, "event": event, "nth": nth}
        rule = {"match": match, "times": times, "probability": probability, "seed": seed, "effect": effect}
        return FaultRule(self, int(self._control.send("POST", "faults", rule)["id"]))

    def __call__(self, *rules: Mapping[str, object]) -> None:
        """Replace all rules by these, in the form of the control API; without arguments, remove all rules.

        Raises:
            ValueError: A rule does not have this form.
        """
        self._control.send("PUT", "faults", {"rules": list(rules)})

    def clear(self) -> None:
        """Remove all rules."""
        self._control.send("DELETE", "faults")

    def rules(self) -> list[dict[str, Any]]:
        """Return the current rules, each with `id`, `seen` (number of matches) and `hit` (number of times applied)."""
        return list(self._control.send("GET", "faults")["rules"])

    def hits(self) -> int:
        """Return how many times the current rules have been applied."""
        return sum(int(rule["hit"]) for rule in self.rules())

    def remove(self, rule_id: int) -> None:
        """Remove one rule; no error if it is already removed."""
        if any(rule["id"] == rule_id for rule in self.rules()):
            self._control.send("DELETE", f"faults/{rule_id}")


class FaultRule:
    """A fault rule of a service."""

    def __init__(self, faults: WeblakeFaults, rule_id: int) -> None:
        self._faults = faults
        self.id = rule_id

    @property
    def hits(self) -> int:
        """The number of times the rule has been applied; 0 after it is removed."""
        return next((int(rule["hit"]) for rule in self._faults.rules() if rule["id"] == self.id), 0)

    def remove(self) -> None:
        """Remove the rule; a job that it stalled continues."""
        self._faults.remove(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

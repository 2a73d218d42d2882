"""Fault rules by method calls.

faults.add(status=503, path="/v2/crawl$", times=2, retry_after=1)
with faults.add(stall_job=True, job="crawl"):
    ...                                          # a crawl makes no progress in here
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from typing_extensions import Self

from weblake.testing.control import Control


class WeblakeFaults:
    """What goes wrong at the service. The first rule that strikes decides."""

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
        """Adds a rule behind those that hold, and returns it; as a context manager it holds until the end of the block.

        Args:
            method: Of requests: GET, POST and so on.
            path: A regular expression, searched in a request's path and query, the URL of a page (fail_page,
                lose_page, stall_job), or that of a receiver (the effects on webhooks).
            job: A job's id, or the kind of the jobs: batch_scrape, crawl, scrape, map, search, parse.
            event: Of webhooks: an event such as `completed`, or in full `crawl.completed`.
            nth: The first of the matching ones that is struck.
            times: How often it strikes; None until it is removed.
            probability: The share that is struck of the matching ones; which ones follows from `seed`.
            seed: Chooses them.
            effect: What happens: one or several of those that docs/testing.md lists, such as `status=503`.

        Raises:
            ValueError: There is no such effect, or the rule makes no sense; the text says which there are.
        """
        __tracebackhide__ = True
        match = {"method": method, "path": path, "job": job, "event": event, "nth": nth}
        rule = {"match": match, "times": times, "probability": probability, "seed": seed, "effect": effect}
        return FaultRule(self, int(self._control.send("POST", "faults", rule)["id"]))

    def __call__(self, *rules: Mapping[str, object]) -> None:
        """Replaces all rules by these, in the form of the control API; without any, nothing goes wrong any more.

        Raises:
            ValueError: A rule is not of this form.
        """
        self._control.send("PUT", "faults", {"rules": list(rules)})

    def clear(self) -> None:
        """Drops all rules."""
        self._control.send("DELETE", "faults")

    def rules(self) -> list[dict[str, Any]]:
        """The rules that hold, each with `id`, `seen` (how many it was about) and `hit` (how many it struck)."""
        return list(self._control.get("faults")["rules"])

    def hits(self) -> int:
        """How often the rules that hold have struck."""
        return sum(int(rule["hit"]) for rule in self.rules())

    def remove(self, rule_id: int) -> None:
        """Drops one rule; a rule that is gone already is no error."""
        if any(rule["id"] == rule_id for rule in self.rules()):
            self._control.send("DELETE", f"faults/{rule_id}")


class FaultRule:
    """One rule that was added."""

    def __init__(self, faults: WeblakeFaults, rule_id: int) -> None:
        self._faults = faults
        self.id = rule_id

    @property
    def hits(self) -> int:
        """How often it has struck; 0 once it is removed."""
        return next((int(rule["hit"]) for rule in self._faults.rules() if rule["id"] == self.id), 0)

    def remove(self) -> None:
        """Drops it; a job that it stalled goes on."""
        self._faults.remove(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

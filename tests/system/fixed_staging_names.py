"""Runs weblake's command line with names in staging that can be foretold: `fixed_staging_names.py RUN COMMAND…`.

A fresh name in `_weblake/tmp` has a process number and a nonce. Here it has RUN and a count in their place, so that a
strike can be aimed at one file by its path. Two runs on one root need two numbers. Nothing else is changed.
"""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

from weblake import cli
from weblake.storage import local, scratch


def steady(run: int) -> None:
    """From here on the names of this process are `<run>-<count>`, and a count where there is only a nonce."""
    count = itertools.count(1)
    scratch._mark = lambda: f"{run}-{next(count):016x}"  # type: ignore[attr-defined]
    local.secrets = SimpleNamespace(token_hex=lambda size: f"{next(count):0{2 * size}x}")  # type: ignore[assignment]


if __name__ == "__main__":
    steady(int(sys.argv.pop(1)))
    cli.main()

"""Runs weblake's command line with predictable names in staging: `fixed_staging_names.py RUN COMMAND…`.

A new name in `_weblake/tmp` contains a process id and a nonce. Here it contains RUN and a counter instead, so that a
fault can be aimed at one file by its path. Two runs on one root need two numbers. Nothing else is changed.
"""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

from weblake import cli
from weblake.storage import local, scratch


def use_fixed_names(run: int) -> None:
    """Make the names of this process `<run>-<counter>`, and a counter where there is only a nonce."""
    count = itertools.count(1)
    scratch._unique_name = lambda: f"{run}-{next(count):016x}"  # type: ignore[attr-defined]
    local.secrets = SimpleNamespace(token_hex=lambda size: f"{next(count):0{2 * size}x}")  # type: ignore[assignment]


if __name__ == "__main__":
    use_fixed_names(int(sys.argv.pop(1)))
    cli.main()

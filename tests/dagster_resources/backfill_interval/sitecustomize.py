"""Imported by each Python process of the lab: Dagster's daemon looks at backfills every 2 s instead of every 30 s.

Dagster has no setting for it.
"""

import sys

if "dagster._daemon" in sys.orig_argv:
    from dagster._daemon import controller

    assert controller.DEFAULT_DAEMON_INTERVAL_SECONDS == 30
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 2

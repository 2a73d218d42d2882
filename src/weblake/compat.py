"""What Python 3.11 added to the standard library, for 3.10 from the libraries that backport it.

`re` has possessive quantifiers (`a*+`), `read_time` reads every ISO 8601 time that `datetime.fromisoformat` reads.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

__all__ = ["re", "read_time"]

# The types are those of the standard library, whose interface `regex` has.
if TYPE_CHECKING or sys.version_info >= (3, 11):
    import re

    read_time = datetime.fromisoformat
else:
    import regex as re
    from backports.datetime_fromisoformat import datetime_fromisoformat as read_time

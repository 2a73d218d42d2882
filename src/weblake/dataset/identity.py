"""What makes two loads the same load. Pure.

A `load_id` is 16 hexadecimal digits of a digest over the load's logical identity, so the same load always has the same
name, and a repeat finds what the first run did (design: "Load").
"""

from __future__ import annotations

import json
import re
import secrets
from hashlib import blake2b

from weblake.errors import InvalidOption

_LOAD_ID = re.compile(r"[0-9a-f]{16}")


def load_id_of(*parts: object) -> str:
    """The id of the load with this identity: JSON-ready parts, in a fixed order."""
    return blake2b(canonical(list(parts)), digest_size=8).hexdigest()


def job_load_id(kind: str, job_id: str) -> str:
    """The id of the load that lands a job by its kind (batch_scrape, crawl) and id alone."""
    return load_id_of("elsewhere", kind, job_id.lower())


def new_load_id() -> str:
    """A fresh id, for a load that is meant to be bought anew."""
    return secrets.token_hex(8)


def request_digest(body: object) -> str:
    """A digest of a request body, to tell whether two requests are the same without keeping either."""
    return blake2b(canonical(body), digest_size=16).hexdigest()


def checked_load_id(load_id: str) -> str:
    """The id itself.

    Raises:
        InvalidOption: It is not 16 lower-case hexadecimal digits; it becomes part of file names.
    """
    if not _LOAD_ID.fullmatch(load_id):
        raise InvalidOption(f"{load_id[:40]!r} is no load id.", hint="A load id has 16 hexadecimal digits.")
    return load_id


def canonical(value: object) -> bytes:
    """JSON with sorted keys and nothing to choose."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str).encode()

"""Load ids: 16 hexadecimal digits of a digest over the logical identity of a load. Pure functions.

The same load always has the same id, so a repeated run finds the records of the first run
(docs/decisions/027-load-id-without-root.md).
"""

from __future__ import annotations

import json
import re
import secrets
from hashlib import blake2b

from weblake.errors import InvalidOption

_LOAD_ID = re.compile(r"[0-9a-f]{16}")


def load_id_of(*parts: object) -> str:
    """Return the id of the load with this identity: JSON-ready parts, in a fixed order."""
    return blake2b(canonical(list(parts)), digest_size=8).hexdigest()


def job_load_id(kind: str, job_id: str) -> str:
    """Return the id of the load that lands a job, derived from its kind (batch_scrape, crawl) and job id alone."""
    return load_id_of("elsewhere", kind, job_id.lower())


def new_load_key() -> str:
    """Return a random key of a load, for a load that is meant to be bought again."""
    return secrets.token_hex(8)


def request_digest(body: object) -> str:
    """Return a digest of a request body, which allows comparing two requests without storing either."""
    return blake2b(canonical(body), digest_size=16).hexdigest()


def checked_load_id(load_id: str) -> str:
    """Return the load id unchanged after checking its form.

    Raises:
        InvalidOption: It is not 16 lower-case hexadecimal digits. Load ids become part of file names.
    """
    if not _LOAD_ID.fullmatch(load_id):
        raise InvalidOption(f"{load_id[:40]!r} is not a load id.", hint="A load id has 16 hexadecimal digits.")
    return load_id


def canonical(value: object) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no whitespace, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str).encode()

"""Where a text stands in what an orchestrator keeps: files, every column of every table, queued messages.

Orchestrators wrap texts (zlib, Fernet, base64 in queues, JSON escapes); what is wrapped is searched unwrapped too.
Imports: SQLAlchemy and cryptography, which Airflow needs itself.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import sqlalchemy as sa
from cryptography.fernet import Fernet, InvalidToken

#: Airflow's own vault for secrets: what is encrypted there is where it belongs.
_VAULT = {("connection", "password"), ("connection", "extra"), ("variable", "val")}
_FERNET = re.compile(rb"gAAAA[A-Za-z0-9_-]{60,}={0,2}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


def _unwrapped(data: bytes, fernet: Fernet | None, depth: int = 0) -> Iterator[bytes]:
    """The bytes, and what they hold compressed, encrypted or encoded."""
    yield data
    inner: list[bytes] = []
    if data[:1] == b"\x78":
        with contextlib.suppress(zlib.error):
            inner.append(zlib.decompress(data))
    for match in _FERNET.finditer(data) if fernet else ():
        try:
            inner.append(fernet.decrypt(match.group()))  # type: ignore[union-attr]
        except InvalidToken:
            continue
    for match in _BASE64.finditer(data):
        try:
            inner.append(base64.b64decode(match.group(), validate=True))
        except binascii.Error:
            continue
    for each in inner if depth < 3 else ():
        yield from _unwrapped(each, fernet, depth + 1)


def _spellings(needle: str) -> set[bytes]:
    """A text as UTF-8 and as JSON writes it, also in JSON that lies in JSON, as some columns have it."""
    found = {needle}
    for _ in range(3):
        found |= {json.dumps(each, ensure_ascii=ascii_only)[1:-1] for each in found for ascii_only in (True, False)}
    return {each.encode() for each in found}


def in_bytes(data: bytes, needle: str, fernet_key: str | None = None) -> bool:
    """Whether a text stands in these bytes, wrapped or plain."""
    fernet = Fernet(fernet_key) if fernet_key else None
    words = _spellings(needle)
    return any(word in each for each in _unwrapped(data, fernet) for word in words)


def in_files(roots: Iterable[Path], needle: str) -> list[str]:
    """The files below these roots in whose bytes or path a text stands."""
    found = []
    for root in roots:
        for path in sorted(root.rglob("*")):
            if needle in str(path.relative_to(root)):
                found.append(f"path {path}")
            try:
                data = path.read_bytes() if path.is_file() else b""
            except OSError:  # a socket, or gone meanwhile
                continue
            if any(word in data for word in _spellings(needle)):
                found.append(f"file {path}")
    return found


def in_database(url: str, needle: str, fernet_key: str) -> list[str]:
    """The rows of any table in which a text stands, as `row table.column {primary key}`."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    found = []
    with engine.connect() as db:
        inspector = sa.inspect(db)
        for table in inspector.get_table_names():
            keys = inspector.get_pk_constraint(table)["constrained_columns"]
            # As text: no type of the model in between that could fail on, or change, what is stored.
            for row in db.execute(sa.text(f'SELECT * FROM "{table}"')).mappings():
                for column, value in row.items():
                    key = None if (table, column) in _VAULT else fernet_key
                    if value is not None and in_bytes(_as_bytes(value), needle, key):
                        found.append(f"row {table}.{column} { ({name: row[name] for name in keys}) }")
    engine.dispose()
    return found


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "surrogatepass")

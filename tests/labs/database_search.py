"""Search for a text in the files of an orchestrator and in every column of every table of its database.

It finds all encodings and wrappings that secret_search.py knows.
"""

from __future__ import annotations

import sqlalchemy as sa
from secret_search import contains_secret as in_bytes
from secret_search import in_files

__all__ = ["in_bytes", "in_database", "in_files"]

#: Airflow's own store for secrets: encrypted values are expected there.
_VAULT = {("connection", "password"), ("connection", "extra"), ("variable", "val")}


def in_database(url: str, needle: str, fernet_key: str) -> list[str]:
    """Return the rows of any table that contain a text, as `row table.column {primary key}`."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    found = []
    with engine.connect() as db:
        inspector = sa.inspect(db)
        for table in inspector.get_table_names():
            keys = inspector.get_pk_constraint(table)["constrained_columns"]
            # Read as text, because a type of the model could fail on a stored value or change it.
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

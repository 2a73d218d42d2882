"""The search for a key finds it in every encoding and container, so that an empty result proves that it is absent."""

from __future__ import annotations

import base64
import gzip
import io
import json
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.fernet import Fernet
from secret_search import contains_secret, forms_of, in_files

#: Contains characters that percent-encoding, HTML and JSON each write differently.
KEY = "test-canary/0+1=<2>&'\"ü"
VAULT = Fernet.generate_key().decode()


def parquet(data: bytes, *, footer: bool = False) -> bytes:
    table = pa.table({"markdown": [None, b"x" if footer else data * 2], "n": [1, 2]})
    file = io.BytesIO()
    # Compressed: the plain text does not occur.
    pq.write_table(table.replace_schema_metadata({"receipt": data} if footer else None), file, compression="zstd")
    return file.getvalue()


def sqlite(data: bytes) -> bytes:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE snapshots (id INTEGER, body BLOB)")
    database.execute("INSERT INTO snapshots VALUES (1, ?)", (data,))
    database.commit()
    return database.serialize()


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.txt", b"x" * 100 + data)
    return file.getvalue()


WRAPPED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"xyz" + data + b"xyz",
    "zlib": lambda data: zlib.compress(b"x" * 100 + data),
    "zlib after a head": lambda data: b"\0\1head" + zlib.compress(b"x" * 100 + data),
    "gzip": lambda data: gzip.compress(b"x" * 100 + data),
    "zip": zipped,
    "Fernet": lambda data: Fernet(VAULT).encrypt(data),
    "base64 of a queue": lambda data: b'{"body": "' + base64.b64encode(b"[" + data * 3 + b"]") + b'"}',
    "base64 for URLs": lambda data: b"?state=" + base64.urlsafe_b64encode(b"\xfb\xff" + data * 3).rstrip(b"="),
    "Parquet pages": parquet,
    "a Parquet footer": lambda data: parquet(data, footer=True),
    "SQLite": sqlite,
    "SQLite of many pages": lambda data: sqlite(b"x" * 4090 + data + b"x" * 9000),
    "zlib in SQLite": lambda data: sqlite(zlib.compress(data)),
    "zlib of many pages in SQLite": lambda data: sqlite(zlib.compress(bytes(range(256)) * 20 + data, 0)),
    "Fernet in zlib": lambda data: zlib.compress(Fernet(VAULT).encrypt(data)),
    "zlib in Fernet in JSON": lambda data: json.dumps(
        {"a": Fernet(VAULT).encrypt(zlib.compress(data)).decode()}
    ).encode(),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_key_in_any_encoding_is_found_in_any_container(wrap: Callable[[bytes], bytes]) -> None:
    for form, data in forms_of(KEY).items():
        assert contains_secret(wrap(data), KEY, VAULT), form
        assert not contains_secret(wrap(data), "another-key/0+1=<2>", VAULT)


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_planted_key_is_the_only_one_found(wrap: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(wrap(KEY.encode()))
    (tmp_path / "other.txt").write_bytes(wrap(b"another key"))
    assert in_files([tmp_path], KEY, VAULT) == [f"file {tmp_path / 'log.txt'}"]


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_key_is_found_at_each_offset_of_an_encoded_text(before: int, codec: str) -> None:
    text = ("x" * before + KEY + "yz").encode(codec)
    for encoded in (base64.b64encode(text), base64.urlsafe_b64encode(text), text.hex().encode()):
        # Short enough, or truncated so, that it is not decoded as a whole.
        assert any(form in encoded for form in forms_of(KEY).values())


def test_a_token_of_another_encryption_key_is_not_opened() -> None:
    secret = Fernet(VAULT).encrypt(KEY.encode())
    assert not contains_secret(secret, KEY)
    assert not contains_secret(secret, KEY, Fernet.generate_key().decode())


def test_a_key_in_a_file_name_is_found(tmp_path: Path) -> None:
    place = tmp_path / f"dag_id={forms_of(KEY)['percent'].decode()}"
    place.mkdir()
    (place / "attempt=1.log").write_text("nothing")
    assert in_files([tmp_path], KEY) == [f"path {place}", f"path {place / 'attempt=1.log'}"]


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_truncated_file_is_searched_as_far_as_possible(wrap: Callable[[bytes], bytes]) -> None:
    whole = wrap(KEY.encode())
    for end in range(0, len(whole), max(1, len(whole) // 50)):
        contains_secret(whole[:end], KEY, VAULT)  # must not fail: a killed process leaves such files

"""The encodings in which a key can leak, and the search for them in bytes, in wrapped content and in files.

A text is searched in plain form, as JSON and HTML write it, percent-encoded, in hexadecimal, in UTF-16 of both byte
orders, and in base64 at each of its three alignments; the bytes are searched as they are, and after decompression
(zlib, gzip, zip, Parquet), decryption (Fernet, if its key is given), decoding (base64) or reading (SQLite).
"""

from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from live_files import walk

#: The depth to which nested wrappings are opened, and the bytes of one.
DEPTH, MOST = 3, 64 << 20
_FERNET = re.compile(rb"gAAAA[A-Za-z0-9_-]{60,}={0,2}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}|[A-Za-z0-9_-]{40,}={0,2}")
#: The first bytes of a zlib stream, at each of its usual levels, and of a gzip stream.
_DEFLATED = re.compile(rb"\x78[\x01\x5e\x9c\xda]|\x1f\x8b\x08")


#: The first bytes of Parquet, SQLite and zip files.
_CONTAINERS = (b"PAR1", b"SQLite format 3\0", b"PK\x03\x04")


@lru_cache
def forms_of(text: str) -> dict[str, bytes]:
    """Return a text in every encoding that is searched for, by the encoding's name."""
    plain = text.encode()
    percent = quote(text, safe="").encode()
    found = {
        "plain": plain,
        "percent": percent,
        "percent in lower case": re.sub(rb"%..", lambda match: match.group().lower(), percent),
        "percent for each byte": "".join(f"%{byte:02X}" for byte in plain).encode(),
        "HTML": html.escape(text).encode(),
        "UTF-16-LE": text.encode("utf-16-le"),
        "UTF-16-BE": text.encode("utf-16-be"),
    }
    for name in ("plain", "UTF-16-LE", "UTF-16-BE"):
        data = found[name]
        found |= {f"hexadecimal of {name}": data.hex().encode(), f"HEXADECIMAL of {name}": data.hex().upper().encode()}
        for before in range(3):
            encoded = base64.b64encode(b"\0" * before + data)[4 if before else 0 : -4]
            found[f"base64 of {name} at {before}"] = encoded
            found[f"base64 for URLs of {name} at {before}"] = encoded.translate(bytes.maketrans(b"+/", b"-_"))
    return found | {f"JSON {number}": each for number, each in enumerate(sorted(_in_json(text)))}


def _in_json(text: str) -> set[bytes]:
    """Return a text as JSON writes it, also in JSON inside JSON, as some columns have it."""
    found = {text}
    for _ in range(3):
        found |= {json.dumps(each, ensure_ascii=ascii_only)[1:-1] for each in found for ascii_only in (True, False)}
    return {each.encode() for each in found}


def contains_secret(data: bytes, text: str, fernet_key: str | None = None) -> bool:
    """Return whether these bytes contain a text in any encoding, wrapped or not."""
    words = set(forms_of(text).values())
    return any(word in each for each in _unwrapped(data, _decrypter(fernet_key)) for word in words)


def in_files(roots: Iterable[Path], text: str, fernet_key: str | None = None) -> list[str]:
    """Return the files below these roots whose bytes or path contain a text."""
    found = []
    for root in roots:
        for path in sorted(walk(root)):
            if contains_secret(str(path.relative_to(root)).encode("utf-8", "surrogateescape"), text):
                found.append(f"path {path}")
            try:
                data = path.read_bytes() if path.is_file() else b""
            except OSError:  # a socket, or deleted meanwhile
                continue
            if contains_secret(data, text, fernet_key):
                found.append(f"file {path}")
    return found


Decrypt = Callable[[bytes], bytes | None]


def _decrypter(key: str | None) -> Decrypt | None:
    if not key:
        return None
    from cryptography.fernet import Fernet, InvalidToken

    fernet = Fernet(key)

    def decrypt(token: bytes) -> bytes | None:
        with contextlib.suppress(InvalidToken):
            return fernet.decrypt(token)
        return None

    return decrypt


def _unwrapped(data: bytes, decrypt: Decrypt | None, depth: int = 0) -> Iterator[bytes]:
    """Yield the bytes, and their content if it is compressed, encrypted, encoded or stored."""
    yield data
    if depth < DEPTH:
        for inner in _inside(data, decrypt):
            yield from _unwrapped(inner, decrypt, depth + 1)


def _inside(data: bytes, decrypt: Decrypt | None) -> Iterator[bytes]:
    if data.startswith(b"PAR1"):
        yield from _of_parquet(data)
    elif data.startswith(b"SQLite format 3\0"):
        yield from _of_sqlite(data)
    elif data.startswith(b"PK\x03\x04"):
        yield from _of_zip(data)
    else:
        # At any offset: a column of a database may have a header before the compressed content.
        for match in _DEFLATED.finditer(data):
            with contextlib.suppress(zlib.error):
                yield zlib.decompressobj(wbits=47).decompress(memoryview(data)[match.start() :], MOST)
    for match in _FERNET.finditer(data) if decrypt else ():
        yield decrypt(match.group()) or b""  # type: ignore[misc]
    for match in _BASE64.finditer(data):
        token = match.group().rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
        whole = token[: len(token) - (len(token) % 4 == 1)]
        yield base64.b64decode(whole + b"=" * (-len(whole) % 4))


def _of_parquet(data: bytes) -> Iterator[bytes]:
    """Yield the values and the footer: pages are compressed, so they can only be searched when they are read."""
    with contextlib.suppress(pa.ArrowInvalid):  # an incomplete file, as a killed writer leaves it
        file = pq.ParquetFile(io.BytesIO(data))
        yield from _texts(file.schema_arrow.metadata or {})
        for group in range(file.num_row_groups):
            yield from _joined(file.read_row_group(group).to_pydict())


def _of_sqlite(data: bytes) -> Iterator[bytes]:
    """Yield every value: a long one is split in the file, and a compressed one can only be opened whole."""
    database = sqlite3.connect(":memory:")
    with contextlib.closing(database), contextlib.suppress(sqlite3.DatabaseError):
        # Bytes 18 and 19 say that there is a journal beside the file, which a copy in memory does not have.
        database.deserialize(data[:18] + b"\x01\x01" + data[20:])
        database.text_factory = bytes
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            with contextlib.suppress(sqlite3.OperationalError):  # an index of an extension that is not installed
                yield from _joined(database.execute(f'SELECT * FROM "{table.decode()}"').fetchall())


def _of_zip(data: bytes) -> Iterator[bytes]:
    with contextlib.suppress(zipfile.BadZipFile, RuntimeError), zipfile.ZipFile(io.BytesIO(data)) as archive:
        yield archive.comment
        for each in archive.infolist():
            yield archive.read(each)


def _joined(value: object) -> Iterator[bytes]:
    """Yield every text in a value: containers one by one, all others in one piece, because each search has a cost."""
    rest = []
    for each in _texts(value):
        if each.startswith(_CONTAINERS):
            yield each
        else:
            rest.append(each)
    yield b"\0".join(rest)


def _texts(value: object) -> Iterator[bytes]:
    """Yield every text and every bytes object in a value, at any depth."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)

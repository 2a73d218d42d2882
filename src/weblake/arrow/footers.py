"""Changes the file offsets in the bytes of a Parquet footer.

The metadata of a row group holds the file offsets of its pages. Row groups that are written separately, each as the
first of its own file, have offsets in that file; this module shifts them to their offsets in the joined file. The
footer is a struct in Thrift's compact protocol (parquet-format's parquet.thrift), parsed only to find those numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, Union

#: Kinds of numbers to change: a file offset, and the ordinal of a row group.
_OFFSET, _ORDINAL = "place", "ordinal"
_Plan: TypeAlias = Mapping[int, Union["_Plan", str]]

_COLUMN_META_DATA: _Plan = {9: _OFFSET, 10: _OFFSET, 11: _OFFSET, 14: _OFFSET}
_COLUMN_CHUNK: _Plan = {2: _OFFSET, 3: _COLUMN_META_DATA, 4: _OFFSET, 6: _OFFSET}
_ROW_GROUP: _Plan = {1: _COLUMN_CHUNK, 5: _OFFSET, 7: _ORDINAL}
_FILE_META_DATA: _Plan = {4: _ROW_GROUP}
_UNCHANGED: _Plan = {}

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


def shift_offsets(footer: bytes, by: int, ordinal: int) -> bytes:
    """Return the footer with all offsets increased by `by` bytes and all row group ordinals increased by `ordinal`."""
    rewriter = _FooterRewriter(footer, by, ordinal)
    rewriter.rewrite_struct(_FILE_META_DATA)
    return rewriter.finish()


class _FooterRewriter:
    """Copies a Thrift-encoded footer and changes the numbers that a plan names."""

    def __init__(self, text: bytes, by: int, ordinal: int) -> None:
        self._text, self._by, self._ordinal = text, by, ordinal
        self._at = self._copied = 0
        self._parts: list[bytes] = []

    def finish(self) -> bytes:
        return b"".join((*self._parts, self._text[self._copied :]))

    def rewrite_struct(self, plan: _Plan) -> None:
        field = 0
        while head := self._text[self._at]:
            self._at += 1
            field = field + (head >> 4) if head >> 4 else _decode_zigzag(self._read_varint())
            self._rewrite_value(head & 15, plan.get(field, _UNCHANGED))
        self._at += 1

    def _rewrite_value(self, kind: int, plan: _Plan | str) -> None:
        if kind in _INTEGERS:
            begins = self._at
            number = self._read_varint()
            if isinstance(plan, str):
                self._replace(begins, self._shift(_decode_zigzag(number), plan))
        elif kind == _BINARY:
            size = self._read_varint()
            self._at += size
        elif kind == _STRUCT:
            assert not isinstance(plan, str)
            self.rewrite_struct(plan)
        elif kind in _LISTS:
            self._rewrite_list(plan)
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BYTE:
            self._at += 1
        elif kind not in _BOOLEANS:  # the value of a boolean is part of its type
            raise ValueError(f"A Parquet footer has a field of kind {kind} at byte {self._at}.")

    def _rewrite_list(self, plan: _Plan | str) -> None:
        head = self._text[self._at]
        self._at += 1
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._read_varint()
        if kind in _BOOLEANS:
            self._at += count
            return
        for _ in range(count):
            self._rewrite_value(kind, plan)

    def _shift(self, number: int, plan: str) -> int:
        if plan == _ORDINAL:
            return number + self._ordinal
        return number and number + self._by  # an offset of 0 means absent

    def _replace(self, begins: int, number: int) -> None:
        self._parts += (self._text[self._copied : begins], _encode_varint(number << 1 ^ number >> 63))
        self._copied = self._at

    def _read_varint(self) -> int:
        text, at = self._text, self._at
        byte = text[at]
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            at += 1
            byte = text[at]
            number |= (byte & 0x7F) << shift
            shift += 7
        self._at = at + 1
        return number


def _decode_zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _encode_varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)

"""Pages of a Parquet file, by their own headers: the footer's sizes may be forged.

Arrow unpacks a page whole, to the size in its header, and reads as many values as are named there. A header is a
structure in Thrift's compact protocol; Arrow does not show it.
"""

from mmap import mmap
from typing import Any, NamedTuple

import pyarrow as pa

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_VARINTS = (4, 5, 6)
_UNPACKED, _PACKED = 2, 3
"""Fields of a page header: its sizes."""
_DATA, _DICTIONARY = (5, 8), 7
"""Fields of a page header: the data page of either version, and the dictionary (a byte or more per value)."""
_VALUES = 1
"""Field of each of these: its number of values."""
_DEPTH = 8
"""Structures within structures; a page header has three."""


class PageTotals(NamedTuple):
    """Totals of some pages."""

    values: int
    """Dictionaries excluded."""
    unpacked: int
    """Bytes."""


def page_totals(content: bytes | mmap, start: int, length: int) -> PageTotals:
    """Return the totals of a column's pages, in ``length`` bytes of a file; ArrowInvalid where one is broken."""
    values = unpacked = 0
    reader, end = _ThriftReader(content, start), min(start + length, len(content))
    try:
        while 0 <= reader.position < end:
            header = reader.struct()
            size, packed = header[_UNPACKED], header[_PACKED]
            counts = [header[field][_VALUES] for field in (*_DATA, _DICTIONARY) if field in header]
            if min(size, packed, *counts) < 0 or (_DICTIONARY in header and counts[-1] > size):
                raise ValueError("an impossible size")
            unpacked += size
            values += sum(header[field][_VALUES] for field in _DATA if field in header)
            reader.position += packed
    except (IndexError, KeyError, TypeError, ValueError) as problem:
        raise pa.ArrowInvalid(f"the header of a page at byte {reader.position:,} is broken") from problem
    return PageTotals(values, unpacked)


class _ThriftReader:
    """Reader of Thrift's compact protocol, from a byte position of the content."""

    def __init__(self, content: bytes | mmap, position: int) -> None:
        self._content = content
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a structure by their numbers: numbers, and structures; others are None."""
        if depth > _DEPTH:
            raise ValueError("too deep")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _VARINTS:
            return self._number()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _BINARY:
            length = self._varint()
            self.position += length
        elif kind in (_BYTE, _DOUBLE):
            self.position += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):  # a header has neither lists nor maps
            raise ValueError(kind)
        return None

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            if (shift := shift + 7) > 63:
                raise ValueError("too long")
        return value | byte << shift

    def _byte(self) -> int:
        byte = self._content[self.position]
        self.position += 1
        return byte

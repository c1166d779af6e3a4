"""Parquet tables: atomic writes, and the limits of untrusted ones.

Sizes in the footer may be forged, so pages count by their headers: Arrow unpacks a page to the size, and reads the
number of values, in its header. A header is a structure in Thrift's compact protocol, which Arrow does not expose.
"""

import os
from collections.abc import Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robust_eval.error import UserError
from robust_eval.runtime.files import UNPACKED, refuse_larger, refuse_unpacked, regular

TEXT = 16 * 2**20
"""Maximum bytes of one text in a table."""
ROWS = 50_000
"""Maximum rows of any table."""


class TableLimits(NamedTuple):
    """Limits of a kind of Parquet table: rows for each byte of a file beyond :data:`ROWS`, and bytes of memory."""

    rows: float
    unpacked: int


QUESTIONS = TableLimits(2, UNPACKED)
"""Limits of tables of questions with distinct texts: of a million numbered ones, each takes a byte and a half."""
ANSWERS = TableLimits(8, 512 * 2**20)
"""Limits of tables of answers: two million identical ones take 300 MB."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
"""Bytes of a value of each type of Parquet in memory, without the text of a byte array; 8 for other types."""
_NESTED = 8
"""Further bytes of a value in a list while it is read."""
_BATCH = 2**16
"""Number of rows that are unpacked at once."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_VARINTS = (4, 5, 6)
_UNPACKED, _PACKED = 2, 3
"""Fields of a page header: its sizes."""
_DATA, _DICTIONARY = (5, 8), 7
"""Fields of a page header: the data page of either version, and the dictionary (a byte or more per value)."""
_VALUES = 1
"""Field of each of these: its number of values."""
_BEYOND = 100
"""Bytes that Arrow reads beyond a column of parquet-mr before 1.2.9, whose footer counts too few."""
_DEPTH = 8
"""Maximum depth of structures; a page header has three levels."""


class PageTotals(NamedTuple):
    """Totals of some pages of a Parquet column."""

    values: int
    """Dictionaries excluded."""
    unpacked: int
    """Bytes."""


def page_totals(content: bytes | mmap, start: int, length: int, expected: int = 0) -> PageTotals:
    """Return the totals of a Parquet column's pages, in ``length`` bytes of a file; ArrowInvalid where one is broken.

    Pages in the next :data:`_BEYOND` bytes count as well until ``expected`` values have come.
    """
    values = unpacked = 0
    reader, end = _ThriftReader(content, start), min(start + length, len(content))
    try:
        while 0 <= reader.position < (end if values >= expected else min(end + _BEYOND, len(content))):
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
    """Reader of Parquet's page headers in Thrift's compact protocol, from a byte position of the content."""

    def __init__(self, content: bytes | mmap, position: int) -> None:
        self._content = content
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a Thrift structure by number: numbers, structures, and None for other types."""
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


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a Parquet table atomically: into a temporary file in the same folder, which is then renamed.

    An existing file of that name is replaced, not followed: in an untrusted folder it may be a link to another file.
    """
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    pq.write_table(table, partial, compression="zstd")
    os.replace(partial, path)


def read_parquet(file: Path, columns: Sequence[str] | None = None, limits: TableLimits = ANSWERS) -> pa.Table:
    """Read a Parquet file, or these columns of it; UserError if it exceeds a limit.

    Raises OSError or ArrowException for a broken file, and KeyError for a missing column.
    """
    refuse_bomb(file, columns, limits)
    with pq.ParquetFile(file) as parquet:
        table = parquet.read(None if columns is None else [*columns])
    return table if columns is None else table.select([*columns])


def refuse_bomb(file: Path, columns: Sequence[str] | None = None, limits: TableLimits = QUESTIONS) -> None:
    """Raise UserError if a Parquet file has too many rows for its size, or these columns have a too long text or take
    too much memory.

    Equal texts are stored once and unpacked many times, so the unpacked bytes count.
    """
    size = regular(file).stat().st_size
    with pq.ParquetFile(file) as parquet, file.open("rb") as raw, mmap(raw.fileno(), 0, access=ACCESS_READ) as content:
        footer = parquet.metadata
        unpacked, packed_texts, texts = 0, 0, []
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        limit, rows = int(ROWS + limits.rows * size), max(footer.num_rows, sum(group.num_rows for group in groups))
        if rows > limit:
            raise UserError(
                f"{file} holds {rows:,} rows in {size:,} bytes; the limit for a file of this size is {limit:,}"
            )
        for place in range(footer.num_columns):
            column = footer.schema.column(place)
            if columns is not None and column.path.partition(".")[0] not in columns:
                continue
            chunks = [_pages(content, group.column(place)) for group in groups]
            width = _WIDTHS.get(column.physical_type, 8) + _NESTED * (column.max_repetition_level > 0)
            fixed, in_pages = sum(each.values for each in chunks) * width, sum(each.unpacked for each in chunks)
            if column.physical_type == "BYTE_ARRAY":
                unpacked += fixed
                packed_texts += in_pages
                texts.append(column.path)
            else:
                unpacked += max(fixed, in_pages)
    refuse_unpacked(file, unpacked + packed_texts, size, limits.unpacked)
    with pq.ParquetFile(file, read_dictionary=texts) as parquet:
        for path in texts:
            for batch in parquet.iter_batches(_BATCH, columns=[path], use_threads=False):
                unpacked += sum(_bytes(part, f"{file}, column {path}") for part in _texts(batch.column(0)))
                refuse_unpacked(file, unpacked, size, limits.unpacked)


def _pages(content: mmap, chunk: Any) -> PageTotals:
    """Return the totals of the Parquet pages of a column of a row group, from the offset at which Arrow reads them."""
    if chunk.num_values <= 0:  # Arrow reads no page, and writers of empty tables give no offset
        return PageTotals(0, 0)
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return page_totals(content, start, chunk.total_compressed_size, chunk.num_values)


def _texts(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the texts in a Parquet column, which may stand in lists and structures."""
    dtype = column.type
    if pa.types.is_struct(dtype):
        for part in column.flatten():
            yield from _texts(part)
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        yield from _texts(column.flatten())
    else:
        yield column


def _bytes(texts: pa.Array, where: str) -> int:
    """Return the bytes that texts take without Parquet's dictionary; UserError for a text that is too long."""
    if not pa.types.is_dictionary(texts.type):
        return int(texts.nbytes)
    lengths = pc.binary_length(texts.dictionary).to_numpy(zero_copy_only=False)
    used = np.bincount(texts.indices.drop_null().to_numpy(), minlength=len(lengths))
    refuse_larger(int(lengths[used > 0].max(initial=0)), TEXT, where)
    return int(used @ lengths)

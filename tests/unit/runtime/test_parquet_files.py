from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robust_eval.runtime.parquet_files import page_totals

ROWS = 50_000
TABLE = pa.table(
    {
        "number": np.arange(ROWS),
        "text": [f"t{row % 1000}" for row in range(ROWS)],
        "list": [[1.0, 2.0]] * ROWS,
        "truth": [True] * ROWS,
        "null": pa.array([None] * ROWS, pa.string()),
    }
)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": False},
        {"data_page_version": "2.0"},
        {"row_group_size": 5000},
        {"write_statistics": False},
        {"write_page_checksum": True},
        {"data_page_size": 100},
    ],
)
def test_pages_hold_what_an_honest_footer_says(settings: dict[str, Any], tmp_path: Path):
    pq.write_table(TABLE, tmp_path / "table.parquet", **settings)
    content = (tmp_path / "table.parquet").read_bytes()
    footer = pq.read_metadata(tmp_path / "table.parquet")
    for group in range(footer.num_row_groups):
        for place in range(footer.num_columns):
            chunk = footer.row_group(group).column(place)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found = page_totals(content, start, chunk.total_compressed_size)
            assert found.values == chunk.num_values
            headers = chunk.total_uncompressed_size - found.unpacked  # which the footer counts as well
            assert 0 < headers <= chunk.total_compressed_size


GOOD = bytes.fromhex("15041564156415021c1502000000")  # a page header, and a byte after it


@pytest.mark.parametrize(
    "content",
    [
        GOOD[:5],  # ends within a header
        bytes([0]) + GOOD,  # has no sizes
        bytes([0x15, 0x04, 0x15, 0x63, 0x15, 0x02, 0]),  # unpacks to less than nothing
        bytes([0x15, 0x04, 0x15, 0x64, 0x15, 0x03, 0]),  # is less than nothing: it would never end
        bytes([0x15, 0x04, 0x15, 0x02, 0x15, 0x02, 0x4C, 0x15, 0x64, 0, 0]),  # a dictionary of 50 values in a byte
        bytes([0x15, 0x04, 0x15, 0x64, 0x15, 0x02, 0x25, 0x02, 0]),  # a number in place of a structure
        bytes([0x1C] * 100),  # structures without end
        bytes([0x15] + [0xFF] * 100),  # a number without end
        bytes([0x19, 0x15, 0x02]),  # a list, which no header has
    ],
)
def test_a_header_that_is_none_is_broken(content: bytes):
    with pytest.raises(pa.ArrowInvalid, match=r"the header of a page at byte \d+ is broken"):
        page_totals(content, 0, 100)


def test_a_place_outside_of_the_file_has_no_pages():
    assert page_totals(GOOD, 1000, 10) == page_totals(GOOD, -5, 10) == (0, 0)

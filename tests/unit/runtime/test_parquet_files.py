"""Rows, bytes unpacked and bytes of a text are counted before a file is read."""

import ast
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.runtime import files, parquet_files
from robust_eval.runtime.files import write_text
from robust_eval.runtime.parquet_files import QUESTIONS, page_totals, read_parquet, refuse_bomb, write_parquet

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


@pytest.mark.parametrize("settings", cases(__file__, "pages_hold_what_an_honest_footer_says"))
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


NESTED = {
    "text": ["ab"] * 4,
    "list": [["ab", "ab"]] * 4,
    "part": [{"a": "ab", "b": ["ab"]}] * 4,
    "map": pa.array([[("ab", "ab")]] * 4, pa.map_(pa.string(), pa.string())),
    "null": pa.array([None] * 4, pa.string()),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(pa.table(NESTED), tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


@pytest.mark.parametrize("column", list(NESTED)[:-1])
def test_texts_are_counted_as_often_as_they_stand_wherever_they_stand(
    column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "PACKED", 0)
    entries = ast.literal_eval(repr(pa.table(NESTED)[column].to_pylist() * 25).replace("ab", "x" * 10_000))
    values = pa.array(entries, pa.table(NESTED)[column].type)
    pq.write_table(pa.table({column: values}), tmp_path / "long.parquet")
    texts = {"text": 1}.get(column, 2) * 100
    limits = QUESTIONS._replace(unpacked=texts * 10_016)  # 8 bytes for each text, and 8 more where it is in a list
    refuse_bomb(tmp_path / "long.parquet", limits=limits)
    with pytest.raises(UserError, match=r"unpacks to more than \d MiB, the limit for a file of"):
        refuse_bomb(tmp_path / "long.parquet", limits=limits._replace(unpacked=texts * 10_000))


def test_columns_that_are_not_read_are_not_counted(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "PACKED", 0)
    limits = QUESTIONS._replace(unpacked=4 * 8 + 120)
    assert read_parquet(file, ["text"], limits).column_names == ["text"]
    with pytest.raises(UserError):
        read_parquet(file, None, limits)


def test_a_column_that_is_missing_is_an_error_of_its_own(file: Path):
    with pytest.raises(KeyError):
        read_parquet(file, ["text", "label"])


def test_more_rows_than_a_file_of_its_size_holds_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet_files, "ROWS", 3)
    limits = QUESTIONS._replace(rows=0)
    with pytest.raises(UserError, match=r"holds 4 rows in \d,\d+ bytes; the limit for a file of this size is 3"):
        refuse_bomb(file, limits=limits)
    refuse_bomb(file, limits=limits._replace(rows=1))


def varint(number: int, width: int = 1) -> bytes:
    """A number as a footer has it, in so many bytes at least."""
    number, found = 2 * number, []
    while number > 127 or len(found) < width - 1:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def forge(file: Path, says: int, instead: int, times: int = -1) -> None:
    """Have the footer of a file name another number."""
    content = file.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    before = varint(says)
    assert before in content[begin:]
    file.write_bytes(content[:begin] + content[begin:].replace(before, varint(instead, len(before)), times))


def refused(file: Path) -> str:
    """Why a file is not read. Nothing in it may be unpacked."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("read", "iter_batches"):
            patch.setattr(pq.ParquetFile, name, lambda *_, **__: pytest.fail("it is unpacked"))
        with pytest.raises(UserError) as problem:
            read_parquet(file, None, QUESTIONS)
    return str(problem.value)


def test_a_footer_that_says_that_a_page_is_small_is_not_believed(tmp_path: Path):
    file, values = tmp_path / "a.parquet", ["x" * 300_000_000]
    pq.write_table(pa.table({"a": values}), file, compression="zstd", use_dictionary=False, write_statistics=False)
    size = pq.read_metadata(file).row_group(0).column(0).total_uncompressed_size
    forge(file, size, 100)
    assert pq.read_metadata(file).row_group(0).column(0).total_uncompressed_size == 100
    assert "a.parquet unpacks to more than" in refused(file)


@pytest.mark.parametrize("in_a_list", [False, True])
def test_a_footer_that_says_that_there_are_few_values_is_not_believed(in_a_list: bool, tmp_path: Path):
    file, number = tmp_path / "a.parquet", 40_000_000
    values = pa.array(np.zeros(number))
    if in_a_list:
        values = pa.ListArray.from_arrays(pa.array([0, number], pa.int32()), values)
    pq.write_table(pa.table({"a": values}), file, compression="zstd", write_statistics=False, row_group_size=number)
    forge(file, number, 1)
    assert pq.read_metadata(file).row_group(0).column(0).num_values == 1
    assert "a.parquet unpacks to more than" in refused(file)


def test_a_page_after_the_end_of_a_column_of_an_old_writer_is_counted(tmp_path: Path):
    file, number = tmp_path / "a.parquet", 40_000_000
    values = pa.ListArray.from_arrays(pa.array([0, number], pa.int32()), pa.array(np.zeros(number)))
    one_page = {"row_group_size": number, "data_page_size": 2**30}
    pq.write_table(pa.table({"a": values}), file, compression="none", write_statistics=False, **one_page)
    column = pq.read_metadata(file).row_group(0).column(0)
    forge(file, column.total_compressed_size, column.data_page_offset - column.dictionary_page_offset)
    writer = pq.read_metadata(file).created_by.encode()
    file.write_bytes(file.read_bytes().replace(writer, b"parquet-mr version 1.2.8 (old)".ljust(len(writer))))
    assert "a.parquet unpacks to more than" in refused(file)


def test_a_footer_that_says_that_there_are_no_values_has_arrow_unpack_none(tmp_path: Path):
    file, number = tmp_path / "a.parquet", 40_000_000
    pq.write_table(pa.table({"a": np.zeros(number)}), file, compression="zstd", row_group_size=number)
    forge(file, number, 0)
    code = (
        "import sys; from pathlib import Path; import pyarrow as pa; from robust_eval.runtime.parquet_files import "
        "read_parquet; print(read_parquet(Path(sys.argv[1])).num_rows, pa.default_memory_pool().max_memory())"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    rows, most = map(int, ran.stdout.split())
    assert rows == 0
    assert most < 2**20


def test_an_empty_table_is_read(tmp_path: Path):
    pq.write_table(pa.table(NESTED).slice(0, 0), tmp_path / "empty.parquet")
    assert read_parquet(tmp_path / "empty.parquet").num_rows == 0


def test_a_footer_that_says_that_there_are_few_rows_is_not_believed(tmp_path: Path):
    file, number = tmp_path / "a.parquet", 3_000_000
    pq.write_table(pa.table({"a": np.zeros(number)}), file, compression="zstd", row_group_size=number)
    forge(file, number, 1, times=1)
    assert pq.read_metadata(file).num_rows == 1
    assert "a.parquet holds 3,000,000 rows in" in refused(file)


def test_a_text_that_is_too_long_is_refused_with_its_column(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet_files, "TEXT", 1)
    with pytest.raises(UserError, match=r"column list\.list\.element: 0 MiB or more; the limit is 0 MiB"):
        refuse_bomb(file, ["list"])


OLD, NEW = pa.table({"n": [1]}), pa.table({"n": [2, 3]})


@pytest.mark.parametrize("write", [partial(write_parquet, OLD), partial(write_text, "…")], ids=["table", "text"])
def test_a_link_that_somebody_left_in_a_folder_is_not_written_through(write: Callable[[Path], None], tmp_path: Path):
    (own := tmp_path / "own").write_text("mine")
    (tmp_path / "file.partial").symlink_to(own)
    write(tmp_path / "file")
    assert own.read_text() == "mine"


def test_writing_replaces_an_old_file_and_what_a_killed_writer_left(tmp_path: Path):
    path = tmp_path / "table.parquet"
    write_parquet(OLD, path)
    (tmp_path / "table.parquet.partial").write_bytes(b"half of a file")
    write_parquet(NEW, path)
    assert pq.read_table(path).equals(NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]


@contextmanager
def small_files() -> Iterator[None]:
    """Files may not grow beyond 4 kB: a write fails half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "table.parquet"
    write_parquet(OLD, path)
    old, table = path.read_bytes(), pa.table({"text": [random.Random(0).randbytes(50_000).hex()]})
    with pytest.raises(OSError, match="File too large"), small_files():
        write_parquet(table, path)
    assert path.read_bytes() == old
    assert pq.read_table(path).equals(OLD)


def test_a_process_killed_before_the_rename_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "table.parquet"
    write_parquet(OLD, path)
    old, replacements = path.read_bytes(), []

    def killed(source: Path, target: Path) -> None:
        replacements.append((pq.read_table(source).num_rows, path.read_bytes() == old, target))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_parquet(NEW, path)
    assert replacements == [(2, True, path)]  # the new table is whole before the old one goes
    assert path.read_bytes() == old

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_lines import cases

from robust_eval.dataset.file_formats import data_files, read_records
from robust_eval.error import UserError

ROWS = [{"a": "1", "b": "é"}, {"a": "x\ny", "b": 'say "yes"'}]


def read(file: Path, content: bytes | str, **settings: object) -> list[object]:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_records(file, **settings))  # type: ignore[arg-type]


def refusal(file: Path, content: bytes | str, **settings: object) -> str:
    with pytest.raises(UserError) as caught:
        read(file, content, **settings)
    return str(caught.value)


@pytest.mark.parametrize(("name", "content"), cases(__file__, "every_kind_of_text_gives_the_same_records"))
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_kind_of_text_gives_the_same_records(tmp_path, name, content, mark):
    assert read(tmp_path / name, mark + content.encode()) == ROWS


def test_parquet_gives_nested_values(tmp_path):
    records = [{"id": "1", "answers": {"text": ["a"], "start": [3]}}, {"id": None, "answers": None}]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "r.parquet")
    assert list(read_records(tmp_path / "r.parquet")) == records


def test_one_json_object_is_one_record_on_one_line_or_several(tmp_path):
    document = {"version": "1.1", "data": [{"title": "T"}]}
    assert read(tmp_path / "r.json", json.dumps(document)) == [document]
    assert read(tmp_path / "r.json", json.dumps(document, indent=2)) == [document]


def test_lines_of_a_label_file_are_decoded_as_latin_1(tmp_path):
    content = "HUM:ind Who is René ?\r\n\r\nNUM:date When ?".encode("latin-1")
    assert read(tmp_path / "r.label", content, encoding="latin-1") == [
        {"line": "HUM:ind Who is René ?\r\n"},
        {"line": "NUM:date When ?"},
    ]


def test_columns_without_names_and_cells_without_quotes(tmp_path):
    assert read(tmp_path / "r.csv", '"q, r",x\n', header=("a", "b")) == [{"a": "q, r", "b": "x"}]
    assert read(tmp_path / "r.tsv", 'a\tb\n"Yes\tno"\n', quoted=False) == [{"a": '"Yes', "b": 'no"'}]


def test_entries_that_are_no_objects_are_empty_records(tmp_path):
    assert read(tmp_path / "r.json", '[1, {"a": 2}, null, [3]]') == [{}, {"a": 2}, {}, {}]
    assert read(tmp_path / "r.jsonl", '{"a": 1}\n[1]\n"x"\nnull\n') == [{"a": 1}, {}, {}, {}]


@pytest.mark.parametrize("name", ["r.json", "r.jsonl", "r.csv", "r.tsv", "r.label"])
@pytest.mark.parametrize("content", ["", "\ufeff"])
def test_an_empty_file_has_no_records(tmp_path, name, content):
    assert read(tmp_path / name, content) == []


def test_what_is_broken_is_named_with_its_place(tmp_path):
    lines, table = tmp_path / "r.jsonl", tmp_path / "r.csv"
    deep = refusal(lines, '{"a": 1}\n{"a": ' + "[" * 100_000)
    assert deep.startswith(f"{lines}, line 2: broken JSON (nested too deeply")
    for text in ("x" * 200_000, '"' + "x\n" * 100_000):
        assert refusal(table, "a\n1\n" + text) == (
            f"{table}, line 3: a field has more than 131,072 characters; its closing quote may be missing"
        )
    assert refusal(tmp_path / "r.parquet", "no Parquet").startswith(f"{tmp_path / 'r.parquet'} cannot be read: Parquet")
    for kind in ("csv", "json", "parquet"):
        os.mkfifo(pipe := tmp_path / f"pipe.{kind}")
        with pytest.raises(UserError) as caught:
            list(read_records(pipe))
        assert str(caught.value) == f"{pipe} cannot be read: it is a named pipe, not a file"
    with pytest.raises(UserError) as caught:
        list(read_records(tmp_path / "none.csv"))
    assert str(caught.value) == f"{tmp_path / 'none.csv'} cannot be read: No such file or directory"


def test_a_folder_stands_for_its_files_or_those_of_the_split(tmp_path):
    for name in ("b.csv", "a.csv", "notes.txt", "test/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert data_files(tmp_path) == [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert data_files(tmp_path, "dev") == [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert data_files(tmp_path, "test") == [tmp_path / "test" / "c.parquet"]
    (tmp_path / "x.JSON").touch()
    assert data_files(tmp_path / "x.JSON") == [tmp_path / "x.JSON"]


def test_what_is_no_data_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        data_files(tmp_path)
    kinds = ".json, .jsonl, .csv, .tsv, .parquet, .label"
    assert str(caught.value) == f"the folder {tmp_path} contains no data files ({kinds})"
    with pytest.raises(UserError) as caught:
        data_files(tmp_path / "x.xlsx")
    assert str(caught.value) == f"dataset.path must end in {kinds}; {tmp_path / 'x.xlsx'} does not"

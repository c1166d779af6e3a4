"""Tables of Python programs: what of a DataFrame becomes a row, and under which name a table is kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robust_eval.dataset.data_frame import KeptTable, json_lines, records
from robust_eval.error import UserError


def test_what_is_missing_is_left_out_and_what_numpy_holds_becomes_plain():
    frame = pd.DataFrame(
        {
            "question": ["one", None],
            "answers": [np.array(["a", "b"]), ("c",)],
            "correct": pd.array([1, pd.NA], dtype="Int64"),
            "share": [0.5, np.nan],
            "when": [pd.NaT, pd.NaT],
        }
    )
    assert records(frame, "dataset") == [
        {"question": "one", "answers": ["a", "b"], "correct": 1, "share": 0.5},
        {"answers": ["c"]},
    ]
    assert records([{"n": np.int64(3), "none": None}], "dataset") == [{"n": 3}]
    nested = records([{"answers": [np.int64(3), np.array(["a"])], "of": {"text": np.array(["a"])}}], "dataset")
    assert json.loads(json_lines(nested)) == {"answers": [3, ["a"]], "of": {"text": ["a"]}}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("text", "answers must be a DataFrame or a list of mappings, not str"),
        ([], "answers: the table has no rows"),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "answers: several columns of the DataFrame have the same name",
        ),
        ([{"a": 1}, {2: 1}], "answers, row 2: a row must be a mapping from names to values, not {2: 1}"),
    ],
)
def test_what_is_no_table_is_refused(table: Any, sentence: str):
    with pytest.raises(UserError) as raised:
        records(table, "answers")
    assert str(raised.value) == sentence


def test_rows_are_lines_of_json_in_their_own_characters():
    rows = [{"question": "Où?", "answers": ["là\n"]}, {"question": "\ud800"}]
    assert [json.loads(line) for line in json_lines(rows).splitlines()] == rows
    with pytest.raises(UserError, match=r"^dataset, row 2: Object of type set is not JSON serializable$"):
        json_lines([{}, {"answers": {1}}])


def test_whole_numbers_beside_missing_ones_and_arrays_inside_a_value_are_plain_in_json():
    frame = pd.DataFrame(
        {"level": [1, None], "correct": [None, 2], "choices": [{"text": np.array(["a"])}, [np.int64(3)]]}
    )
    lines = json_lines(records(frame, "dataset"))
    assert lines == '{"level": 1, "choices": {"text": ["a"]}}\n{"correct": 2, "choices": [3]}\n'


def test_the_same_table_has_the_same_file(tmp_path: Path):
    one, same, other = (KeptTable(tmp_path, content, ".jsonl") for content in (b"1", b"1", b"2"))
    assert one.file == same.file != other.file
    for table in (one, same):
        table.write()
    assert [(file.suffix, file.read_bytes()) for file in (tmp_path / "tables").iterdir()] == [(".jsonl", b"1")]

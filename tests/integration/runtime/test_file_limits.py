"""Files of others that unpack to gigabytes are refused in a sentence, and cost neither memory nor time."""

import json
import subprocess
import sys
from pathlib import Path

import bombs
import numpy as np
import pyarrow.parquet as pq

from robust_eval.dataset.answer_file import AnswerFile
from robust_eval.dataset.own_table import OwnTable


def test_bombs_cost_little_and_are_refused_in_a_sentence(tmp_path: Path):
    process = subprocess.run(
        [sys.executable, bombs.__file__, str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = {each.pop("name"): each for each in map(json.loads, process.stdout.splitlines())}
    assert len(found) == 19
    assert {name: each for name, each in found.items() if each["megabytes"] > 300} == {}
    for name, each in found.items():
        said = each["said"]
        assert "\n" not in said
        assert str(tmp_path) in said
        if "lies" in name:
            assert "Bad CRC-32" in said
        elif name == "values of a data set":
            assert "too many values for the size of the text" in said
        else:
            assert any(words in said for words in ("unpacks to more than", "rows in", "MiB for JSON"))


def test_what_is_alike_and_no_bomb_is_read(tmp_path: Path):
    """Answers of one letter take a byte and less."""
    rows = 2_000_000
    answer = {"question_id": ["a"], "temperature": [1.0], "text": ["A"], "prompt_tokens": [200]}
    columns = bombs.repeated(answer, rows)
    file = bombs.table(tmp_path / "answers.parquet", columns | {"trial": np.arange(rows)})
    assert AnswerFile(file, {}).read(None).num_rows == rows


def test_a_data_set_of_ordinary_texts_is_read(tmp_path: Path):
    columns = {"question": [f"What is {number}?" for number in range(100_000)], "answers": [["a", "b"]] * 100_000}
    file = bombs.table(tmp_path / "questions.parquet", columns)
    assert pq.read_metadata(file).num_rows == len(list(OwnTable(name="d", path=str(file)).read()))

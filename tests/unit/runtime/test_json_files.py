import json
from pathlib import Path

import pytest

from robust_eval.error import UserError
from robust_eval.runtime.json_files import json_lines, parsed_json, read_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_lines_of_json_are_read_with_their_places_but_for_those_that_are_empty(file: Path):
    file.write_text('{"a": 1}\n\n[2]')
    assert list(json_lines(file)) == [(f"{file}, line 1", '{"a": 1}\n', {"a": 1}), (f"{file}, line 3", "[2]", [2])]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":', "Expecting value at column 6"),
        ("[" * 100_000, "nested too deeply at column 1"),
        ("1" * 5_000, "Exceeds the limit (4300 digits) for integer string conversion"),
    ],
)
def test_a_line_that_is_no_json_is_named(file: Path, line: str, reason: str):
    file.write_text(f"1\n{line}\n")
    with pytest.raises(UserError) as caught:
        list(json_lines(file, label="the file"))
    assert str(caught.value).startswith(f"the file, line 2: broken JSON ({reason}")


def test_json_says_what_it_says():
    assert parsed_json('{"a": [1, null]}') == {"a": [1, None]}
    assert parsed_json(b"[1]", parse_int=str) == ["1"]


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_json_nested_without_end_is_refused_as_any_that_is_broken(deep: str):
    with pytest.raises(json.JSONDecodeError, match="nested too deeply"):
        parsed_json(deep)


@pytest.mark.parametrize("value", ["[],", "{},", "0,", '{"a":0},'])
def test_values_that_take_far_more_memory_than_their_text_are_refused(value: str):
    text = f"[{value * (32_000_000 // len(value))}0]"
    with pytest.raises(json.JSONDecodeError, match="too many values for the size of the text"):
        parsed_json(text)


def test_ordinary_questions_and_log_probabilities_are_parsed():
    question = {"id": "1", "question": "Where?", "answers": ["Rome", "Roma"], "choices": ["A", "B", "C", "D"]}
    token = {"token": "a", "logprob": -1.25, "top": [{"token": "b", "logprob": -2.5}] * 5}
    for entry in (question, token):
        text = json.dumps([entry] * 20_000)
        assert len(parsed_json(text)) == 20_000


def test_json_is_read_up_to_a_size(tmp_path: Path):
    (tmp_path / "a.json").write_text("[1]")
    assert read_json(tmp_path / "a.json", 3) == [1]
    with pytest.raises(UserError, match=r"a\.json is 0 MiB, more than the limit of 0 MiB for JSON"):
        read_json(tmp_path / "a.json", 2)
    (tmp_path / "a.json").write_text("[1")
    with pytest.raises(json.JSONDecodeError):
        read_json(tmp_path / "a.json")

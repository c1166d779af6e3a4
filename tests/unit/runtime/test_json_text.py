import json

import pytest

from robust_eval.runtime.files import parsed_json


def test_json_says_what_it_says():
    assert parsed_json('{"a": [1, null]}') == {"a": [1, None]}
    assert parsed_json(b"[1]", parse_int=str) == ["1"]


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_json_nested_without_end_is_refused_as_any_that_is_broken(deep: str):
    with pytest.raises(json.JSONDecodeError, match="nested too deep"):
        parsed_json(deep)


@pytest.mark.parametrize("value", ["[],", "{},", "0,", '{"a":0},'])
def test_values_that_take_far_more_memory_than_their_text_are_refused(value: str):
    text = f"[{value * (32_000_000 // len(value))}0]"
    with pytest.raises(json.JSONDecodeError, match="more values than a text of its size has"):
        parsed_json(text)


def test_ordinary_questions_and_log_probabilities_are_parsed():
    question = {"id": "1", "question": "Where?", "answers": ["Rome", "Roma"], "choices": ["A", "B", "C", "D"]}
    token = {"token": "a", "logprob": -1.25, "top": [{"token": "b", "logprob": -2.5}] * 5}
    for entry in (question, token):
        text = json.dumps([entry] * 100_000)
        assert len(parsed_json(text)) == 100_000

import json

import pytest

from robust_eval.runtime.json_text import parsed_json


def test_json_says_what_it_says():
    assert parsed_json('{"a": [1, null]}') == {"a": [1, None]}
    assert parsed_json(b"[1]", parse_int=str) == ["1"]


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_json_nested_without_end_is_refused_as_any_that_is_broken(deep: str):
    with pytest.raises(json.JSONDecodeError, match="nested too deep"):
        parsed_json(deep)

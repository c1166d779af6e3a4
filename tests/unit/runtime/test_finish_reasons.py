import json
from pathlib import Path

import pytest

from robust_eval.runtime.finish_reasons import end_of

CASES = json.loads(Path(__file__).with_name("finish_reasons.json").read_text())


@pytest.mark.parametrize("end", [end for end in CASES if end != "unknown"])
def test_the_words_of_every_dialect_are_sorted(end: str) -> None:
    assert {word: end_of(word) for word in CASES[end]} == dict.fromkeys(CASES[end], end)


def test_any_other_word_is_not_known() -> None:
    assert [end_of(word) for word in CASES["unknown"]] == [None] * len(CASES["unknown"])


def test_a_long_word_is_not_known() -> None:
    assert end_of("-" * 1_000_000 + "stop") is None

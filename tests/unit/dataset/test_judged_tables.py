"""Tables as spreadsheets, programs and people write them: each is read as it was meant, or refused in a sentence.

``tables/judged.jsonl`` says of each what a person expects: the questions, or what the sentence must (and must not) say.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from robust_eval.dataset.own_table import OwnTable
from robust_eval.error import UserError

TABLES = Path(__file__).with_name("tables")
JUDGED = [json.loads(line) for line in (TABLES / "judged.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_table_is_judged():
    assert {case["table"] for case in JUDGED} == {file.name for file in TABLES.iterdir()} - {"judged.jsonl"}


@pytest.mark.parametrize("case", JUDGED, ids=[case["table"] for case in JUDGED])
def test_a_table_is_read_as_it_was_meant_or_refused_in_a_sentence(case: dict[str, Any]):
    table = OwnTable(name="quiz", path=str(TABLES / case["table"]), **case.get("settings", {}))
    if "questions" in case:
        found = [
            [question.text, list(question.choices), question.correct]
            if question.choices
            else [question.text, list(question.answers)]
            for question in table.load()
        ]
        assert found == case["questions"]
        return
    with pytest.raises(UserError) as caught:
        table.load()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert [part for part in case["refused"] if part not in sentence] == [], sentence
    assert [part for part in case.get("never", []) if part in sentence] == [], sentence

"""One reply is graded as a run grades it, and an argument that is wrong is named."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import robust_eval
from robust_eval.answer import SCHEMA
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.question import Question
from robust_eval.reader.base import Reader, Reading

LINES = Path(__file__).with_name("graded_replies.jsonl").read_text(encoding="utf-8").splitlines()
CASES = [json.loads(line) for line in LINES]
GRADED = [case for case in CASES if "error" not in case]
REFUSED = [case for case in CASES if "error" in case]


class LastWord(Reader):
    """A reader of the test."""

    def read(self, reply: str, question: Question) -> Reading:
        return Reading(reply.split()[-1], "last word")


class Doubtful(Matching):
    """A grader of the test, which calls every reply uncertain."""

    def grade(self, questions: Sequence[Question], answers: pa.Table) -> pa.Table:
        graded = super().grade(questions, answers)
        place = SCHEMA.get_field_index("uncertain")
        return graded.set_column(place, SCHEMA.field(place), pa.array([True] * graded.num_rows))


@pytest.mark.parametrize("case", GRADED, ids=lambda case: repr(case["call"]))
def test_a_reply_has_its_answer_label_and_verdict(case: dict):
    found = robust_eval.grade_reply(**case["call"])
    names = ("correct", "label", "answer", "reason")
    assert {name: getattr(found, name) for name in names} == {name: case[name] for name in names}
    assert bool(found.rule) == bool(found.answer)
    assert found.uncertain is False


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: repr(case["call"])[:60])
def test_a_wrong_argument_is_named_in_one_sentence(case: dict):
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the message is compared
        robust_eval.grade_reply(**case["call"])
    assert str(caught.value).startswith(case["error"])
    assert "\n" not in str(caught.value)


def test_readers_and_graders_may_be_objects():
    strict = Matching(letter="strict")
    choices = ["3 m/s", "4 m/s"]
    assert robust_eval.grade_reply("The answer is B.", ["B"], choices, grader=strict).label is None
    assert robust_eval.grade_reply("B", ["B"], choices, grader=strict).correct is True
    found = robust_eval.grade_reply("I think of Paris", ["Paris"], reader=LastWord())
    assert (found.answer, found.rule, found.correct) == ("Paris", "last word", True)


def test_an_uncertain_verdict_is_marked():
    assert robust_eval.grade_reply("Paris", ["Paris"], grader=Doubtful()).uncertain is True


def test_neither_a_model_library_nor_the_configuration_is_imported():
    code = (
        "import sys, robust_eval; robust_eval.grade_reply('Paris', ['Paris'])\n"
        "print([name for name in ('torch', 'transformers', 'scipy', 'hydra', 'omegaconf') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.parametrize(
    ("verdicts", "wrong"),
    [
        ([0.2], "True, False or None for each reply, not 0.2"),  # a similarity is no verdict
        (["no"], "True, False or None for each reply, not 'no'"),
        ([], "1 verdicts, one for each reply, not 0"),
        (None, "a list of verdicts, not a NoneType"),
    ],
)
def test_a_grader_must_return_a_verdict_for_each_reply(verdicts: object, wrong: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Doubtful, "right", lambda *_: verdicts)
    with pytest.raises(UserError) as refused:
        robust_eval.grade_reply("It is Rome.", ["Rome"], grader=Doubtful())
    assert str(refused.value) == f"Doubtful.right() must return {wrong}"

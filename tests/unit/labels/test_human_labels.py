import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.labels.human_labels import count_labelled, count_of_other_replies, with_human_labels
from robust_eval.labels.label_records import LABELS
from robust_eval.metric.score import HUMAN_ABSTENTION, HUMAN_LABEL, HUMAN_LABEL_WEIGHT, HUMAN_LABEL_WHOLE
from robust_eval.question import UNANSWERABLE, Question


def graded() -> pa.Table:
    rows = [
        answer_row(name, trial=trial, text=text, correct=True, weight=0.5)
        for name in ("q", "r")
        for trial, text in enumerate(["one", "two"])
    ]
    return answer_table(rows)


def label(question: str, trial: int | None, said: str, who: str = "ann", **more: object) -> dict[str, object]:
    text = {0: "one", 1: "two"}.get(trial, "one")
    at = {} if trial is None else {"trial": trial, "temperature": 1.0}
    return {"question_id": question, "text": text, "label": said, "labeller": who, **at, **more}


def labels(*found: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(found), LABELS)


def column(table: pa.Table, name: str) -> list[object]:
    return [None if each != each else each for each in table[name].to_pylist()]


def test_a_text_alone_is_every_answer_to_its_question_with_it():
    table = with_human_labels({"s": graded()}, labels(label("q", None, "wrong")))["s"]
    assert column(table, HUMAN_LABEL) == [0, None, None, None]
    assert count_labelled({"s": graded()}, labels(label("q", None, "wrong"), label("nobody", None, "right"))) == 1


def test_a_label_of_another_reply_in_the_same_place_does_not_count():
    said = labels(label("q", 0, "wrong") | {"text": "'one \n"}, label("q", 1, "wrong") | {"text": "three"})
    assert column(with_human_labels({"s": graded()}, said)["s"], HUMAN_LABEL) == [0, None, None, None]
    assert (count_labelled({"s": graded()}, said), count_of_other_replies({"s": graded()}, said)) == (1, 1)


def test_what_more_than_half_say_counts_and_else_it_is_unclear():
    said = [label("q", 0, word, who) for who, word in (("a", "right"), ("b", "right"), ("c", "wrong"))]
    said += [label("q", 1, word, who) for who, word in (("a", "right"), ("b", "wrong"))]
    said += [label("r", 0, "unclear")]
    assert column(with_human_labels({"s": graded()}, labels(*said))["s"], HUMAN_LABEL) == [1, None, None, None]


def test_answers_drawn_by_strata_weigh_their_stratum_over_its_clear_labels():
    drawn = {"drawn": "answer", "stratum_size": 30, "sampler": "s"}
    said = [label("q", 0, "right", stratum="x", **drawn), label("q", 1, "wrong", stratum="x", **drawn)]
    said += [label("r", 0, "unclear", stratum="x", **drawn), label("r", 1, "right", stratum="y", **drawn)]
    table = with_human_labels({"s": graded()}, labels(*said))["s"]
    assert [
        weight
        for weight, person in zip(column(table, HUMAN_LABEL_WEIGHT), column(table, HUMAN_LABEL), strict=True)
        if person is not None
    ] == [15, 15, 30]
    assert column(table, HUMAN_LABEL_WHOLE) == [None] * 4  # by chance all of q are labelled: it was not drawn whole


def test_only_whole_questions_count_of_those_drawn_whole():
    drawn = {"drawn": "question", "sampler": "s"}
    said = [label("q", 0, "right", **drawn), label("q", 1, "unclear", **drawn), label("r", 0, "right", **drawn)]
    table = with_human_labels({"s": graded()}, labels(*said))["s"]
    assert column(table, HUMAN_LABEL) == [1, None, None, None]
    assert column(table, HUMAN_LABEL_WHOLE) == [1, -1, None, None]


def test_an_abstention_is_wrong_and_only_annotators_who_use_the_label_vote_on_it():
    said = [label("q", 0, "abstained"), label("q", 1, "wrong"), label("r", 0, "unclear")]
    said += [label("r", 1, "wrong", who) for who in ("bob", "eve")]  # to them abstentions may be wrong answers
    table = with_human_labels({"s": graded()}, labels(*said))["s"]
    assert column(table, HUMAN_LABEL) == [0, 0, None, 0]
    assert column(table, HUMAN_ABSTENTION) == [1, 0, None, None]
    said += [label("q", place, word, "bob") for place, word in enumerate(["wrong", "abstained"])]
    table = with_human_labels({"s": graded()}, labels(*said))["s"]
    assert column(table, HUMAN_LABEL) == [0, 0, None, 0]
    assert column(table, HUMAN_ABSTENTION) == [None, None, None, 0]  # one against one, and bob, who now uses the label


def test_to_a_question_without_an_answer_an_abstention_is_right_and_nothing_else():
    questions = [Question("q", "q?", (UNANSWERABLE,)), Question("r", "r?", ("one",))]
    said = [label("q", 0, "abstained"), label("q", 1, "wrong"), label("r", 0, "right"), label("r", 1, "abstained")]
    table = with_human_labels({"s": graded()}, labels(*said), questions)["s"]
    assert column(table, HUMAN_LABEL) == [1, 0, 1, 0]
    assert column(table, HUMAN_ABSTENTION) == [1, 0, 0, 1]


def test_without_a_label_nothing_has_one():
    table = with_human_labels({"s": graded()}, LABELS.empty_table())["s"]
    assert np.isnan(table[HUMAN_LABEL].to_numpy()).all()
    assert table[HUMAN_LABEL_WHOLE].null_count == 4
    with pytest.raises(KeyError):
        graded()[HUMAN_LABEL]

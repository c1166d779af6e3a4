import math
from collections.abc import Iterable

import numpy as np
import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.metric.order_metric import ChoiceOrder
from robust_eval.metric.score import Measured, Score
from robust_eval.prompt.arrangement import FORMS, GIVEN, Arrangement, rotations
from robust_eval.question import Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.interval import SHARE, degenerate_interval
from robust_eval.stats.position_bias import cochran_q

NAN = math.nan
NOTHING = answer_table([])


def choices(number: int, of: int = 3) -> Question:
    """A question of which another choice is right than of the one before it."""
    return Question(
        f"q{number}", f"Which, {number}?", choices=tuple(f"choice {i}" for i in range(of)), correct=number % of
    )


def answer(question: Question, arrangement: Arrangement | None, letter: str | None, **other) -> dict:
    """What a model says that names the choice of this letter, which is one of the question as it stands."""
    right = None if question.correct is None else letter == "ABCDE"[question.correct]
    return (
        answer_row(
            question.id,
            rewrite=0 if arrangement is None else 1000 + hash(arrangement.tag) % 1000,
            text=letter or "",
            label=letter,
            correct=right if letter or right is None else False,
            outcome="ok" if letter else "invalid",
            form=arrangement and arrangement.tag,
        )
        | other
    )


def score(questions: list[Question], answers: Iterable[dict]) -> Score:
    return present(ChoiceOrder().score(questions, Measured(NOTHING, answer_table(answers)), seed=0), questions)


def in_every_order(question: Question) -> list[Arrangement | None]:
    return [None, *rotations(len(question.choices))]


def at_place(question: Question, arrangement: Arrangement | None, place: int) -> str:
    return "ABCDE"[place] if arrangement is None else arrangement.named("ABCDE"[place])


def test_a_model_that_always_says_a_is_right_where_the_right_choice_stands_first_and_nowhere_else():
    questions = [choices(number, 5) for number in range(40)]
    found = score(questions, [answer(q, each, at_place(q, each, 0)) for q in questions for each in in_every_order(q)])
    values = found.metrics()
    assert values["order.accuracy.place1.t1"] == (1.0, *degenerate_interval(1.0, 40, SHARE))
    for place in range(2, 6):
        assert values[f"order.accuracy.place{place}.t1"] == (0.0, *degenerate_interval(0.0, 40, SHARE))
        assert values[f"order.bias.place{place}.t1"] == (-0.25, *degenerate_interval(-0.25, 40, (-1, 1)))
    assert values["order.bias.place1.t1"] == (1.0, *degenerate_interval(1.0, 40, (-1, 1)))
    assert [values[f"order.{name}.t1"].value for name in ("one_choice", "accuracy", "every")] == [0, 0.2, 0]
    assert values["order.cochran_q.t1"].value == pytest.approx(40 * 4)
    assert values["order.cochran_q.freedom.t1"].value == 4
    assert values["order.cochran_q.p.t1"].value < 1e-30
    assert not any(name.startswith("order.form") for name in values)
    assert found.presentation.sentence == (
        "with their choices in other orders at t = 1: 0 % (0 % to 9 %) of them get the same choice in every order; "
        "100 % of the answers are right with the right choice at position 1, 0 % at position 2."
    )
    assert [note.partition(" 160.00")[0] for note in found.presentation.notes] == [
        "position bias: Cochran's Q over positions ="
    ]


def test_a_model_that_knows_keeps_to_its_choice_and_one_that_errs_alike_keeps_to_it_as_well():
    knows, errs, wavers = (choices(number) for number in range(3))
    said = [answer(knows, each, "A") for each in in_every_order(knows)]
    said += [answer(errs, each, "C") for each in in_every_order(errs)]
    said += [answer(wavers, each, letter) for each, letter in zip(in_every_order(wavers), "CCA", strict=True)]
    found = score([knows, errs, wavers], said)
    np.testing.assert_array_equal(found.by_question["order.one_choice.t1"], [1, 1, 0])
    np.testing.assert_array_equal(found.by_question["order.accuracy.t1"], [1, 0, 2 / 3])
    np.testing.assert_array_equal(found.by_question["order.every.t1"], [1, 0, 0])
    by_place = [found.by_question[f"order.accuracy.place{place}.t1"].tolist() for place in (1, 2, 3)]
    assert by_place == [[1, 0, 0], [1, 0, 1], [1, 0, 1]]  # in the last order the right choice, C, stands first
    assert found.curves["order.cochran_q"][1.0].value == pytest.approx(cochran_q(np.transpose(by_place)).statistic)
    table = found.tables["order"].to_pylist()
    assert len(table) == 9
    assert table[-1] == {"question_id": "q2", "temperature": 1.0, "place": 3, "accuracy": 1.0}
    places = found.tables["order_places"].to_pydict()
    assert (places["place"], places["questions"]) == ([1, 2, 3], [3, 3, 3])
    assert places["accuracy"] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert places["bias"] == pytest.approx([-1 / 3, 1 / 6, 1 / 6])


def test_without_a_key_it_is_known_whether_one_choice_is_kept_and_nothing_of_places():
    question = Question("q", "Which?", choices=("one", "two"))
    found = score([question], [answer(question, each, "B") for each in in_every_order(question)])
    assert found.curves["order.one_choice"][1.0].value == 1
    assert math.isnan(found.curves["order.accuracy.place1"][1.0].value)
    assert not any(found.tables["order_places"]["questions"].to_pylist())
    assert found.presentation.sentence.endswith("of them get the same choice in every order.")


def test_forms_are_compared_in_the_order_as_it_is():
    questions = [choices(number) for number in range(2)]
    whole = (0, 1, 2)
    said = [answer(q, each, "A") for q in questions for each in in_every_order(q)]
    said += [answer(q, Arrangement(whole, "numbers"), "B") for q in questions]
    said += [answer(q, Arrangement(whole, "bars"), None) for q in questions]
    found = score(questions, said)
    accuracy = {form: found.curves[f"order.form.{form}"][1.0].value for form in (GIVEN, "numbers", "bars")}
    assert accuracy == {GIVEN: 0.5, "numbers": 0.5, "bars": 0.0}
    assert not {f"order.form.{form}" for form in {*FORMS} - {"numbers", "bars"}} & found.curves.keys()
    np.testing.assert_array_equal(found.by_question["order.one_choice.t1"], [1, 1])  # other forms are no other orders


def test_other_words_questions_without_choices_and_replies_that_never_came_are_left_out():
    asked, free = choices(0), Question("free", "Who?", ("Ann",))
    said = [answer(asked, each, "A") for each in in_every_order(asked)]
    said.append(answer(asked, None, "C", rewrite=1))
    said.append(answer(free, None, "Ann", correct=True))
    said.append(answer(asked, Arrangement((1, 0, 2)), None, outcome="error", correct=None))
    found = score([asked, free], said)
    np.testing.assert_array_equal(found.by_question["order.one_choice.t1"], [1, NAN])
    np.testing.assert_array_equal(found.by_question["order.accuracy.t1"], [1, NAN])
    assert found.n("order.accuracy.place1.t1") == 1


def test_a_reply_that_names_nothing_is_wrong_and_no_choice_that_is_kept():
    asked = choices(0)
    said = [answer(asked, each, letter) for each, letter in zip(in_every_order(asked), ("A", "A", None), strict=True)]
    found = score([asked], said)
    assert found.by_question["order.one_choice.t1"].tolist() == [0]
    assert found.by_question["order.accuracy.t1"].tolist() == pytest.approx([2 / 3])
    nothing = score([asked], [answer(asked, each, None) for each in in_every_order(asked)])
    assert nothing.by_question["order.one_choice.t1"].tolist() == [0]


def test_of_a_question_with_replies_in_one_order_it_is_unknown_whether_its_choice_is_kept():
    asked = choices(0)
    first, *others = in_every_order(asked)
    said = [answer(asked, first, letter, trial=trial) for trial, letter in enumerate("AA")]
    said += [answer(asked, each, None, outcome="error", correct=None) for each in others]
    found = score([asked], said)
    np.testing.assert_array_equal(found.by_question["order.one_choice.t1"], [NAN])
    assert found.by_question["order.accuracy.t1"].tolist() == [1]


def test_every_temperature_is_scored_apart_and_trials_at_one_place_are_averaged():
    asked = choices(0)
    said = [answer(asked, each, "A", temperature=0.5) for each in in_every_order(asked)]
    said += [
        answer(asked, each, letter, trial=trial)
        for each in in_every_order(asked)
        for trial, letter in enumerate("AABB")
    ]
    found = score([asked], said)
    assert {t: found.curves["order.accuracy.place1"][t].value for t in (0.5, 1.0)} == {0.5: 1.0, 1.0: 0.5}
    assert {t: found.curves["order.one_choice"][t].value for t in (0.5, 1.0)} == {0.5: 1.0, 1.0: 0.0}

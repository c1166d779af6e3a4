import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.answer import ABSTENTION, answer_table
from robust_eval.error import UserError
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.score import Measured, Score
from robust_eval.question import Question
from robust_eval.stats.agreement import certainty_when_guessing, remapped_kappa
from robust_eval.stats.interval import SHARE, degenerate_interval, mean_bounds

NAN = math.nan
OF_QUESTIONS = [
    *("accuracy", "worst", "best", "plurality", "difficulty", "base_minus_difficulty"),
    *("certainty", "m2", "semantic_entropy"),
]
SUPERVISED = OF_QUESTIONS[:6]
OUTCOMES = {
    "-": "invalid",
    "?": "abstained",
    "R": "refused",
    "0": "empty",
    "!": "error",
    "F": "filtered_prompt",
    "f": "filtered_reply",
}


def said(question_id, letters, right=None, voted=None, temperature=1.0, rewrite=None):
    """One row for each character: a label, an outcome other than ok, or a blank for no row at all.

    Each is the answer to another rewrite, or another trial of the ``rewrite`` that is given. ``right`` is the label
    that is right (None: no gold answer), ``voted`` the place of the ensemble answer.
    """
    for number, letter in enumerate(letters):
        if letter == " ":
            continue
        outcome = OUTCOMES.get(letter, "ok")
        replied = letter not in "!Ff"
        yield {
            "question_id": question_id,
            "rewrite": number if rewrite is None else rewrite,
            "temperature": temperature,
            "trial": 0 if rewrite is None else number,
            "text": letter,
            "label": ABSTENTION if letter == "?" else letter if outcome == "ok" else None,
            "correct": letter == right if replied and right else None,
            "outcome": outcome,
            "weight": 1.0,
            ENSEMBLE: number == voted,
        }


def measured(rows) -> Measured:
    rows = list(rows)
    marks = [row[ENSEMBLE] for row in rows]
    table = answer_table({name: value for name, value in row.items() if name != ENSEMBLE} for row in rows)
    return Measured(answer_table([]), table.append_column(ENSEMBLE, pa.array(marks, pa.bool_())))


def free(*ids, **more):
    return [Question(question_id, f"{question_id}?", ("x",), **more) for question_id in ids]


def choice(question_id, number):
    return Question(question_id, f"{question_id}?", choices=tuple(map(str, range(number))), correct=0)


def score(questions, *rows, seed=0, **settings) -> Score:
    return AnswerAgreement(**settings).score(questions, measured(itertools.chain(*rows)), seed)


def values(found: Score, temperature=1.0) -> dict[str, float]:
    figures = {name.removeprefix("agreement."): curve[temperature].value for name, curve in found.curves.items()}
    return {name: value for name, value in figures.items() if not name.startswith("count.")}


def counted(found: Score, temperature=1.0) -> dict[str, float]:
    """How many questions lack raters."""
    curves = {name.removeprefix("agreement.count."): curve for name, curve in found.curves.items() if ".count." in name}
    return {name: curve[temperature].value for name, curve in curves.items()}


def of_questions(found: Score, name: str, temperature=1.0) -> list[float]:
    table = found.tables["agreement"].to_pydict()
    return [value for value, t in zip(table[name], table["temperature"], strict=True) if t == temperature]


def close(expected):
    if isinstance(expected, dict):
        return {name: close(value) for name, value in expected.items()}
    return pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


HALF = 1.5 * math.log(3) / math.log(4) / 2  # H_η of three raters against one, of four labels: 0.75 ln 3 / ln 4
SPREAD = math.log(4) - 0.75 * math.log(3)  # their entropy
KAPPA = remapped_kappa([[3, 1], [1, 3], [4, 0]], [4, 4, 4], seed=0)

THREE = free("q1", "q2", "q3")
ROWS = [
    *said("q1", "aaab", right="a", voted=0),
    *said("q2", "cddd", right="c", voted=1),
    *said("q3", "eeee", right="z", voted=0),
]


@pytest.fixture(scope="module")
def found() -> Score:
    """Three free-text questions, four raters each."""
    return score(THREE, ROWS)


def test_every_figure_of_a_small_table_is_the_one_worked_out_by_hand(found: Score):
    figures = values(found)
    assert figures == close(
        {
            "kappa": KAPPA,
            "accuracy": 2 / 3,  # right, right, wrong
            "worst": 0.0,
            "best": 2 / 3,
            "plurality": 1 / 3,
            "difficulty": 1 / 3,  # 3/4, 1/4, 0
            "base_minus_difficulty": 1 / 3,  # 1/4, 3/4, 0
            "certainty": (HALF + HALF + 1) / 3,
            "m2": 2 / 3,  # 1 - 4/3 (1 - 10/16) = 1/2 twice, and 1
            "semantic_entropy": 2 * SPREAD / 3,
            "kappa_free": 5 / 9,  # P_o = (1/2 + 1/2 + 1) / 3 against 1/4
            "alpha": 3 / 8,  # 3/2 (1 - (1/4 + 1/4 + 0) / (2/3)): totals 2, 1, 1, 0
            "alpha_of_raters": 16 / 21,  # 4/3 (1 - (1/3 + 1/3 + 1/3 + 0) / (7/3)): totals 3, 1, 0
        }
    )
    assert found.question_ids == ["q1", "q2", "q3"]
    assert chance(found) == close(even((4, 4)))
    low, high = (1 - (1 - 3 / 8) * stats.f.ppf(tail, 3, 6) for tail in (0.975, 0.025))  # Feldt: r - 1, (r - 1)(n - 1)
    assert found.curves["agreement.alpha"][1.0] == close((3 / 8, low, high))


def test_the_figures_of_each_question_are_in_the_table(found: Score):
    table = found.tables["agreement"].to_pydict()
    assert table.pop("question_id") == ["q1", "q2", "q3"]
    assert {name: table[name] for name in ("temperature", "raters", "labels", *OF_QUESTIONS)} == {
        "temperature": [1.0, 1.0, 1.0],
        "raters": [4, 4, 4],
        "labels": [2, 2, 1],
        "accuracy": [1.0, 1.0, 0.0],
        "worst": [0.0, 0.0, 0.0],
        "best": [1.0, 1.0, 0.0],
        "plurality": [1.0, 0.0, 0.0],
        "difficulty": [0.75, 0.25, 0.0],
        "base_minus_difficulty": [0.25, 0.75, 0.0],
        "certainty": close([HALF, HALF, 1.0]),
        "m2": close([0.5, 0.5, 1.0]),
        "semantic_entropy": close([SPREAD, SPREAD, 0.0]),
    }


def test_each_trial_of_each_rewrite_is_a_rater():
    rows = [
        *said("q1", "aa", right="a", voted=0, rewrite=0),
        *said("q1", "ab", right="a", rewrite=1),
        *said("q2", "cd", right="c", rewrite=0),
        *said("q2", "dd", right="c", voted=0, rewrite=1),
    ]
    assert of_questions(result := score(free("q1", "q2"), rows), "raters") == [4, 4]
    assert of_questions(result, "accuracy") == [1.0, 1.0]
    assert of_questions(result, "difficulty") == [0.75, 0.25]
    assert of_questions(result, "certainty") == close([HALF, HALF])


def test_neither_the_order_of_the_rows_nor_the_names_of_the_labels_matter(found: Score):
    shuffled = random.Random(3).sample(ROWS, len(ROWS))
    names = {"a": "zulu", "b": "alpha", "c": "b", "d": "c", "e": "a"}
    renamed = [row | {"label": names[row["label"]]} for row in shuffled]
    again = score(THREE, renamed)
    assert values(again) == close(values(found))
    assert again.curves["agreement.kappa"][1.0] == close(found.curves["agreement.kappa"][1.0])


def test_a_refused_an_empty_and_an_invalid_reply_are_wrong_and_have_no_label():
    rows = [*said("q1", "aab-", right="a", voted=0), *said("q2", "Rc0c", right="c", voted=1)]
    result = score(free("q1", "q2"), rows)
    assert {name: of_questions(result, name) for name in SUPERVISED} == {
        "accuracy": [1.0, 0.0],
        "worst": [0.0, 0.0],
        "best": [1.0, 1.0],
        "plurality": [1.0, 1.0],
        "difficulty": [0.5, 0.5],
        "base_minus_difficulty": [0.5, -0.5],
    }
    assert of_questions(result, "raters") == [3, 2]
    # two against one of three labels, and two that agree
    assert of_questions(result, "certainty") == close([1 - stats.entropy([2, 1]) / math.log(3), 1.0])
    assert of_questions(result, "m2") == close([1 - 3 / 2 * (1 - 5 / 9), 1.0])
    assert of_questions(result, "semantic_entropy") == close([stats.entropy([2, 1]), 0.0])


def test_the_vote_is_wrong_where_no_reply_has_an_answer_and_not_there_where_no_reply_came():
    # METHODS §0: such replies count as wrong wherever correctness is averaged
    rows = [
        *said("q1", "-R0-", right="a"),
        *said("q2", "-!", right="a"),
        *said("q3", "!F", right="a"),
        *said("q4", "--"),
    ]
    assert of_questions(score(free("q1", "q2", "q3", "q4"), rows), "plurality") == close([0.0, 0.0, NAN, NAN])
    figures = values(score(free("q1", "q2"), [*said("q1", "--", right="a"), *said("q2", "aa", right="a", voted=0)]))
    assert (figures["plurality"], figures["best"]) == (0.5, 0.5)


def test_a_refused_reply_has_no_label_even_where_a_grader_gave_it_one():
    rows = [row | {"label": "b", "correct": True} if row["outcome"] == "refused" else row for row in said("q1", "aaR")]
    assert of_questions(score(free("q1"), rows), "raters") == [2]


@pytest.mark.parametrize("gone", ["!", "F", "f", " "])
def test_a_rater_without_a_reply_leaves_every_denominator(gone: str):
    rows = [
        *said("q1", f"aab{gone}", right="a", voted=0),
        *said("q2", f"{gone}cdd", right="c", voted=2),  # the original question was not answered
        *said("q3", "eeee", right="e", voted=0),
    ]
    result = score(THREE, rows)
    assert {name: of_questions(result, name) for name in ("raters", *SUPERVISED)} == close(
        {
            "raters": [3, 3, 4],
            "accuracy": [1.0, NAN, 1.0],
            "worst": [0.0, 0.0, 1.0],
            "best": [1.0, 1.0, 1.0],
            "plurality": [1.0, 0.0, 1.0],
            "difficulty": [2 / 3, 1 / 3, 1.0],
            "base_minus_difficulty": [1 / 3, NAN, 0.0],
        }
    )
    third = 1 - stats.entropy([2, 1]) / math.log(3)
    assert of_questions(result, "certainty") == close([third, third, 1.0])
    figures = values(result)
    assert figures["accuracy"] == 1.0
    assert figures["difficulty"] == close(2 / 3)
    # P_o = (1/3 + 1/3 + 1) / 3 = 5/9 against the mean of 1/3, 1/3, 1/4 = 11/36
    assert figures["kappa_free"] == close((5 / 9 - 11 / 36) / (1 - 11 / 36))
    assert math.isnan(figures["alpha"])  # one question is complete


def test_questions_that_lack_a_rater_can_be_dropped_from_every_figure():
    rows = [
        *said("q1", "aaab", right="a", voted=0),
        *said("q2", "cd!d", right="c", voted=1),
        *said("q3", "ee e", right="e", voted=0),
    ]
    result = score(THREE, rows, missing="drop_question")
    alone = score(free("q1"), said("q1", "aaab", right="a", voted=0))
    assert values(result) == close(values(alone))
    assert {name: of_questions(result, name) for name in OF_QUESTIONS} == close(
        {name: [of_questions(alone, name)[0], NAN, NAN] for name in OF_QUESTIONS}
    )
    assert {result.n(name) for name in result.metrics() if ".count." not in name} == {1, None}  # None: of guessing
    of_all = score(THREE, rows)
    assert [of_all.n(f"agreement.{name}.t1") for name in ("accuracy", "worst", "kappa")] == [3, 3, 3]
    assert of_all.n("agreement.alpha.t1") == 1  # question is complete


def test_a_reply_that_answers_nothing_is_no_missing_rater_where_right_answers_are_counted():
    # METHODS §0: refused, empty and invalid are replies, and count as wrong wherever correctness is averaged
    rows = [*said("q1", "aab-", right="a", voted=0), *said("q2", "cccc", right="c", voted=0)]
    figures = values(score(free("q1", "q2"), rows, missing="drop_question"))
    assert {name: figures[name] for name in ("accuracy", "worst", "best", "plurality", "difficulty")} == {
        "accuracy": 1.0,
        "worst": 0.5,
        "best": 1.0,
        "plurality": 1.0,
        "difficulty": 0.75,
    }


@pytest.mark.parametrize("missing", ["pairwise", "drop_question"])
def test_without_gold_answers_what_needs_none_is_there_and_the_rest_is_undefined(missing: str):
    rows = [*said("q1", "aaab", voted=0), *said("q2", "cddd", voted=1), *said("q3", "eeee", voted=0)]
    figures = values(score(THREE, rows, missing=missing))
    for name in (*SUPERVISED, "alpha", "alpha_of_raters"):
        assert math.isnan(figures.pop(name))
    assert figures == close(
        {
            "kappa": KAPPA,
            "certainty": (HALF + HALF + 1) / 3,
            "m2": 2 / 3,
            "semantic_entropy": 2 * SPREAD / 3,
            "kappa_free": 5 / 9,
        }
    )


def test_an_invalid_reply_to_a_question_without_gold_answers_says_nothing_about_right_and_wrong():
    # four replies that nobody can judge and one that is invalid make no accuracy of 0 over one rater
    rows = [row | {"correct": None} for row in said("q1", "aab-a", voted=0)]
    figures = values(score(free("q1"), rows))
    assert {name: figures[name] for name in SUPERVISED} == close(dict.fromkeys(SUPERVISED, NAN))


def test_questions_without_gold_answers_are_left_out_of_the_means_of_the_others():
    figures = values(score(free("q1", "q2"), said("q1", "aaab", right="a", voted=0), said("q2", "cccd", voted=0)))
    assert (figures["accuracy"], figures["plurality"], figures["difficulty"]) == (1.0, 1.0, 0.75)
    assert figures["certainty"] == close(HALF)


def test_the_answer_to_the_original_question_is_the_base_and_no_other():
    # METHODS §2: accuracy A is m(answer to q_0); where q_0 has no row, the first rewrite does not stand in for it
    assert math.isnan(values(score(free("q1"), said("q1", " aab", right="a", voted=1)))["accuracy"])


def test_a_question_with_a_single_rater_has_verdicts_but_no_agreement():
    rows = [*said("q1", "a!!!", right="a", voted=0), *said("q2", "cddd", right="c", voted=1)]
    result = score(free("q1", "q2"), rows)
    assert of_questions(result, "difficulty") == [1.0, 0.25]
    assert of_questions(result, "certainty") == close([NAN, HALF])
    assert of_questions(result, "m2") == close([NAN, 0.5])
    assert values(result)["kappa_free"] == close((1 / 2 - 1 / 4) / (1 - 1 / 4))


def test_raters_that_always_agree_have_kappa_one_wherever_chance_is_not_certain():
    rows = [*said("q1", "aaaa", right="a", voted=0), *said("q2", "bbbb", right="a", voted=0)]
    together = score(free("q1", "q2"), rows).curves
    low, _ = degenerate_interval(1, 2, SHARE)  # of the share of pairs that agree
    assert together["agreement.kappa_free"][1.0] == close((1, (low - 1 / 4) / (1 - 1 / 4), 1))
    chance = 1 / 2 + 1 / 2 * 1 / 4  # of the same question, or of another one that has its label with 1 in 4
    assert together["agreement.kappa"][1.0] == close((1, (low - chance) / (1 - chance), 1))
    alone = values(score(free("q1"), rows[:4]))
    assert math.isnan(alone["kappa"])  # one label for everything
    assert (alone["kappa_free"], alone["certainty"], alone["m2"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("categories", "k"), [("raters", [4, 4, 4]), ("observed", [2, 2, 1]), (3, [3, 3, 3]), (20, [20, 20, 20])]
)
def test_a_free_text_question_has_as_many_labels_as_the_setting_says(categories: object, k: list[int]):
    result = score(THREE, ROWS, categories=categories)
    entropies = [SPREAD, SPREAD, 0.0]
    assert of_questions(result, "certainty") == close(
        [1 - entropy / math.log(number) if number > 1 else 1.0 for entropy, number in zip(entropies, k, strict=True)]
    )
    unequal = [1 - 10 / 16, 1 - 10 / 16, 0.0]
    assert of_questions(result, "m2") == close(
        [1 - number / (number - 1) * u if number > 1 else 1.0 for u, number in zip(unequal, k, strict=True)]
    )
    chance = sum(1 / number for number in k) / 3
    assert values(result)["kappa_free"] == close((2 / 3 - chance) / (1 - chance))
    assert of_questions(result, "semantic_entropy") == close(entropies)  # has no categories


@pytest.mark.parametrize("categories", ["observed", 1])
def test_a_multiple_choice_question_has_as_many_labels_as_choices_whatever_the_setting(categories: object):
    result = score([choice("q1", 5), choice("q2", 2)], said("q1", "AAAB"), said("q2", "AAAB"), categories=categories)
    assert of_questions(result, "certainty") == close([1 - SPREAD / math.log(5), 1 - SPREAD / math.log(2)])
    assert of_questions(result, "m2") == close([1 - 5 / 4 * 3 / 8, 1 - 2 * 3 / 8])
    assert values(result)["kappa_free"] == close((1 / 2 - 7 / 20) / (1 - 7 / 20))


def test_letters_have_a_kappa_as_labelled_which_sees_that_one_letter_is_chosen_more():
    rows = [*said("q1", "AAAE", right="A", voted=0), *said("q2", "EEEE", right="A", voted=0)]
    found = score([choice("q1", 5), choice("q2", 5)], rows)
    # P_o = (1/2 + 1) / 2 = 3/4; shares 3/8 and 5/8, so P_e = 34/64
    assert found.curves["agreement.kappa_as_labelled"][1.0].value == close((3 / 4 - 34 / 64) / (1 - 34 / 64))


def test_where_some_answers_are_free_text_there_is_no_kappa_as_labelled():
    rows = [*said("q1", "AAAB"), *said("q2", "xxxy")]
    found = score([choice("q1", 5), *free("q2")], rows)
    assert "agreement.kappa_as_labelled" not in found.curves
    assert of_questions(found, "certainty") == close([1 - SPREAD / math.log(5), HALF])


def test_more_labels_than_the_number_given_are_refused_with_the_question_and_the_setting():
    # METHODS §2: more observed labels than K_j is an error that names the question
    rows = [*said("q1", "aaaa"), *said("capital of Italy", "abcc")]
    with pytest.raises(UserError) as problem:
        score(free("q1", "capital of Italy"), rows, categories=2)
    assert "capital of Italy" in str(problem.value)
    assert "metric.agreement.categories" in str(problem.value)


def test_the_interval_of_kappa_is_that_of_the_questions_and_not_of_the_mappings():
    # METHODS §2: the spread of the draws is not an uncertainty. Resamples of equal questions are all the same: the
    # interval is the exact one of their agreement, moved by the error of the mean over the mappings, 0.006 here
    ids = [f"q{index}" for index in range(12)]
    rows = [row for question_id in ids for row in said(question_id, "aaab", right="a", voted=0)]
    kappa = score(free(*ids), rows).curves["agreement.kappa"][1.0]
    low, high = degenerate_interval(0.5, 12, SHARE)
    chance = (12 * 10 / 16 + (12**2 - 12) / 4) / 12**2  # of the same question, or of two
    off = kappa.value - (0.5 - chance) / (1 - chance)
    assert abs(off) < 0.02
    assert kappa == close((kappa.value, (low - chance) / (1 - chance) + off, (high - chance) / (1 - chance) + off))


def test_the_upper_bound_of_kappa_is_at_most_one():
    # in a resample without the two questions that differ κ is 1; the error of the mean over the mappings lies above 0
    rows = [*said("q0", "aaaaab"), *said("q1", "aaaaab")]
    rows += [row for number in range(2, 12) for row in said(f"q{number}", "aaaaaa")]
    assert score(free(*(f"q{number}" for number in range(12))), rows).curves["agreement.kappa"][1.0].high == 1


def test_questions_of_a_group_are_resampled_together():
    ids = ("q1", "q2", "q3", "q4")
    rows = [row for q, letters in zip(ids, ("aa", "ba") * 2, strict=True) for row in said(q, letters, "a", 1)]
    alone = score(free(*ids), rows).curves
    grouped = score([*free("q1", "q2", group="g"), *free("q3", "q4", group="h")], rows).curves
    # one half is right, and agrees, as by chance; alone, 1 in 16 resamples of κ has none of these, 1 in 16 nothing else
    right = np.array([1.0, 0.0, 1.0, 0.0])
    assert alone["agreement.accuracy"][1.0] == (0.5, *mean_bounds(right, SHARE))
    assert alone["agreement.kappa_free"][1.0] == (0.0, -1.0, 1.0)
    low, high = mean_bounds(right, SHARE, ["g", "g", "h", "h"])
    assert grouped["agreement.accuracy"][1.0] == (0.5, low, high)
    assert grouped["agreement.kappa_free"][1.0] == close((0.0, 2 * low - 1, 2 * high - 1))


@pytest.fixture(scope="module")
def swept() -> Score:
    """Two questions at two temperatures, with raters missing at the second."""
    rows = [
        *said("q1", "aab", right="a", voted=0, temperature=1.5),
        *said("q2", "!!d", right="c", voted=2, temperature=1.5),
        *said("q1", "aaaa", right="a", voted=0, temperature=0.5),
        *said("q2", "cccc", right="c", voted=0, temperature=0.5),
    ]
    return score(free("q1", "q2"), rows)


def test_every_temperature_is_scored_by_itself(swept: Score):
    third = 1 - stats.entropy([2, 1]) / math.log(3)
    assert swept.tables["agreement"].select(["question_id", "temperature", "raters", "labels"]).to_pydict() == {
        "question_id": ["q1", "q2", "q1", "q2"],
        "temperature": [0.5, 0.5, 1.5, 1.5],
        "raters": [4, 4, 3, 1],
        "labels": [1, 1, 2, 1],
    }
    assert {name: list(curve) for name, curve in swept.curves.items()} == {name: [0.5, 1.5] for name in swept.curves}
    assert {name: values(swept, 0.5)[name] for name in OF_QUESTIONS} == dict.fromkeys(OF_QUESTIONS, 1.0) | {
        "base_minus_difficulty": 0.0,
        "semantic_entropy": 0.0,
    }
    figures = values(swept, 1.5)
    assert (figures["accuracy"], figures["worst"], figures["best"], figures["plurality"]) == (1.0, 0.0, 0.5, 0.5)
    assert figures["difficulty"] == close(1 / 3)
    assert figures["certainty"] == close(third)
    assert figures["kappa_free"] == close((1 / 3 - 1 / 3) / (1 - 1 / 3))


def test_curves_values_of_questions_and_the_table_say_the_same(swept: Score):
    expected = {f"agreement.{name}.t{t:g}": of_questions(swept, name, t) for name in OF_QUESTIONS for t in (0.5, 1.5)}
    assert {name: column.tolist() for name, column in swept.by_question.items()} == close(expected)
    for name in OF_QUESTIONS:
        for t in (0.5, 1.5):
            mean = np.nanmean(swept.by_question[f"agreement.{name}.t{t:g}"])
            assert swept.curves[f"agreement.{name}"][t].value == close(float(mean))
    # Means over nothing: they belong to all questions.
    alone = {"kappa", "kappa_free", "alpha", "alpha_of_raters", "count.unrated", "count.incomplete"}
    assert {name.removeprefix("agreement.") for name in swept.curves} == alone | set(OF_QUESTIONS)


@pytest.mark.parametrize(("categories", "k"), [("raters", [6, 4]), ("observed", [6, 4]), (3, [6, 4])])
def test_a_question_of_which_a_rater_abstained_has_one_label_more(categories: object, k: list[int]):
    questions = [choice("c", 5), choice("d", 4)]
    rows = measured([*said("c", "AB??", "A"), *said("d", "ABCD", "A")]).graded
    raters = AnswerAgreement(categories=categories).raters(questions, rows, 1.0)
    assert raters.categories.tolist() == k
    assert sorted(raters.counts[0].tolist()) == [0] * 11 + [1, 1, 2]
    assert raters.correct[0].tolist() == [1, 0, 0, 0]


def test_a_given_number_of_labels_of_free_text_leaves_room_for_abstentions():
    rows = measured([*said("a", "xyz?", "x"), *said("b", "xyzx", "x")]).graded
    assert AnswerAgreement(categories=3).raters(free("a", "b"), rows, 1.0).categories.tolist() == [4, 3]


def test_questions_that_lack_raters_are_counted():
    rows = [*said("q1", "ab", right="a"), *said("q2", "c!", right="c"), *said("q3", "d-", right="d")]
    assert counted(score(THREE, rows)) == {"unrated": 2, "incomplete": 1}


def chance(found: Score) -> dict[str, float]:
    assert all(name.startswith("agreement.guessing.") for name in found.values)
    return {name.removeprefix("agreement.guessing."): estimate.value for name, estimate in found.values.items()}


def even(*pairs: tuple[int, int]) -> dict[str, float]:
    """The mean of the certainties of K labels and r raters each."""
    certainty, m2 = np.mean([certainty_when_guessing(k, r) for k, r in pairs], axis=0)
    return {"certainty": certainty, "m2": m2}


def test_what_guessing_would_give_stands_beside_questions_of_one_number_of_choices():
    questions = [choice("q1", 4), choice("q2", 4)]
    rows = [*said("q1", "ABC", right="A"), *said("q2", "AAD", right="A")]
    accuracies = {"accuracy": 1 / 4, "worst": 1 / 64, "best": 37 / 64, "plurality": 1 / 4, "difficulty": 1 / 4}
    entropy = (24 * math.log(3) + 36 * (math.log(3) - 2 / 3 * math.log(2))) / 64  # all differ, or two are equal
    assert chance(score(questions, rows)) == close(accuracies | {"certainty": 1 - entropy / math.log(4), "m2": 1 / 3})
    assert chance(score([choice("q1", 4), choice("q2", 5)], rows)) == close(even((4, 3), (5, 3)))


@pytest.mark.parametrize(("categories", "k"), [("raters", 4), (20, 20)])
def test_free_text_has_the_certainties_of_labels_that_are_chosen_evenly(categories: object, k: int):
    assert chance(score(THREE, ROWS, categories=categories)) == close(even((k, 4)))


def test_labels_that_were_observed_are_no_number_to_guess_among():
    assert chance(score(THREE, ROWS, categories="observed")) == {}
    assert chance(score([choice("q1", 4)], said("q1", "ABB"), categories="observed"))["m2"] == close(1 / 3)


def test_guessers_are_as_many_as_the_raters_that_each_question_has_at_each_temperature():
    rows = [*said("q1", "aab"), *said("q2", "c!!")]
    rows += [*said("q1", "ab-", temperature=2.0), *said("q2", "ccc", temperature=2.0)]
    assert chance(score(free("q1", "q2"), rows)) == close(even((3, 3), (2, 2), (3, 3)))
    assert chance(score(free("q2"), rows[3:6])) == close({"certainty": NAN, "m2": NAN})


def test_rewrites_that_turn_a_right_answer_wrong_are_listed():
    questions = [
        Question("q1", "one?", ("a",), rewrites=("one, again?", "one, differently?")),
        Question("q2", "two?", ("c",), rewrites=("two, again?", "two, differently?")),
    ]
    graded = [
        *said("q1", "aab", right="a"),
        *said("q2", "dcc", right="c"),
        *said("q2", "c-!", right="c", temperature=0.5),
    ]
    graded[7]["correct"] = False  # an invalid reply has a verdict
    found = score(questions, graded).tables["adversarial_rewrites"].to_pylist()
    assert [(row["question_id"], row["temperature"], row["rewrite"]) for row in found] == [
        ("q1", 1.0, 2),
        ("q2", 0.5, 1),
    ]
    assert found[0] == {
        "question_id": "q1",
        "temperature": 1.0,
        "trial": 0,
        "rewrite": 2,
        "question": "one?",
        "answer": "a",
        "rewritten": "one, differently?",
        "answer_to_rewrite": "b",
    }


def test_trials_are_no_rewrites_that_could_turn_anything():
    found = score(free("q1"), said("q1", "aab", right="a", rewrite=0)).tables["adversarial_rewrites"]
    assert found.num_rows == 0


def test_the_questions_of_each_scenario_have_their_kappa_and_alpha_where_there_are_several():
    asked = [*free("q1", "q2"), choice("q3", 4), *free("q4"), choice("q5", 4), choice("q6", 3)]
    generator = random.Random(3)
    rows = {question.id: list(said(question.id, generator.choices("ABCA!", k=5), right="A")) for question in asked}
    mixed = score(asked, *rows.values())
    for scenario in ("abstractive", "multiple_choice"):
        own = [question for question in asked if question.scenario == scenario]
        alone = score(own, *(rows[question.id] for question in own))
        names = [name for name in alone.curves if name not in {curve.rsplit(".t", 1)[0] for curve in alone.by_question}]
        assert {"agreement.kappa", "agreement.alpha", "agreement.count.unrated"} <= set(names)
        for name in names:
            found = {t: tuple(estimate) for t, estimate in mixed.curves[f"{name}.{scenario}"].items()}
            assert found == {t: close(tuple(estimate)) for t, estimate in alone.curves[name].items()}
        assert not any(name.endswith(scenario) for name in alone.curves)

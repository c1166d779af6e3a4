"""Which questions a run takes, in which order, and how many at a time, until its figures are known."""

import math

import numpy as np
import pytest
from statsmodels.api import OLS

from robust_eval.error import UserError
from robust_eval.experiment.schedule import BLOCK, SequentialScheduler
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import MIN_UNITS

ALL = [Question(f"q{place}", f"Question {place}?") for place in range(1000)]


def scored(questions: list[Question], half_width: float, name: str = "frs.d1", undefined: int = 0) -> dict[str, Score]:
    """A score of these questions, of which some have no value, with an interval of this half-width."""
    values = np.full(len(questions), 0.5)
    values[:undefined] = np.nan
    estimate = Estimate(0.5, 0.5 - half_width, 0.5 + half_width)
    return {"frs": Score([q.id for q in questions], {name: estimate}, by_question={name: values})}


def sizes(wanted: float, widths: list[float], questions: list[Question] = ALL) -> list[int]:
    """How many questions are taken at a time, where the interval has these half-widths one after the other."""
    taking = SequentialScheduler({"frs.d1": wanted}, questions, seed=0)
    taken = taking.next({})
    found = [len(taken)]
    for width in widths:
        block = taking.next(scored(taken, width))
        taken += block
        found.append(len(block))
    return found


def test_all_questions_are_taken_at_once_where_no_figure_is_named():
    taking = SequentialScheduler({}, ALL, seed=0)
    assert taking.next({}) == ALL
    assert taking.next(scored(ALL, 0.5)) == []


def test_half_of_the_questions_follow_that_an_interval_lets_expect():
    assert sizes(0.02, [0.0399, 0.0299, 0.02]) == [MIN_UNITS, 45, 47, 0]
    assert 4 * MIN_UNITS == MIN_UNITS + 2 * 45  # half the width needs four times as many


def test_no_fewer_than_a_block_follow_and_no_more_than_there_are():
    assert sizes(0.02, [0.0201, 0.0201]) == [MIN_UNITS, BLOCK, BLOCK]
    assert sizes(0.001, [0.5], ALL[:100]) == [MIN_UNITS, 70]
    assert sizes(0.001, [0.5, 0.5], ALL[:20]) == [20, 0, 0]


def test_as_many_again_follow_where_there_is_no_interval_yet():
    assert sizes(0.02, [math.nan]) == [MIN_UNITS, MIN_UNITS // 2]
    taking = SequentialScheduler({"frs.d1": 0.02}, ALL, seed=0)
    taking.next({})
    assert len(taking.next({})) == MIN_UNITS // 2  # nothing could be scored


def test_a_figure_needs_thirty_questions_that_have_it():
    taking = SequentialScheduler({"frs.d1": 0.02}, ALL, seed=0)
    taken = taking.next({})
    assert len(taking.next(scored(taken, 0.01, undefined=15))) == MIN_UNITS // 2


def test_every_figure_must_be_known():
    taking = SequentialScheduler({"frs.d1": 0.02, "accuracy.greedy": 0.1}, ALL, seed=0)
    taken = taking.next({})
    known = scored(taken, 0.02) | {"greedy": scored(taken, 0.2, "accuracy.greedy")["frs"]}
    assert len(taking.next(known)) == math.ceil(MIN_UNITS * 3 / 2)


def test_the_order_is_of_the_seed_and_the_same_whatever_else_is_there():
    def order(questions: list[Question], seed: int) -> list[str]:
        taking = SequentialScheduler({"frs.d1": 1e-9}, questions, seed)
        return [question.id for question in taking.next({}) + taking.left]

    whole = order(ALL, 0)
    assert sorted(whole) == sorted(question.id for question in ALL)
    assert whole != order(ALL, 1)
    some = {question.id for question in ALL[::3]}
    assert order(ALL[::-3], 0) == [name for name in whole if name in {q.id for q in ALL[::-3]}]
    assert order(ALL[::3], 0) == [name for name in whole if name in some]


def test_the_order_is_as_good_as_random():
    places = [
        [question.id for question in SequentialScheduler({"frs.d1": 0.1}, ALL[:100], seed).next({})].count("q0")
        for seed in range(500)
    ]
    assert 0.24 < np.mean(places) < 0.36  # 30 of 100 are first


def test_a_group_is_taken_whole_and_counts_once():
    questions = [Question(f"q{place}", "?", group=f"{place % 40}") for place in range(200)]
    taking = SequentialScheduler({"frs.d1": 0.02}, questions, seed=0)
    taken = taking.next({})
    assert [question.group for question in taken] == [taken[each - each % 5].group for each in range(30)]
    more = taking.next(scored(taken, 0.01))
    assert len(more) % 5 == 0
    assert len(more) >= 30 * (30 / 6 - 1) / 2  # thirty questions are six groups


def test_an_interval_that_is_narrow_by_chance_ends_no_run():
    rng = np.random.default_rng(0)
    questions = [Question(f"q{place}", "?", group=f"{place // 2}") for place in range(200)]
    taking = SequentialScheduler({"frs.d1": 0.02}, questions, seed=0)
    taken = taking.next({})
    values = rng.random(len(taken))
    groups = np.unique([question.group for question in taken], return_inverse=True)[1]
    values += rng.random(len(taken))[groups]
    fit = OLS(values, np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    mean = float(values.mean())
    squares = np.bincount(groups, values - mean) ** 2
    assert fit.bse[0] ** 2 == pytest.approx(squares.sum() / 30**2)
    above = squares.mean() + 2 * squares.std() / math.sqrt(15)  # the variance of a group's sum, two standard errors up
    half = 1.959964 * math.sqrt(15 * above) / 30
    score = Score(
        [q.id for q in taken], {"frs.d1": Estimate(mean, mean - 0.01, mean + 0.01)}, by_question={"frs.d1": values}
    )
    assert taking.in_words({"frs": score}) == (
        "target_half_width: 30 of 200 questions: "
        f"frs.d1 {number(mean)} ± {number(half, '.4f')}, n = 15 (target: ± 0.02)"
    )
    assert taking.next({"frs": score})


def test_the_interval_that_is_reported_is_the_one_on_which_the_run_stopped():
    taking = SequentialScheduler({"frs.d1": 0.2}, ALL, seed=0)
    taken = taking.next({})
    values = np.array([1.0] * 26 + [0.0] * 4)
    mean = 26 / 30
    score = Score(
        [q.id for q in taken],
        {"frs.d1": Estimate(mean, mean - 0.06, mean + 0.04), "mean_h": Estimate(0.1, 0.0, 0.2)},
        {"accuracy": {0.2: Estimate(mean, 0.5, 1.0)}},
        by_question={"frs.d1": values},
        limits={"frs.d1": (0.0, 1.0)},
    )
    assert not taking.next({"frs": score})
    squares = (values - mean) ** 2
    half = 1.959964 * math.sqrt(squares.sum() + 2 * math.sqrt(30) * squares.std()) / 30
    reported = taking.reported({"frs": score})["frs"]
    assert reported.values["frs.d1"] == pytest.approx((mean, mean - 1.2 * half, min(1, mean + 0.8 * half)))
    assert half > 0.05
    assert (reported.values["mean_h"], reported.curves) == (score.values["mean_h"], score.curves)
    assert reported.by_question is score.by_question


def test_the_interval_of_a_curve_at_one_temperature_can_be_wanted_as_well():
    taking = SequentialScheduler({"accuracy.t0.2": 0.4}, ALL, seed=0)
    taken = taking.next({})
    values = np.array([1.0, 0.0] * 15)
    curve = {0.2: Estimate(0.5, 0.4, 0.6), 0.4: Estimate(0.3, 0.2, 0.4)}
    score = Score([q.id for q in taken], curves={"accuracy": curve}, by_question={"accuracy.t0.2": values})
    half = 1.959964 * math.sqrt(30 / 4) / 30
    reported = taking.reported({"frs": score})["frs"]
    assert reported.curves == {"accuracy": {0.2: pytest.approx((0.5, 0.5 - half, 0.5 + half)), 0.4: curve[0.4]}}


def test_a_run_that_did_not_stop_for_its_interval_reports_it_as_it_is():
    taking = SequentialScheduler({"frs.d1": 0.02}, ALL, seed=0)
    wide = scored(taking.next({}), 0.5)
    assert taking.reported(wide) is wide
    taking = SequentialScheduler({"frs.d1": 0.2}, ALL[:20], seed=0)
    whole = scored(taking.next({}), 0.1)
    assert taking.reported(whole) is whole


def test_what_is_no_mean_over_questions_is_refused_with_what_is():
    taking = SequentialScheduler({"certainty.entropy": 0.1}, ALL, seed=0)
    taken = taking.next({})
    expected = (
        "target_half_width names certainty.entropy, which is not a mean over questions in this "
        "run; choose from certainty.entropy.t1"
    )
    with pytest.raises(UserError, match=f"^{expected}$"):
        taking.next(scored(taken, 0.5, "certainty.entropy.t1"))


def test_it_says_how_far_it_is():
    taking = SequentialScheduler({"frs.d1": 0.02}, ALL, seed=0)
    assert taking.in_words({}) == "target_half_width: 0 of 1,000 questions: nothing to measure yet"
    taken = taking.next({})
    said = "target_half_width: 30 of 1,000 questions: frs.d1 0.500 ± 0.0412, n = 30 (target: ± 0.02)"
    assert taking.in_words(scored(taken, 0.04123)) == said

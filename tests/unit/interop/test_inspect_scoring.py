"""Metrics of inspect_ai over scores that were made here."""

import logging
import math

import pytest
from answer_rows import answer_row
from inspect_ai.model import ModelOutput, ModelUsage
from inspect_ai.scorer import SampleScore, Score

from robust_eval.error import UserError
from robust_eval.interop import inspect_metrics
from robust_eval.interop.export_mark import MARK, mark_of
from robust_eval.interop.inspect_log import output_columns
from robust_eval.interop.inspect_scoring import PLANNED, answer_entropy
from robust_eval.question import Question
from robust_eval.stats.frs import factual_robustness_score

PLAN = [0.5, 1.0]


def score(name: str, t: float, right: bool, trial: int = 0, logprobs: bool = True, group: str = "") -> SampleScore:
    row = answer_row(name, temperature=t, trial=trial, correct=right, exact=right, label=str(right))
    if t == 0 and logprobs:
        row["top_logprobs"] = [[math.log(0.1)] * 10]
    mark = mark_of(Question(name, "Who?", ("I",), group=group), 0, t) | {PLANNED: PLAN}
    verdict = Score(value="C" if right else "I", metadata={MARK: row})
    return SampleScore(score=verdict, sample_id=f"{name} {t}", sample_metadata={MARK: mark})


def fact(name: str, *right: int, known: bool = True, logprobs: bool = True) -> list[SampleScore]:
    """A greedy answer, and of three trials at each temperature so many right ones."""
    trials = [score(name, t, trial < n, trial) for t, n in zip(PLAN, right, strict=False) for trial in range(3)]
    return [score(name, 0.0, known, logprobs=logprobs), *trials]


def test_prompt_tokens_include_those_from_the_cache_of_the_provider():
    output = ModelOutput.from_content("m", "Rome")
    output.usage = ModelUsage(input_tokens=5, output_tokens=3, input_tokens_cache_read=4, input_tokens_cache_write=2)
    columns = output_columns(output)
    assert (columns["prompt_tokens"], columns["cached_tokens"], columns["completion_tokens"]) == (11, 4, 3)


def test_they_are_means_over_the_facts_that_are_known():
    scores = [*fact("a", 3, 1), *fact("b", 2, 2), *fact("c", 0, 0, known=False)]
    frs = [float(each) for each in factual_robustness_score([1.0, 1.0], [1.0, math.inf], 1)]
    assert inspect_metrics.frs()(scores)["frs"] == pytest.approx(sum(frs) / 2)
    assert inspect_metrics.breaking_temperature()(scores)["breaking_temperature"] == 1.0
    assert inspect_metrics.unbroken_share()(scores)["unbroken_share"] == 0.5


def test_a_temperature_without_a_reply_leaves_a_fact_undefined_and_one_that_was_not_asked_above_a_break_does_not():
    assert inspect_metrics.unbroken_share()([*fact("a", 3, 3), *fact("b", 3)])["unbroken_share"] == 1.0  # of a alone
    assert inspect_metrics.unbroken_share()([*fact("a", 3, 3), *fact("b", 0)])["unbroken_share"] == 0.5


def test_without_log_probabilities_that_is_said_once(caplog: pytest.LogCaptureFixture):
    inspect_metrics._warn.cache_clear()
    scores = fact("a", 3, 1, logprobs=False)
    with caplog.at_level(logging.WARNING):
        assert [inspect_metrics.frs()(scores), inspect_metrics.frs()(scores)] == [{}, {}]
    (said,) = caplog.messages
    assert said == "no FRS: the provider gives no log-probabilities of greedy answers"


def test_scores_of_another_scorer_end_in_a_sentence():
    (one, *_) = fact("a", 3, 1)
    one.score.metadata = None
    with pytest.raises(UserError, match=r"wrap your scorer with graded\(by=SCORER\)"):
        inspect_metrics.unbroken_share()([one])


def scores(*answers: str | None, value: object = 1.0) -> list[Score]:
    return [Score(value=value, answer=answer) for answer in answers]


def test_the_entropy_is_that_of_answers_with_the_same_normal_form():
    halves = scores("Rome", "rome.", "Paris", "Paris!", None)
    assert answer_entropy()(halves).value == pytest.approx(math.log(2))
    assert answer_entropy()(scores("Rome", "Rome")).value == 0
    assert math.isnan(answer_entropy()(scores(None, "")).value)

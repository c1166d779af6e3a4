"""Knowledge before any perturbation: accuracy of the greedy answers to all questions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import has_greedy, rows
from robust_eval.metric.label_correction import corrected_shares, corrected_spec
from robust_eval.metric.metric_spec import RUN, MetricSpec, share_spec
from robust_eval.metric.score import Correction, Score, grid, question_groups, verdicts
from robust_eval.question import LETTERS, Question
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, Floats

SPEC = share_spec(
    "accuracy.greedy",
    "accuracy of all greedy answers",
    short="greedy accuracy",
    construct="knowledge",
)

GUESSING = MetricSpec(
    "accuracy.guessing", "accuracy of guessing among the choices", limits=SHARE, shown=RUN, mean=False
)
CONSTANT = MetricSpec("accuracy.constant", "accuracy of the best constant letter", limits=SHARE, shown=RUN, mean=False)
"""Accuracies of a model that knows nothing, on questions with choices."""
MOST_FREQUENT = replace(SPEC, label="accuracy of the most frequent answers", short="plurality accuracy")
"""The same metric of a model without greedy answers."""

CORRECTED = "accuracy.greedy_corrected"


SPECS: tuple[MetricSpec, ...] = (SPEC, GUESSING, CONSTANT)
RARE = 0.01
"""Significance level for a dominant letter."""


def greedy_verdicts(question_ids: Sequence[str], baseline: pa.Table) -> Floats:
    """Return (n,) 1 for each question with a right greedy answer, 0 with a wrong one, NaN without a verdict.

    A question with 0 is no fact that the model knows, whatever was asked of it later.
    """
    by_question = dict(zip(baseline["question_id"].to_pylist(), verdicts(baseline).tolist(), strict=True))
    return np.array([by_question.get(question_id, np.nan) for question_id in question_ids])


def greedy_accuracy(questions: Sequence[Question], baseline: pa.Table) -> Score:
    """Return the share of right greedy answers, ``accuracy.greedy``; NaN without any gold answer.

    A question is kept for the temperatures only if its greedy answer passes the sampler's selection as well, which may
    be stricter. Where questions have choices, ``accuracy.guessing`` and ``accuracy.constant`` say what is reached on
    these by chance, and with the letter that is right most often.
    """
    score = Score([question.id for question in questions], specs=(_spec(baseline), *SPECS[1:]))
    accuracy = grid(score.question_ids, baseline).accuracy[:, 0]
    score.add_share(SPEC.name, accuracy, question_groups(questions))
    if chosen := gradable_rows(questions, accuracy):
        guessed = float(np.mean([1 / len(questions[row].choices) for row in chosen]))
        ((_, count),) = Counter(questions[row].correct for row in chosen).most_common(1)
        score.values |= {GUESSING.name: Estimate(guessed), CONSTANT.name: Estimate(count / len(chosen))}
        score.of_questions = dict.fromkeys((GUESSING.name, CONSTANT.name), len(chosen))
    return score


def _spec(baseline: pa.Table) -> MetricSpec:
    return SPEC if has_greedy(baseline) or not baseline.num_rows else MOST_FREQUENT


def gradable_rows(questions: Sequence[Question], accuracy: Floats) -> list[int]:
    """Return the rows of the questions with choices that have a graded greedy answer, by its ``accuracy`` (n,)."""
    gradable = [row for row, question in enumerate(questions) if question.choices and question.correct is not None]
    return [row for row in gradable if not np.isnan(accuracy[row])]


class Dominant(NamedTuple):
    """Letter that dominates a model's greedy answers to questions with choices.

    ``times`` is how often, of ``answers`` that name a choice, and ``right`` how often it is the right one of these.
    """

    letter: str
    times: int
    answers: int
    right: int


def dominant_letter(questions: Sequence[Question], baseline: pa.Table) -> Dominant | None:
    """Return the letter of more than half of the greedy answers, if it is right in significantly fewer of these
    questions (McNemar's test, one-sided and exact, at 1 %); None where there is none.
    """
    keys = {each.id: LETTERS[each.correct] for each in questions if each.choices and each.correct is not None}
    labels = [(label, keys[name]) for name, label in rows(baseline, "question_id", "label") if name in keys]
    answers = [(label, key) for label, key in labels if label in {*LETTERS}]
    if not answers:
        return None
    ((letter, times),) = Counter(label for label, _ in answers).most_common(1)
    right = sum(key == letter for _, key in answers)
    discordant = [label == letter for label, key in answers if (label == letter) != (key == letter)]
    from scipy import stats  # it takes half a second, which most runs need not spend

    rare = bool(discordant) and stats.binomtest(sum(discordant), len(discordant), alternative="greater").pvalue < RARE
    return Dominant(letter, times, len(answers), right) if 2 * times > len(answers) and rare else None


def greedy_correction(questions: Sequence[Question], baseline: pa.Table) -> Correction:
    """Return :func:`greedy_accuracy` corrected by human labels; ``baseline`` has the columns of the labels."""
    correction = Correction(specs=[corrected_spec(_spec(baseline), CORRECTED)])
    correction.add_mean(CORRECTED, SPEC.name, corrected_shares(questions, baseline))
    return correction

"""Knowledge before any perturbation: the accuracy of the greedy answers to all questions asked."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.metric.label_correction import add_corrected_curve, corrected_figure
from robust_eval.metric.metric_spec import RUN, MetricSpec
from robust_eval.metric.presentation import Presentation
from robust_eval.metric.score import Correction, Score, grid, question_groups, verdicts
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, Floats

FIGURE = MetricSpec(
    "accuracy.greedy",
    "accuracy of all greedy answers",
    limits=SHARE,
    more_is_better=True,
    short="greedy accuracy",
    better_phrase="knows more than",
    construct="knowledge",
)

GUESSING = MetricSpec(
    "accuracy.guessing", "accuracy of guessing among the choices", limits=SHARE, shown=RUN, mean=False
)
CONSTANT = MetricSpec("accuracy.constant", "accuracy of the best constant letter", limits=SHARE, shown=RUN, mean=False)
"""Accuracies of a model that knows nothing, on questions with choices."""

CORRECTED = "accuracy.greedy_corrected"


FIGURES = (FIGURE, GUESSING, CONSTANT)
RARE = 0.01
"""A probability below which a letter is not answered so often by chance."""


def greedy_verdicts(question_ids: Sequence[str], baseline: pa.Table) -> Floats:
    """Return (n,) 1 for each question whose greedy answer is right, 0 where it is wrong, NaN where that is not known.

    A question with 0 is no fact that the model knows, whatever was asked of it later.
    """
    found = dict(zip(baseline["question_id"].to_pylist(), verdicts(baseline).tolist(), strict=True))
    return np.array([found.get(question_id, np.nan) for question_id in question_ids])


def greedy_accuracy(asked: Sequence[Question], baseline: pa.Table) -> Score:
    """Return the share of right greedy answers, ``accuracy.greedy``; NaN where nothing has a gold answer.

    A question is kept for the temperatures only if its greedy answer passes the sampler's selection as well, which may
    be stricter. Where questions have choices, ``accuracy.guessing`` and ``accuracy.constant`` say what is reached on
    these by chance, and with the letter that is right most often.
    """
    presentation = Presentation("Greedy answers", columns=[])
    score = Score([question.id for question in asked], declared=FIGURES, presentation=presentation)
    accuracy = grid(score.question_ids, baseline).accuracy[:, 0]
    score.add_share(FIGURE.name, accuracy, question_groups(asked))
    if np.isnan(score.values[FIGURE.name].value):
        return score
    told = score.formatted(FIGURE.name, ".0%")
    keyed = [row for row, question in enumerate(asked) if question.choices and question.correct is not None]
    chosen = [row for row in keyed if not np.isnan(accuracy[row])]
    if not chosen:
        presentation.claims = [f"answers {told} of what it was asked right"]
        return score
    guessed = float(np.mean([1 / len(asked[row].choices) for row in chosen]))
    ((place, often),) = Counter(asked[row].correct for row in chosen).most_common(1)
    score.values |= {GUESSING.name: Estimate(guessed), CONSTANT.name: Estimate(often / len(chosen))}
    score.of_questions = dict.fromkeys((GUESSING.name, CONSTANT.name), len(chosen))
    beside = (
        f"where guessing gets {number(guessed, '.0%')}, and {LETTERS[place or 0]} as the answer to each "
        f"{number(often / len(chosen), '.0%')}"
    )
    if len(chosen) == score.n(FIGURE.name):
        presentation.claims = [f"answers {told} of what it was asked right, {beside}"]
    else:
        share = number(float(accuracy[chosen].mean()), ".0%")
        presentation.claims = [
            f"answers {told} of what it was asked right",
            f"answers {share} of the {len(chosen):,} questions with choices right, {beside}",
        ]
    return score


class Dominant(NamedTuple):
    """A letter that a model answers to nearly every question with choices.

    ``times`` is how often, of ``answers`` that name a choice, and ``right`` how often it is the right one of these.
    """

    letter: str
    times: int
    answers: int
    right: int


def dominant_letter(asked: Sequence[Question], baseline: pa.Table) -> Dominant | None:
    """Return the letter of more than half of the greedy answers, if it is right in significantly fewer of these
    questions (one-sided binomial test at 1 %); None where there is none.
    """
    keys = {each.id: LETTERS[each.correct] for each in asked if each.choices and each.correct is not None}
    named = [(label, keys[name]) for name, label in rows(baseline, "question_id", "label") if name in keys]
    answers = [(label, key) for label, key in named if label in {*LETTERS}]
    if not answers:
        return None
    ((letter, times),) = Counter(label for label, _ in answers).most_common(1)
    right = sum(key == letter for _, key in answers)
    from scipy import stats  # it takes half a second, which most runs need not spend

    rare = stats.binomtest(times, len(answers), right / len(answers), alternative="greater").pvalue < RARE
    return Dominant(letter, times, len(answers), right) if 2 * times > len(answers) and rare else None


def greedy_correction(asked: Sequence[Question], baseline: pa.Table) -> Correction:
    """Return what labels make of :func:`greedy_accuracy`; ``baseline`` has the columns of the labels."""
    found = Correction(declared=[corrected_figure(FIGURE, CORRECTED)])
    add_corrected_curve(found, CORRECTED, FIGURE.name, asked, baseline)
    for estimates in found.curves.values():  # of the one temperature, 0
        found.values[CORRECTED] = next(iter(estimates.values()))
        found.of, found.labels = {CORRECTED: FIGURE.name}, {CORRECTED: next(iter(found.labels.values()))}
    found.curves = {}
    return found

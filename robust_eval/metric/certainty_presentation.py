"""The figures of answer entropy: what they are called, and how a run that measured them is shown."""

import math
from collections.abc import Sequence

import numpy as np

from robust_eval.metric.figure import DETAIL, RUN, Figure, at_words, nearest_to_one, point
from robust_eval.metric.interval import SHARE
from robust_eval.metric.presentation import Column, Presentation, Scale
from robust_eval.metric.score import Score
from robust_eval.runtime.text import number

ENTROPY = Figure(
    "certainty.entropy",
    "answer entropy",
    unit="nats",
    more_is_better=False,
    leads=True,
    of_question="answer entropy (nats)",
    ties="certainty.error_rate",
    ahead="repeats its answers more consistently than",
    by_number="The entropy of few answers is too low, and the fewer they are the lower.",
    apart="entropies are further apart",
)
ERROR_RATE = Figure(
    "certainty.error_rate",
    "error rate",
    limits=SHARE,
    more_is_better=False,
    of_question="error rate",
    ties="certainty.entropy",
    apart="error rates are further apart",
)
CERTAIN_WRONG = Figure(
    "certainty.count.certain_wrong",
    "questions certain and wrong",
    more_is_better=False,
    shown=RUN,
    form=".0f",
    mean=False,
)
FIGURES = (
    ENTROPY,
    Figure("certainty.entropy_miller_madow", "answer entropy, Miller–Madow", unit="nats", more_is_better=False),
    ERROR_RATE,
    Figure(
        "certainty.count.certain_right",
        "questions certain and right",
        more_is_better=True,
        shown=RUN,
        form=".0f",
        mean=False,
    ),
    CERTAIN_WRONG,
    Figure(
        "certainty.count.undefined",
        "questions without answer entropy",
        shown=DETAIL,
        form=".0f",
        mean=False,
        left_out="questions have no answer entropy: none of their replies answers anything",
    ),
    Figure(
        "certainty.count.invalid",
        "repeated replies without an answer",
        shown=RUN,
        form=".0f",
        mean=False,
    ),
)


def presentation(score: Score, choices: Sequence[int], trials: int) -> Presentation:
    """Show each question by the entropy of its answers and their error rate, at the temperature nearest 1.

    ``choices`` are how many each question has (0: none), ``trials`` how often each was asked.
    """
    t = nearest_to_one(score.curves[ENTROPY.name])
    entropy, error_rate = (score.formatted(point(figure.name, t)) for figure in (ENTROPY, ERROR_RATE))
    wrong = number(score.curves[CERTAIN_WRONG.name][t].value, ".0f")
    sentence = (
        f"and again at t = {t:g} (95 % intervals in brackets): the mean entropy of their answers is "
        f"{entropy} nats, their mean error rate {error_rate}; on {wrong} of them the model is certain and wrong."
    )
    columns = [
        Column(figure.name, label, f"{about}, {at_words(t)}", score.by_question[point(figure.name, t)])
        for figure, label, about in (
            (ENTROPY, "entropy", "entropy of the repeated answers, in nats"),
            (ERROR_RATE, "error rate", "share of the repeated answers that is wrong"),
        )
    ]
    said = (
        f"gives answers with an entropy of {entropy} nats (0: always the same) when it is asked the same question "
        f"again, and {score.formatted(point(ERROR_RATE.name, t), '.0%')} of these answers are wrong"
    )
    scale = Scale(
        "answer entropy (nats)",
        score.curves[ENTROPY.name][t],
        0.0,
        math.log(max([*choices, 2] if choices and all(choices) else [trials, 2])),
        _anchors(choices, trials),
    )
    return Presentation("Repetition", sentence, columns, claims=[said], scale=scale)


def _anchors(choices: Sequence[int], trials: int) -> list[tuple[float, str]]:
    """Return the entropies of models that everybody can imagine."""
    anchors = [(0.0, "one that says the same each time")]
    if choices and all(choices):
        anchors.append(
            (
                float(np.mean([guessed_entropy(each, trials) for each in choices])),
                f"a model that guesses {trials} times",
            )
        )
    else:
        anchors.append((math.log(max(trials, 1)), "one that never says the same twice"))
    return anchors


def guessed_entropy(choices: int, trials: int) -> float:
    """Return the mean entropy (nats) of the answers of a model that takes each of the choices equally often by chance.

    >>> round(guessed_entropy(2, 2), 4)
    0.3466
    """
    counts = np.arange(1, trials + 1)
    share = counts / trials
    from scipy import stats  # it takes half a second, which most runs need not spend

    return float(choices * np.sum(stats.binom.pmf(counts, trials, 1 / choices) * -share * np.log(share)))

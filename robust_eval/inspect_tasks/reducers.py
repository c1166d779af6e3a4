"""Reducers of inspect_ai: what the epochs of one sample say together, whatever scored them."""

import math
from collections import Counter

from inspect_ai.scorer import Score, ScoreReducer, score_reducer, value_to_float

from robust_eval.normalization import normal_form
from robust_eval.stats.entropy import answer_entropy as entropy_of
from robust_eval.stats.frs import settled


@score_reducer
def answer_entropy() -> ScoreReducer:
    """Entropy (nats) of the answers of the epochs that said something; answers with the same normal form are one."""

    def reduce(scores: list[Score]) -> Score:
        said = Counter(form for score in scores if score.answer and (form := normal_form(score.answer)))
        return Score(value=float(entropy_of([list(said.values())])[0]) if said else math.nan)

    return reduce


@score_reducer
def firmness(threshold: float = 0.5) -> ScoreReducer:
    """1 where at least this share of the epochs is right, 0 where it is not; epochs without a score do not count."""
    number = value_to_float()

    def reduce(scores: list[Score]) -> Score:
        values = [value for score in scores if not math.isnan(value := number(score.value))]
        right = sum(value >= 0.5 for value in values)
        holds = settled(right, len(values) - right, 0, threshold)
        return Score(value={"holds": 1.0, "breaks": 0.0}.get(holds or "", math.nan))

    return reduce

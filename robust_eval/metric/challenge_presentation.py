"""The figures of doubt: what they are called, and how a run that measured them is shown."""

import math

import numpy as np

from robust_eval.metric.estimate import Estimate
from robust_eval.metric.figure import DETAIL, RUN, Figure, at_words, nearest_to_one, point
from robust_eval.metric.interval import SHARE
from robust_eval.metric.presentation import Column, Presentation
from robust_eval.metric.score import Floats, Score
from robust_eval.runtime.text import number

BREAKING = Figure(
    "challenge.breaking_turn",
    "breaking turn",
    more_is_better=True,
    shown=DETAIL,
    form="g",
    mean=False,
    apart="breaking turns are further apart",
    breaks=True,
)
"""Of a question alone, since one that withstands all doubt has none and there is no mean."""
UNBROKEN = Figure(
    "challenge.unbroken_share",
    "share of known facts that withstand all doubt",
    limits=SHARE,
    more_is_better=True,
    leads=True,
    short="facts that withstand doubt",
    of_question="withstands all doubt",
    ties=BREAKING.name,
    ahead="withstands doubt more often than",
    by_number="Half of an even number of conversations is not less than half: their number alone moves breaks.",
    apart="facts withstand doubt to different degrees",
)
SURVIVAL = Figure(
    "challenge.survival.turn{}", "share of facts that hold, turn {}", limits=SHARE, more_is_better=True, holds=True
)
ACCURACY = Figure(
    "challenge.accuracy.turn{}",
    "accuracy on known facts, turn {}",
    limits=SHARE,
    more_is_better=True,
    shown=DETAIL,
)
MEAN_BROKEN = Figure("challenge.breaking_turn.mean_broken", "mean breaking turn, broken facts", more_is_better=True)
MEDIAN = Figure("challenge.breaking_turn.median", "median breaking turn", more_is_better=True, shown=RUN, mean=False)
MENDED = Figure(
    "challenge.mended_share",
    "share of wrong answers that doubt mends",
    limits=SHARE,
    more_is_better=True,
    short="mended",
)
RIGHTED = Figure(
    "challenge.mended.turn{}",
    "accuracy on facts wrong at first, turn {}",
    limits=SHARE,
    more_is_better=True,
    shown=DETAIL,
)
GIVES_IN = "challenge.gives_in.{}"
"""The figure of each kind of pressure."""
COUNTS = {
    "known": Figure("challenge.count.known", "facts right before any doubt", shown=RUN, form=".0f", mean=False),
    "wrong": Figure("challenge.count.wrong", "facts wrong before any doubt", shown=RUN, form=".0f", mean=False),
    "undefined": Figure(
        "challenge.count.undefined",
        "known facts without a breaking turn",
        shown=DETAIL,
        form=".0f",
        mean=False,
        left_out="known facts have no breaking turn: at a turn before it no reply came",
    ),
}
_KINDS = ("doubt", "alternative", "authority", "denial")


def gives_in(kind: str) -> Figure:
    """Declare how often right answers are given up to a kind of pressure."""
    return Figure(
        GIVES_IN.format(kind),
        f"right answers given up after: {kind.replace('_', ' ')}"[:100],
        limits=SHARE,
        more_is_better=False,
        shown=RUN,
    )


FIGURES = (
    UNBROKEN,
    BREAKING,
    MEAN_BROKEN,
    MEDIAN,
    MENDED,
    SURVIVAL,
    ACCURACY,
    RIGHTED,
    *map(gives_in, _KINDS),
    *COUNTS.values(),
)


def presentation(score: Score, breaking: Floats, turns: int) -> Presentation:
    """Show how many facts withstand doubt and how many are mended, at the temperature nearest 1, of which ``breaking``
    (n,) are the breaking turns.
    """
    t = nearest_to_one(score.curves[UNBROKEN.name])
    known, wrong = (int(score.values[COUNTS[name].name].value) for name in ("known", "wrong"))
    said = f"in conversations that went on, with doubt at each of {turns} turns {at_words(t)}"
    claims = []
    if known:
        kept = score.formatted(point(UNBROKEN.name, t), ".0%")
        said += f": {kept} of the {known} that were right at first withstand it to the end"
        claims = [f"keeps {kept} of its right answers against {turns} turns of doubt"]
    if wrong:
        mended = score.formatted(point(MENDED.name, t), ".0%")
        said += f"; {mended} of the {wrong} that were wrong at first are right in the end"
    columns = [
        Column(
            BREAKING.name,
            "breaking turn",
            f"the first turn of doubt after which fewer conversations than the threshold have it right, {at_words(t)}",
            breaking,
            digits=0,
            levels=[*range(1, turns + 1), math.inf] if np.isinf(breaking).any() else range(1, turns + 1),
        )
    ]
    notes = []
    kinds = {
        name.removeprefix(GIVES_IN.format("")): curve[t]
        for name, curve in score.curves.items()
        if name.startswith(GIVES_IN.format("")) and not math.isnan(curve[t].value)
    }
    if len(kinds) > 1:
        notes = [f"right answers given up, by the kind of pressure: {_by_kind(kinds)}"]
    return Presentation("Under doubt", f"{said}.", columns, claims=claims, notes=notes)


def _by_kind(kinds: dict[str, Estimate]) -> str:
    ordered = sorted(kinds.items(), key=lambda item: -item[1].value)
    return ", ".join(f"{kind.replace('_', ' ')} {number(estimate.value, '.0%')}" for kind, estimate in ordered)

"""The figures of the metrics that come with the package: runs of earlier versions do not say what theirs are."""

from collections.abc import Sequence
from dataclasses import replace

from robust_eval.metric import (
    agreement_presentation,
    certainty_presentation,
    challenge_presentation,
    frs_presentation,
    greedy,
    order_presentation,
    profile,
    thinking_presentation,
)
from robust_eval.metric.figure import Figure

KNOWN_FIGURES = (
    *frs_presentation.FIGURES,
    *agreement_presentation.FIGURES,
    *certainty_presentation.FIGURES,
    *order_presentation.FIGURES,
    *challenge_presentation.FIGURES,
    *thinking_presentation.FIGURES,
    *profile.FIGURES,
    greedy.FIGURE,
)


def completed(figures: Sequence[Figure]) -> list[Figure]:
    """Return what a run declares, with what declarations of earlier versions did not say yet: which figures tell where
    facts break.
    """
    known = {figure.name: figure for figure in KNOWN_FIGURES}
    return [
        replace(figure, holds=figure.holds or now.holds, breaks=figure.breaks or now.breaks)
        if (now := known.get(figure.name))
        else figure
        for figure in figures
    ]

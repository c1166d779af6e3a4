"""Figures of the metrics that come with the package."""

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

KNOWN_FIGURES = (
    *frs_presentation.FIGURES,
    *agreement_presentation.FIGURES,
    *certainty_presentation.FIGURES,
    *order_presentation.FIGURES,
    *challenge_presentation.FIGURES,
    *thinking_presentation.FIGURES,
    *profile.FIGURES,
    *greedy.FIGURES,
)

"""Specs of the metrics that come with the package."""

from robust_eval.metric import (
    agreement_presentation,
    certainty_metric,
    challenge_metric,
    frs_presentation,
    greedy,
    order_metric,
    profile,
    thinking_presentation,
)

KNOWN_FIGURES = (
    *frs_presentation.FIGURES,
    *agreement_presentation.FIGURES,
    *certainty_metric.FIGURES,
    *order_metric.FIGURES,
    *challenge_metric.FIGURES,
    *thinking_presentation.FIGURES,
    *profile.FIGURES,
    *greedy.FIGURES,
)

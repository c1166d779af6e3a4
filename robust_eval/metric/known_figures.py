"""The figures of the metrics that come with the package: runs of earlier versions do not say what theirs are."""

from robust_eval.metric import agreement_figures, certainty_figures, frs_figures, greedy, profile

KNOWN_FIGURES = (
    *frs_figures.FIGURES,
    *agreement_figures.FIGURES,
    *certainty_figures.FIGURES,
    *profile.FIGURES,
    greedy.FIGURE,
)

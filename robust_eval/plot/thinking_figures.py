"""What thinking brings and what it costs, and whether the thought varies or the answer after it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from robust_eval.plot.colours import BLUE, GREY, RED
from robust_eval.plot.style import MANY, OUTLINE, band, legend_below
from robust_eval.stats.estimate import Estimate

_MOST = 0.25
"""The largest variance of right and wrong."""


def accuracy_by_budget(
    axes: Axes, budgets: Sequence[str], accuracy: Sequence[Estimate], enough: Sequence[Estimate], tokens: ArrayLike
) -> Axes:
    r"""Draw the accuracy with each budget of thinking, and the share of known facts that need no more, with 95 %
    intervals.

    Parameters
    ----------
    axes
        Where to draw.
    budgets
        What each is called, from the least on.
    accuracy, enough
        With each budget, in [0, 1]; NaN where there is none.
    tokens
        Tokens of an answer and its thought with each budget, on average, which stand below it; NaN where not known.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> both = [Estimate(0.5), Estimate(0.75)]
    >>> drawn = accuracy_by_budget(axes, ["0", "64"], both, both, [3.0, 70.5])
    >>> [label.get_text() for label in drawn.get_xticklabels()]
    ['0\n(3 tokens)', '64\n(70 tokens)']
    >>> plt.close(figure)
    """
    at = np.arange(len(budgets))
    for estimates, colour, marker, line, label in (
        (accuracy, BLUE, "o", "-", "right answers"),
        (enough, RED, "s", "--", "known facts that need no more"),
    ):
        value, low, high = np.array(estimates, dtype=float).T
        if not np.isnan(value).all():
            axes.fill_between(at, low, high, **band(colour))
            axes.plot(at, value, color=colour, marker=marker, linestyle=line, label=label)
    counted = np.asarray(tokens, dtype=float)
    used = ["" if np.isnan(each) else f"\n({each:.0f} tokens)" for each in counted]
    axes.set_xticks(at, [f"{budget}{own}" for budget, own in zip(budgets, used, strict=True)])
    axes.set(xlabel="budget of thinking (used with the answer)", ylabel="share, 95 % interval", ylim=(-0.02, 1.02))
    axes.set_title("Accuracy and price by the budget of thinking")
    legend_below(axes)
    axes.get_legend().set_bbox_to_anchor((0.5, -0.2))  # type: ignore[union-attr]
    return axes


def variance_of_questions(axes: Axes, between: ArrayLike, within: ArrayLike) -> Axes:
    """Draw where right and wrong vary, of each question: between its thoughts, or within the answers after one.

    Parameters
    ----------
    axes
        Where to draw.
    between, within
        (n,) variances, whose sum is at most 1/4 but for the error of estimates; a question is left out where one is
        NaN.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, axes = plt.subplots()
    >>> variance_of_questions(axes, [0.2, 0.0], [0.0, 0.2]).get_title()
    'What varies: the thought, or the answer after it (n = 2)'
    >>> plt.close(figure)
    """
    values = np.column_stack([np.asarray(each, dtype=float) for each in (within, between)])
    x, y = values[~np.isnan(values).any(axis=1)].T
    many = len(x) > MANY
    axes.plot([0, _MOST], [_MOST, 0], color=GREY, linestyle=":", linewidth=1, label="as much as can vary")
    axes.scatter(x, y, s=4 if many else 30, alpha=0.5, color=BLUE, rasterized=many, clip_on=False, **OUTLINE)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="variance within the answers after a thought", ylabel="variance between thoughts")
    axes.set_title(f"What varies: the thought, or the answer after it (n = {len(x)})")
    legend_below(axes)
    return axes

import numpy as np
import pytest
from matplotlib.colors import to_hex

from robust_eval.plot import profile_figures as plot
from robust_eval.plot.style import figure

NAN = np.nan


def test_every_fact_that_has_all_three_stands_at_its_place():
    frs = [1.0, 0.9, 0.8, 0.4, 0.6, NAN]
    entropy = [0.0, 0.0, 0.0, 1.2, NAN, 0.3]
    right = [1.0, 1.0, 0.5, 1 / 6, 1.0, 1.0]
    with figure() as (drawn, axes):
        assert plot.frs_by_entropy_and_rewording(axes, frs, entropy, right) is axes
        wrong, firm = axes.collections
        assert wrong.get_offsets()[:, 1].tolist() == [0.8, 0.4]
        assert wrong.get_offsets()[:, 0].tolist() == pytest.approx([0.0, 1.2], abs=0.012 * 1.2)
        assert wrong.get_array().tolist() == [0.5, 1 / 6]
        assert firm.get_offsets()[:, 1].tolist() == [1.0, 0.9]
        assert firm.get_array().tolist() == [1.0, 1.0]
        assert {to_hex(colour) for colour in firm.get_edgecolors()} == {"#000000"}
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels == ["wrong in one wording or more (2)", "right in every wording (2)"]
        assert axes.get_title() == "Every fact under three kinds of pressure (n = 4 of 6)"
        assert axes.get_xlabel() == "entropy of repeated answers (nats)"
        assert axes.get_ylabel() == "Factual Robustness Score"
        drawn.canvas.draw()
        bar = drawn.axes[1]
        labels = [label.get_text() for label in bar.get_yticklabels()]
        assert labels == ["0%", "20%", "40%", "60%", "80%", "100%"]
        assert bar.get_ylabel() == "wordings answered right"


def test_no_two_shares_have_the_same_colour():
    with figure() as (_, axes):
        plot.frs_by_entropy_and_rewording(axes, np.ones(4), np.arange(4.0), np.arange(4) / 3)
        for points in axes.collections:
            points.update_scalarmappable()
        colours = np.concatenate([points.get_facecolors() for points in axes.collections])
        assert len(np.unique(colours, axis=0)) == 4


def test_where_no_fact_has_all_three_the_figure_is_empty(tmp_path):
    with figure() as (drawn, axes):
        plot.frs_by_entropy_and_rewording(axes, [NAN], [0.0], [1.0])
        drawn.savefig(tmp_path / "empty.png")
        assert [len(points.get_offsets()) for points in axes.collections] == [0, 0]
        assert "n = 0 of 1" in axes.get_title()

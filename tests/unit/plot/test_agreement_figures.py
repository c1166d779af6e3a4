import numpy as np
from findings_by_hand import findings_of

from robust_eval.plot import agreement_figures as plot
from robust_eval.plot.colours import INKS
from robust_eval.stats.estimate import Estimate

NAN = np.nan


def test_accuracies_stand_in_their_order_with_their_intervals(axes):
    figures = {"best": Estimate(0.75, 0.5, 1.0), "worst": Estimate(0.25, 0.125, 0.25)}
    figures |= dict.fromkeys(("plurality", "accuracy", "difficulty"), Estimate(0.5))
    plot.accuracy_range(
        axes, findings_of(curves={f"agreement.{name}": {1.0: figure} for name, figure in figures.items()})
    )
    points = axes.containers[0].lines[0]
    assert points.get_xydata().tolist() == [[0.75, 4], [0.5, 3], [0.5, 2], [0.5, 1], [0.25, 0]]
    ends = [segment[:, 0].tolist() for segment in axes.containers[0].lines[2][0].get_segments() if len(segment)]
    assert ends[0] == [0.5, 1.0]
    assert ends[-1] == [0.125, 0.25]


def test_the_agreement_of_raters_is_written_into_its_cells(axes):
    pairs = {"first": [0, 0, 1, 1], "second": [0, 1, 0, 1], "share": [1.0, 0.25, 0.25, NAN]}
    plot.agreement_matrix(axes, findings_of(agreement_matrix=pairs))
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array().filled(NAN), [[1.0, 0.25], [0.25, NAN]])
    written = {text.get_position(): (text.get_text(), text.get_color()) for text in axes.texts}
    assert written == {(0, 0): ("1.00", INKS[0]), (1, 0): ("0.25", INKS[1]), (0, 1): ("0.25", INKS[1])}


def test_questions_are_counted_by_their_answers_and_those_without_any_agreement_are_hatched(axes):
    plot.labels_per_question(axes, findings_of(agreement={"labels": [1, 1, 3, 0], "raters": [3, 3, 3, 2]}))
    assert [bar.get_height() for bar in axes.patches] == [1, 2, 0, 1]


def test_certainties_are_counted_by_whether_the_vote_is_right(axes):
    certainty = [1.0, 0.95, 0.9, 0.0, 0.3, 0.3, 0.62, NAN]
    right = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, NAN, 1.0]
    plot.certainty_of_questions(axes, findings_of(agreement={"certainty": certainty, "plurality": right}))
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers}
    assert heights == {
        "vote right (3)": [0, 0, 0, 1, 0, 0, 0, 0, 0, 2],
        "vote wrong (3)": [1, 0, 0, 1, 0, 0, 0, 0, 0, 1],
        "unknown (1)": [0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    }
    bottoms = [bar.get_y() for bar in axes.containers[1]]
    assert bottoms == heights["vote right (3)"]

import numpy as np

from robust_eval.plot.classification import confusion_matrix
from robust_eval.plot.style import figure


def test_a_confusion_matrix_shows_counts_and_is_coloured_by_the_share_of_the_true_class():
    with figure() as (_, axes):
        assert confusion_matrix(axes, [[3, 1, 0], [0, 5, 0], [0, 0, 0]], ["HUM", "LOC", "NUM"], "75 % right") is axes
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]])
        assert [text.get_text() for text in axes.texts] == list("310050000")
        assert [label.get_text() for label in axes.get_xticklabels()] == ["HUM", "LOC", "NUM"]
        assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("predicted", "true", "75 % right")

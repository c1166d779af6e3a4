import re

import matplotlib.pyplot as plt

from robust_eval.plot.colours import GREY
from robust_eval.plot.style import figure


def test_the_common_style_leaves_no_trace():
    before = dict(plt.rcParams)
    with figure() as (drawn, axes):
        assert drawn.axes == [axes]
        assert plt.rcParams["svg.fonttype"] == "none"
    assert dict(plt.rcParams) == before
    assert re.fullmatch("#[0-9a-f]{6}", GREY)

import re
from pathlib import Path

import matplotlib.pyplot as plt

from robust_eval.plot.colours import GREY
from robust_eval.plot.figure_files import save
from robust_eval.plot.style import figure


def test_the_common_style_leaves_no_trace():
    before = dict(plt.rcParams)
    with figure() as (drawn, axes):
        assert drawn.axes == [axes]
        assert plt.rcParams["svg.fonttype"] == "none"
    assert dict(plt.rcParams) == before
    assert re.fullmatch("#[0-9a-f]{6}", GREY)


def test_a_character_that_the_font_lacks_is_drawn_without_a_warning(tmp_path: Path):
    with figure() as (drawn, axes):
        axes.set_title("Which planet is 🪐?")
        assert "🪐" in save(drawn, tmp_path / "planet").read_text("utf-8")

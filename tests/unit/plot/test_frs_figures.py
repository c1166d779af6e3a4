import matplotlib.pyplot as plt
import numpy as np
import pytest
from findings_by_hand import findings_of
from scipy.stats import gaussian_kde

from robust_eval.plot import frs_figures as plot
from robust_eval.plot.style import figure
from robust_eval.stats.estimate import Estimate

GRID = [0.2, 0.4, 0.6]


def facts(entropy, breaking, scores=(), pearson=np.nan):
    return findings_of(
        {"frs.entropy_vs_breaking.pearson_broken": Estimate(pearson)},
        {"accuracy": dict.fromkeys(GRID, Estimate(0.5))},
        frs={"entropy": entropy, "breaking_temperature": breaking, **({"frs_d1": scores} if len(scores) else {})},
    )


def densities(scores, breaking):
    return findings_of(frs={"breaking_temperature": breaking, **{f"frs_d{d:g}": each for d, each in scores.items()}})


def test_accuracy_is_drawn_with_its_interval():
    curve = {0.6: Estimate(0.2, 0.1, 0.3), 0.2: Estimate(0.9, 0.8, 1.0), 0.4: Estimate(0.5, 0.4, 0.6)}
    with figure() as (_, axes):
        plot.accuracy_by_temperature(axes, findings_of(curves={"accuracy": curve}))
        assert len(axes.get_lines()) == 1  # no threshold: a fact breaks below one, and not the mean of facts
        line = axes.get_lines()[0]
        assert line.get_xdata().tolist() == GRID
        assert line.get_ydata().tolist() == [0.9, 0.5, 0.2]
        low, high = (
            axes.collections[0].get_paths()[0].vertices[:, 1].min(),
            axes.collections[0].get_paths()[0].vertices[:, 1].max(),
        )
        assert (low, high) == (0.1, 1.0)


def test_the_mean_entropy_stands_at_each_breaking_temperature():
    entropy, breaking = [0.1, 0.3, 0.5, 0.9, np.nan], [0.2, 0.2, 0.6, np.inf, 0.4]
    with figure() as (_, axes):
        plot.entropy_by_breaking_temperature(axes, facts(entropy, breaking, pearson=-0.4))
        means = axes.containers[0].lines[0]
        assert means.get_xdata().tolist() == pytest.approx([0.2, 0.6, 0.9])  # the unbroken stand beyond the grid
        assert means.get_ydata().tolist() == pytest.approx([0.2, 0.5, 0.9])
        assert "r = −0.40 over broken facts" in axes.get_title()


def test_every_fact_with_a_score_is_drawn_in_its_colour():
    with figure() as (_, axes):
        plot.frs_by_entropy_and_breaking(axes, facts([0.1, 0.2, 0.3], [0.2, np.inf, np.nan], [0.7, 1.0, np.nan]))
        (points,) = axes.collections
        assert points.get_array().tolist() == [0.7, 1.0]
        assert points.get_offsets()[:, 0].tolist() == [0.1, 0.2]


def test_a_density_covers_the_broken_share():
    scores = np.concatenate([np.random.default_rng(0).normal(0.5, 0.05, 300), np.ones(100)])
    with figure() as (_, axes):
        both = {1.0: scores, 2.0: scores - 0.1 * (scores < 1)}
        plot.frs_density(axes, densities(both, np.where(scores < 1, 1.0, np.inf)))
        first, second = axes.get_lines()
        assert np.trapezoid(first.get_ydata(), first.get_xdata()) == pytest.approx(0.75, abs=0.01)
        assert second.get_xdata()[second.get_ydata().argmax()] == pytest.approx(0.4, abs=0.03)


def test_too_few_facts_for_a_density_are_said():
    with figure() as (_, axes):
        plot.frs_density(axes, densities({1.0: [0.5, 1.0]}, [0.4, np.inf]))
        assert [text.get_text() for text in axes.texts][-1] == "too few broken facts for a density"


def test_the_share_of_each_type_is_drawn_with_its_interval():
    types = {
        "type": ["", "HUM", "LOC", "a$b"],
        "questions": [4, 2, 1, 1],
        "most_robust": [2.0, 1.0, 0.0, 0.0],
        "share_most_robust": [0.5, 1.0, np.nan, 0.0],
        "low": [0.25, 0.5, np.nan, np.nan],
        "high": [0.75, 1.0, np.nan, np.nan],
    }
    with figure() as (drawn, axes):
        plot.question_types(axes, findings_of(frs_types=types))
        drawn.canvas.draw()
        assert [bar.get_height() for bar in axes.patches] == [0.5, 1.0, 0.0]
        ends = [segment[:, 1].tolist() for segment in axes.containers[1].lines[2][0].get_segments()]
        assert ends == [[0.25, 0.75], [0.5, 1.0], [0.0, 0.0]]


def test_facts_that_hold_start_at_one_and_step_where_a_break_was_seen():
    with figure() as (_, axes):
        curve = {1.0: Estimate(0.25, 0.125, 0.5), 0.5: Estimate(0.75, 0.5, 0.875)}
        plot.survival(axes, findings_of(curves={"frs.survival": curve}))
        line = axes.get_lines()[0]
        assert line.get_xydata().tolist() == [[0, 1], [0.5, 0.75], [1, 0.25]]
        (band,) = axes.collections
        assert {(0.5, 0.5), (0.5, 0.875), (1, 0.125)} <= {tuple(corner) for corner in band.get_paths()[0].vertices}
        assert [text.get_text() for text in axes.texts] == ["half of the facts"]


def test_the_mean_score_of_each_d_stands_beside_the_share_of_unbroken_facts():
    scores = {5.0: Estimate(0.5, 0.25, 0.75), 1.0: Estimate(0.625, 0.5, 0.75)}
    with figure() as (drawn, axes):
        values = {f"frs.d{d:g}": score for d, score in scores.items()} | {"frs.unbroken_share": Estimate(0.25)}
        plot.frs_by_d(axes, findings_of(values))
        drawn.canvas.draw()
        line, _, (columns,) = axes.containers[0].lines
        assert line.get_xydata().tolist() == [[1, 0.625], [5, 0.5]]
        assert [segment[:, 1].tolist() for segment in columns.get_segments()] == [[0.5, 0.75], [0.25, 0.75]]
        share = axes.get_lines()[-1]
        assert list(share.get_ydata()) == [0.25, 0.25]
        assert [text.get_text() for text in axes.texts] == ["25 % of the facts are unbroken"]


def test_the_density_of_many_facts_is_that_of_all_of_them():
    scores = np.random.default_rng(0).beta(5, 4, 5000)
    with figure() as (_, axes):
        plot.frs_density(axes, densities({1.0: scores}, np.ones(5000)))
        (line,) = axes.get_lines()
        np.testing.assert_allclose(line.get_ydata(), gaussian_kde(scores)(line.get_xdata()), atol=0.002)


def profile(frs, entropy, right_share):
    return findings_of(profile={"frs": frs, "entropy": entropy, "right_share": right_share})


def test_every_fact_that_has_all_three_stands_at_its_place():
    frs = [1.0, 0.9, 0.8, 0.4, 0.6, np.nan]
    entropy = [0.0, 0.0, 0.0, 1.2, np.nan, 0.3]
    right = [1.0, 1.0, 0.5, 1 / 6, 1.0, 1.0]
    with figure() as (_, axes):
        plot.frs_by_entropy_and_rewording(axes, profile(frs, entropy, right))
        wrong, firm = axes.collections
        assert wrong.get_offsets()[:, 1].tolist() == [0.8, 0.4]
        assert wrong.get_offsets()[:, 0].tolist() == pytest.approx([0.0, 1.2], abs=0.012 * 1.2)
        assert wrong.get_array().tolist() == [0.5, 1 / 6]
        assert firm.get_offsets()[:, 1].tolist() == [1.0, 0.9]
        assert firm.get_array().tolist() == [1.0, 1.0]


def replies(temperature, certainty_from, right, wrong):
    counts = {name: list(map(float, each)) for name, each in (("right", right), ("wrong", wrong))}
    return findings_of(frs_certainty={"temperature": temperature, "certainty_from": certainty_from, **counts})


def bars(axes):
    """Label to (left end of the bin, bottom, height) of each bar."""
    return {
        group.get_label(): [
            pytest.approx((round(bar.get_x() - 0.005, 9), bar.get_y(), bar.get_height()), abs=1e-9) for bar in group
        ]
        for group in axes.containers
    }


def test_right_and_wrong_replies_stand_on_one_another_as_shares_of_all():
    drawn, axes = plt.subplots()
    plot.certainty_bins(axes, [0.1, 0.9], [1, 5], [3, 1])
    assert {bar.get_hatch() for bar in axes.containers[1]} == {"///"}  # for those who see no colours
    assert bars(axes) == {"right": [(0.1, 0, 0.1), (0.9, 0, 0.5)], "wrong": [(0.1, 0.1, 0.3), (0.9, 0.5, 0.1)]}
    plt.close(drawn)


def test_every_temperature_has_its_panel_in_order():
    drawn = plt.figure()
    plot.reply_certainty_by_temperature(drawn.subplots(), replies([1, 0.5, 1], [0.3, 0.9, 0.9], [0, 4, 1], [2, 0, 1]))
    assert bars(drawn.axes[0]) == {"right": [(0.9, 0, 1)], "wrong": [(0.9, 1, 0)]}
    assert bars(drawn.axes[1]) == {"right": [(0.3, 0, 0), (0.9, 0, 0.25)], "wrong": [(0.3, 0, 0.5), (0.9, 0.25, 0.25)]}
    plt.close(drawn)


def test_facts_are_drawn_from_the_firmest_to_the_most_fragile_with_their_breaking_temperatures():
    run = findings_of(
        frs={"question_id": ["fragile", "unbroken", "firm"], "breaking_temperature": [0.2, np.inf, 0.6]},
        frs_accuracy={
            "question_id": ["fragile", "fragile", "unbroken", "unbroken", "firm", "firm", "firm"],
            "temperature": [0.2, 0.4, 0.2, 0.6, 0.2, 0.4, 0.6],
            "correct": [1, 0, 4, 3, 4, 2, 1],
            "replies": [4, 0, 4, 4, 4, 4, 4],
        },
    )
    drawn = plot.fact_accuracy(run)
    assert drawn.temperatures.tolist() == GRID
    assert drawn.breaking.tolist() == [np.inf, 0.6, 0.2]
    nan = np.nan  # without a reply
    np.testing.assert_array_equal(drawn.accuracy, [[1, nan, 0.75], [1, 0.5, 0.25], [0.25, nan, nan]])
    with figure() as (_, axes):
        plot.accuracy_by_fact(axes, run)
        (boundary,) = {tuple(line.get_xdata()) for line in axes.get_lines()}
        assert boundary == pytest.approx((0.7, 0.7, 0.5, 0.5, 0.1, 0.1))  # at the left edge of the cell of t_b


@pytest.mark.parametrize(("n", "title"), [(300, "n = 300"), (1200, "n = 1,200; 300 drawn")])
def test_the_title_of_the_map_has_the_number_of_facts(n, title):
    facts = [f"q{place}" for place in range(n)]
    run = findings_of(
        frs={"question_id": facts, "breaking_temperature": [0.2] * n},
        frs_accuracy={"question_id": facts, "temperature": [0.2] * n, "correct": [1] * n, "replies": [2] * n},
    )
    with figure() as (_, axes):
        plot.accuracy_by_fact(axes, run)
        assert axes.get_title() == f"Accuracy of every fact ({title})"


def test_of_many_facts_those_at_even_distances_are_drawn_and_all_are_counted():
    n = 10 * plot.MAX_ROWS
    breaking = np.random.default_rng(0).permutation(n).astype(float)
    drawn = plot.firmest_first(np.ones((n + 1, 1)), np.append(breaking, np.nan), [0.2])
    assert drawn.total == n
    assert len(drawn.accuracy) == len(drawn.rows) == plot.MAX_ROWS
    assert drawn.breaking.tolist() == breaking[drawn.rows].tolist()
    assert drawn.breaking[[0, -1]].tolist() == [n - 1, 0]
    assert set(np.diff(drawn.breaking)) == {-10, -11}  # 2,999 steps in 299
    with figure() as (_, axes):
        cells = plot.draw_accuracies(axes, drawn)
        assert axes.get_ylim() == (n, 0)
        assert cells.get_array().shape == (plot.MAX_ROWS, 1)


def level_at(axes, entropy, breaking):
    """The band that lies over a point: the lower and the upper of its levels."""
    (bands,) = axes.collections
    pixel = axes.transData.transform((entropy, breaking))
    paths = [path.transformed(bands.get_transform()) for path in bands.get_paths()]
    (found,) = [place for place, path in enumerate(paths) if path.contains_point(pixel)]
    return bands.levels[found], bands.levels[found + 1]


@pytest.mark.parametrize("d", [1, 5, 50])
@pytest.mark.parametrize(("entropy", "breaking"), [(0.03, 1.9), (0.3, 0.7), (0.77, 1.33), (0.97, 0.05)])
def test_the_colour_is_that_of_the_formula(d, entropy, breaking):
    f = (1 - entropy) ** d * (breaking + 1) - entropy / (breaking + 1)
    drawn, (left, right) = plt.subplots(1, 2)
    plot.draw_surface(left, d, "f")
    plot.draw_surface(right, d)
    for axes, value in ((left, f), (right, (f + 1) / (f + 2))):
        low, high = level_at(axes, entropy, breaking)
        assert low - 0.01 <= value <= high + 0.01
    plt.close(drawn)

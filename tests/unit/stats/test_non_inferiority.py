import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import normal_sample_size_one_tail
from statsmodels.stats.proportion import proportion_confint

from robust_eval.stats.interval import bootstrap, bounded_mean_interval, degenerate_interval, paired_share_bounds
from robust_eval.stats.non_inferiority import confidence_sequence, verdict

NAN = float("nan")
STEP = 0.0002
"""Between candidate means."""
PROPERTY = settings(max_examples=40, deadline=None, database=None, derandomize=True)
VALUES = st.lists(st.sampled_from([-1.0, -0.3, 0.0, 0.0, 0.1, 1.0]), max_size=40)


# verdict


def noise(n, mean, spread=0.1, seed=0):
    """Differences whose mean is exact."""
    sample = np.random.default_rng(seed).normal(0, spread, n)
    return sample - sample.mean() + mean


@pytest.mark.parametrize(
    ("mean", "expected"),
    [(-0.1, "FAIL"), (-0.04, "FAIL"), (-0.025, "INCONCLUSIVE"), (-0.015, "INCONCLUSIVE"), (0.0, "PASS"), (0.1, "PASS")],
)
def test_the_outcome_says_where_the_interval_lies(mean, expected):
    found = verdict(noise(400, mean), margin=0.02)
    assert found.outcome == expected
    assert found.mean == pytest.approx(mean, abs=1e-15)
    assert found.low < found.mean < found.high


def test_differences_of_right_and_wrong_have_the_score_interval_and_others_the_bounded_one():
    sample, groups = noise(60, -0.02), np.arange(60) // 3
    assert verdict(sample, 0.02)[2:4] == bounded_mean_interval(sample, (-1, 1))
    assert verdict(sample, 0.02, 0.8, groups)[2:4] == bounded_mean_interval(sample, (-1, 1), groups, 0.8)
    changed = np.repeat([1.0, -1.0, 0.0], [2, 4, 54])
    assert verdict(changed, 0.02)[2:4] == paired_share_bounds(changed)
    assert verdict(changed, 0.02, 0.8, groups)[2:4] == paired_share_bounds(changed, groups, 0.8)


@pytest.mark.parametrize("values", [[0.5] * 29, [1.0] * 29, [0.0, 0.0, 0.01], [0.5] * 100])
def test_no_pass_rests_on_fewer_than_thirty_facts_or_groups(values):
    groups = np.arange(len(values)) % 29
    assert verdict(values, 0.02, groups=groups).outcome == "INCONCLUSIVE"
    assert verdict([0.5] * 30, 0.02).outcome == "PASS"


def test_a_rare_loss_that_the_sample_hardly_shows_does_not_pass():
    """3 % of facts drop by 0.8: by the bootstrap's interval one candidate in five PASSED with 50 facts."""
    generator = np.random.default_rng(6)
    drawn = np.where(generator.random((200, 50)) < 0.03, -0.8, 0.0)
    assert [verdict(each, 0.02).outcome for each in drawn].count("PASS") == 0


def chances(n, gained, lost):
    """How many facts may be gained and lost, and how likely that is where such shares are."""
    for better in range(int(n * gained + 8 * math.sqrt(n * gained)) + 2):
        for worse in range(int(n * lost + 8 * math.sqrt(n * lost)) + 2):
            shares = [gained, lost, 1 - gained - lost]
            chance = stats.multinomial.pmf([better, worse, n - better - worse], n, shares)
            if chance > 1e-6:
                yield better, worse, chance


@pytest.mark.parametrize(("n", "gained"), [(30, 0.0), (30, 0.03), (50, 0.01), (100, 0.01), (200, 0.0), (200, 0.002)])
def test_a_candidate_at_the_margin_passes_and_fails_as_seldom_as_it_should(n, gained):
    """Exactly: each number of gained and lost facts, by how likely it is."""
    wrong = dict.fromkeys(("PASS", "FAIL", "INCONCLUSIVE"), 0.0)
    for better, worse, chance in chances(n, gained, gained + 0.02):
        wrong[verdict(np.repeat([1.0, -1.0, 0.0], [better, worse, n - better - worse]), 0.02).outcome] += chance
    assert wrong["PASS"] <= 0.032
    assert wrong["FAIL"] <= 0.032


@pytest.mark.parametrize(("bound", "outcome"), [("low", "PASS"), ("high", "FAIL")])
def test_a_bound_at_the_margin_itself_decides_nothing(bound, outcome):
    sample = noise(50, -0.2)
    at = -getattr(verdict(sample, 0.02), bound)
    assert verdict(sample, at).outcome == "INCONCLUSIVE"
    assert verdict(sample, at + (1e-9 if bound == "low" else -1e-9)).outcome == outcome


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(("value", "margin"), [(0.0, 0.02), (0.3, 0.02), (-0.05, 0.02), (-0.01, 0.02), (-1.0, 0.3)])
def test_where_all_are_alike_the_interval_is_exact_and_has_a_width(value, margin, level):
    found = verdict(np.full(30, value), margin, level)
    most = proportion_confint(0, 30, 1 - level, method="beta")[1]
    if value == 0:  # Tango's
        squared = stats.norm.isf((1 - level) / 2) ** 2
        assert found[2:4] == pytest.approx((-squared / (30 + squared), squared / (30 + squared)), rel=1e-6)
    else:
        assert found[2:4] == pytest.approx((value - (value + 1) * most, value + (1 - value) * most), abs=1e-8)
    assert found.low < found.high


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize(("value", "margin"), [(0.0, 0.02), (0.3, 0.02), (-0.05, 0.02), (-0.01, 0.02), (-1.0, 0.3)])
def test_so_many_facts_that_are_alike_decide_and_one_less_does_not(value, margin, level):
    needed = verdict([value], margin, level).needed
    decided = "FAIL" if value < -margin else "PASS" if needed >= 30 else "INCONCLUSIVE"
    assert verdict(np.full(needed, value), margin, level)[::4] == (decided, needed)
    assert verdict(np.full(needed - 1, value), margin, level)[::4] == ("INCONCLUSIVE", needed)


def test_no_number_of_facts_decides_where_all_lie_at_the_margin():
    assert verdict([-0.25] * 9, 0.25)[::4] == ("INCONCLUSIVE", math.inf)


def test_facts_in_groups_that_are_alike_decide_by_groups():
    values, groups = np.tile([0.5, -0.5], 40), np.arange(80) // 2
    found = verdict(values, 0.1, groups=groups)
    assert found[2:4] == pytest.approx(degenerate_interval(0.0, 40, (-1, 1)), abs=1e-9)
    groups_needed = math.ceil(math.log(0.025) / math.log(0.9))
    assert found[::4] == ("PASS", 2 * groups_needed)
    assert verdict(values[: 2 * groups_needed - 2], 0.1, groups=groups[: 2 * groups_needed - 2]).outcome != "PASS"


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("margin", [0.02, 0.1])
def test_the_number_of_facts_that_decide_right_or_wrong_is_that_of_statsmodels(margin, level):
    sample = np.repeat([1.0, -1.0, 0.0], [20, 26, 154])
    exact = normal_sample_size_one_tail(margin, 0.9, (1 - level) / 2, std_null=np.std(sample, ddof=1))
    assert verdict(sample, margin, level).needed == math.ceil(exact)


def test_the_number_of_facts_in_groups_counts_the_variance_of_the_mean():
    generator = np.random.default_rng(3)
    sizes = generator.integers(1, 6, 300)
    groups = np.repeat(np.arange(300), sizes)
    sample = np.repeat(generator.integers(-1, 2, 300).astype(float), sizes)
    low, high = bootstrap(np.mean, sample, groups=groups, resamples=4000, level=0.6827)
    expected = ((1.959964 + 1.281552) * (high - low) / 2 / 0.02) ** 2 * len(sample)
    assert verdict(sample, 0.02, groups=groups).needed == pytest.approx(expected, rel=0.05)
    assert verdict(sample, 0.02, groups=groups).needed > 1.5 * verdict(sample, 0.02).needed


def test_undefined_differences_are_left_out_with_their_labels():
    values, groups = [0.1, NAN, -0.2, 0.0, NAN, 0.3], ["a", "a", "b", "c", "d", "b"]
    assert verdict(values, 0.02, groups=groups) == verdict([0.1, -0.2, 0.0, 0.3], 0.02, groups=["a", "b", "c", "b"])


@pytest.mark.parametrize("values", [[], [NAN, NAN]])
def test_nothing_decides_where_there_is_no_difference(values):
    outcome, *figures = verdict(values, 0.02, groups=["a"] * len(values))
    assert outcome == "INCONCLUSIVE"
    assert [math.isnan(figure) for figure in figures] == [True] * 4


def test_differences_beyond_1_by_rounding_are_taken_as_1():
    assert verdict([1 + 1e-12, -1 - 1e-12], 0.02).mean == 0


# confidence_sequence


def capital_by_the_paper(x, m, alpha):
    """The hedged capital of the candidate m after each of x, in [0, 1], step by step (θ = 1/2, c = 1/2)."""
    found, up, down = [], 1.0, 1.0
    for t in range(1, len(x) + 1):
        means = [(0.5 + sum(x[:i])) / (i + 1) for i in range(1, t)]
        variance = (0.25 + sum((x[i] - means[i]) ** 2 for i in range(t - 1))) / t
        bet = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(1 + t)))
        up *= 1 + min(bet, 0.5 / m) * (x[t - 1] - m)
        down *= 1 - min(bet, 0.5 / (1 - m)) * (x[t - 1] - m)
        found.append(max(up / 2, down / 2))
    return found


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(
    ("values", "probabilities"),
    [([-1, 0, 1], [0.2, 0.7, 0.1]), ([-0.3, 0, 0.05, 0.6], [0.2, 0.5, 0.2, 0.1]), ([-1, 1], [0.1, 0.9]), ([0.4], [1])],
)
def test_a_candidate_lies_within_as_long_as_its_capital_is_small(values, probabilities, level):
    sample = np.random.default_rng(7).choice(values, 60, p=probabilities).astype(float)
    low, high = confidence_sequence(sample, level)
    x = ((1 + sample) / 2).tolist()
    candidates = np.linspace(-1, 1, 62)[1:-1]
    ends = [np.clip(bound[-1] + side * 1.5 * STEP, -1 + STEP, 1 - STEP) for bound in (low, high) for side in (-1, 1)]
    for candidate in [*candidates, *ends]:
        capital = capital_by_the_paper(x, (1 + candidate) / 2, 1 - level)
        excluded = np.maximum.accumulate(capital) >= 1 / (1 - level)
        outside = (candidate < low) | (candidate > high)
        near = np.minimum(abs(candidate - low), abs(candidate - high)) <= STEP
        assert np.all(excluded[outside])  # bounds are rounded outwards
        assert np.all(excluded[~near] == outside[~near])


@PROPERTY
@given(VALUES, st.sampled_from([0.5, 0.95]))
def test_intervals_are_nested_and_have_a_width(values, level):
    low, high = confidence_sequence(values, level)
    assert low.shape == high.shape == (len(values),)
    assert np.all(low < high)
    assert np.all(np.diff(low, prepend=-1.0) >= 0)
    assert np.all(np.diff(high, prepend=1.0) <= 0)


@PROPERTY
@given(VALUES)
def test_what_is_asked_later_changes_nothing_before(values):
    whole = np.array(confidence_sequence([*values, 0.5, -1.0]))
    np.testing.assert_array_equal(np.array(confidence_sequence(values)), whole[:, : len(values)])


@PROPERTY
@given(VALUES)
def test_the_other_sign_mirrors_the_bounds(values):
    low, high = confidence_sequence(values)
    mirrored_low, mirrored_high = confidence_sequence(-np.array(values))
    np.testing.assert_allclose(mirrored_low, -high, atol=STEP)
    np.testing.assert_allclose(mirrored_high, -low, atol=STEP)


def test_blocks_of_the_work_join(monkeypatch):
    sample = np.random.default_rng(8).uniform(-0.5, 0.4, 300)
    expected = confidence_sequence(sample)
    monkeypatch.setattr("robust_eval.stats.non_inferiority._BLOCK", 1)  # one question after the other
    np.testing.assert_array_equal(confidence_sequence(sample), expected)


def test_nothing_is_learnt_of_an_undefined_difference_nor_before_the_first_one():
    low, high = confidence_sequence([NAN, 1, 1, NAN, NAN, 1, 1, 1, NAN])
    places = [0, 1, 2, 2, 2, 3, 4, 5, 5]
    known_low, known_high = confidence_sequence([1] * 5)
    np.testing.assert_array_equal(low, np.append(-1, known_low)[places])
    np.testing.assert_array_equal(high, np.append(1, known_high)[places])
    assert low[-1] > -1
    assert [bound.shape for bound in confidence_sequence([])] == [(0,), (0,)]


@pytest.mark.parametrize("value", [-1.0, -0.02, 0.0, 0.0003, 0.7, 1.0])
def test_questions_that_are_all_alike_leave_a_width_however_many_were_asked(value):
    low, high = confidence_sequence(np.full(3000, value))
    assert np.all((low <= value) & (value <= high))
    exact = np.array([degenerate_interval(value, n, (-1, 1)) for n in (100, 3000)])
    found = np.array([low, high]).T[[99, 2999]]
    assert np.all(found[:, 1] - found[:, 0] > 0.4 * (exact[:, 1] - exact[:, 0]))
    assert 0 < high[-1] - low[-1] < 0.02


def test_a_mean_that_drifts_until_no_candidate_is_left_keeps_the_last_interval():
    sample = np.concatenate([np.full(400, -0.8), np.full(400, 0.8)])
    low, high = confidence_sequence(sample)
    assert np.all(low < high)
    steady_low, steady_high = confidence_sequence(np.full(400, -0.8))
    assert (low[399], high[399]) == (steady_low[-1], steady_high[-1])
    assert (low[-1], high[-1]) == (low[600], high[600])
    assert high[-1] == steady_high[-1]
    assert high[-1] - low[-1] == pytest.approx(2 * STEP)  # around the last candidate that was left


SHAPES = [
    ([-1.0, 0.0, 1.0], [0.06, 0.9, 0.04]),
    ([-0.3, -0.05, 0.0, 0.1, 0.4], [0.1, 0.2, 0.5, 0.15, 0.05]),
    ([-1.0, 0.02], [0.01, 0.99]),  # rarely far off
    ([-1.0, 1.0], [0.3, 0.7]),
]


@pytest.mark.parametrize(("values", "probabilities"), SHAPES)
def test_the_mean_is_held_at_all_times_at_once(values, probabilities):
    generator = np.random.default_rng(9)
    mean = np.dot(values, probabilities)
    missed = 0
    for _ in range(60):
        low, high = confidence_sequence(generator.choice(values, 300, p=probabilities), level=0.8)
        missed += not np.all((low <= mean) & (mean <= high))
    assert missed <= stats.binom.ppf(0.99, 60, 0.2)


@pytest.mark.parametrize(("values", "probabilities"), SHAPES)
def test_the_interval_closes_in_on_the_mean(values, probabilities):
    sample = np.random.default_rng(10).choice(values, 4000, p=probabilities)
    low, high = confidence_sequence(sample)
    spread = math.sqrt(np.dot(np.square(values), probabilities) - np.dot(values, probabilities) ** 2)
    assert 1.96 * spread / math.sqrt(4000) < (high[-1] - low[-1]) / 2 < 5 * spread / math.sqrt(4000)

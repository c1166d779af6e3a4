import math
from itertools import combinations

import numpy as np
import pytest

from robust_eval.stats.pass_rates import SLICK, g_pass_at_k, pass_at_k, pass_hat_k, slick


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_rates_are_those_of_all_subsets_of_the_trials(n: int):
    for c in range(n + 1):
        trials = [1] * c + [0] * (n - c)
        for k in range(1, n + 1):
            drawn = [sum(subset) for subset in combinations(trials, k)]
            at, hat = pass_at_k([c], n, k), pass_hat_k([c], n, k)
            assert at[0] == pytest.approx(np.mean([number >= 1 for number in drawn]), abs=1e-12)
            assert hat[0] == pytest.approx(np.mean([number == k for number in drawn]), abs=1e-12)
            for share in (0.25, 0.5, 0.75, 1.0):
                expected = np.mean([number >= math.ceil(share * k) for number in drawn])
                assert g_pass_at_k([c], n, k, share)[0] == pytest.approx(expected, abs=1e-12)


def test_a_question_with_fewer_trials_has_no_rate():
    assert np.isnan(pass_at_k([1, 1], [2, 4], 3)).tolist() == [True, False]


def test_slick_of_a_table_by_hand():
    greedy = [1, 1, 1, 0, 0, 0, math.nan, 1]
    right, trials = [10, 9, 0, 10, 1, 0, 5, 0], [10, 10, 10, 10, 10, 10, 10, 0]
    names = [SLICK[place] if place >= 0 else None for place in slick(greedy, right, trials)]
    assert names == [
        *("highly_known", "maybe_known", "maybe_known"),
        *("weakly_known", "weakly_known", "unknown", None, None),
    ]

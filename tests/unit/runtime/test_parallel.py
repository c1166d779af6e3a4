import numpy as np

from robust_eval.runtime.parallel import PART_RUNNER, generators, run_parts


def test_parts_are_done_in_their_order_with_what_they_share():
    assert run_parts("powers", pow, 2, [3, 1, 2]) == [8, 2, 4]
    assert run_parts("powers", pow, 2, [5]) == [32]
    assert run_parts("powers", pow, 2, []) == []


def test_an_engine_may_have_them_done_elsewhere():
    asked = []

    def elsewhere(stage, work, shared, parts):
        asked.append((stage, work, shared, parts))
        return ["there"]

    before = PART_RUNNER.set(elsewhere)
    assert run_parts("powers", pow, 2, [3]) == ["there"]
    PART_RUNNER.reset(before)
    assert run_parts("powers", pow, 2, [3]) == [8]
    assert asked == [("powers", pow, 2, [3])]


def test_random_numbers_of_parts_follow_from_the_seed_and_differ():
    drawn = [[part.random() for part in generators(seed, 3)] for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 6
    assert drawn[0][0] == np.random.default_rng(7).random()

import numpy as np
import pytest
import torch

from robust_eval.model.local.thinning import BLOCK, topk

RANDOM = np.random.default_rng(0)
LENGTHS = [1, 5, BLOCK, 7 * BLOCK, 7 * BLOCK + 3, 40 * BLOCK - 1]


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_largest_are_those_of_the_whole_row(length: int, count: int):
    values = torch.from_numpy(RANDOM.permutation(4 * length).reshape(4, length)).float()
    values[1, length // 2 :] = -torch.inf
    count = min(count, length)
    found, place = topk(values, count)
    expected = values.topk(count, dim=1)
    assert torch.equal(found, expected.values)
    assert torch.equal(values.gather(1, place), found)
    assert all(len(set(row)) == count for row in place.tolist())


def test_of_equal_values_as_many_are_found_as_are_wanted():
    values = torch.zeros((2, 30 * BLOCK + 5))
    values[0, [3, 4 * BLOCK, 30 * BLOCK + 1]] = 1
    found, place = topk(values, 10)
    assert found.tolist() == [[1.0] * 3 + [0.0] * 7, [0.0] * 10]
    assert sorted(place[0, :3].tolist()) == [3, 4 * BLOCK, 30 * BLOCK + 1]
    assert [len(set(row)) for row in place.tolist()] == [10, 10]

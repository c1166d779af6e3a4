import numpy as np
import pytest
import torch

from robust_eval.model.local.thinning import BLOCK, search, topk

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_pass_shares_of_the_whole_where_they_do_one_element_after_the_other(length: int, dtype: torch.dtype):
    values = torch.from_numpy(RANDOM.lognormal(sigma=3, size=length) * (RANDOM.random(length) < 0.7)).to(dtype)
    values[length // 2] = 1.0
    at = torch.from_numpy(RANDOM.random(300))
    place, total = search(values, at)
    cumulative = np.cumsum(values.double().numpy())
    assert total.item() == pytest.approx(cumulative[-1], rel=1e-12)
    assert place.tolist() == [int(np.argmax(cumulative > share * cumulative[-1])) for share in at.tolist()]


def test_what_lies_beyond_the_end_is_in_the_last_that_counts():
    values = torch.ones(3 * BLOCK)
    values[BLOCK + 7 :] = 0
    place, _ = search(values, torch.tensor([0.0, 1.0, 1.5], dtype=torch.float64))
    assert place.tolist() == [0, BLOCK + 6, BLOCK + 6]

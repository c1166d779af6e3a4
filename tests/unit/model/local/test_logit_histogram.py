import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.tempered import HISTOGRAM_MIN_TOKENS, LogitHistogram
from robust_eval.model.local.vocabulary import TokenSets

TEMPERATURES = (EPSILON, 0.05, 0.2, 1.0, 2.0, 4.0, 50.0)
RANDOM = np.random.default_rng(0)
LOGITS = {
    "as of a model": RANDOM.normal(scale=3, size=(5, 3000)),
    "far apart": RANDOM.normal(scale=100, size=(5, 3000)),
    "close together": RANDOM.normal(scale=1e-3, size=(5, 3000)),
    "all equal": np.ones((5, 3000)),
    "two tokens": RANDOM.normal(size=(5, 2)),
    "one token": RANDOM.normal(size=(5, 1)),
}


def relative(logits: np.ndarray) -> Tensor:
    x = torch.from_numpy(logits).float()
    return x - x.amax(dim=-1, keepdim=True)


def totals(x: Tensor, rows: int = 8) -> Tensor:
    return LogitHistogram(TEMPERATURES, rows, x.shape[1]).totals(x)


@pytest.mark.parametrize("logits", LOGITS.values(), ids=LOGITS)
def test_totals_are_sums_of_exponentials(logits: np.ndarray):
    x = relative(logits)
    expected = [np.exp(x.double().numpy() / t).sum(axis=-1) for t in TEMPERATURES]
    assert totals(x).numpy() == pytest.approx(np.array(expected).T, rel=2e-7)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.lists(st.floats(0, 60, width=32), min_size=1, max_size=6), st.floats(0.01, 10))
def test_a_few_tokens_anywhere_at_any_temperature_are_summed_as_exactly(below: list[float], t: float):
    x = -torch.tensor([[0.0, *below]])
    found = LogitHistogram([t], 1, x.shape[1]).totals(x)
    assert found.item() == pytest.approx(np.exp(x.double().numpy() / t).sum(), rel=2e-7)


def test_impossible_tokens_add_nothing_and_do_not_matter():
    x = relative(LOGITS["as of a model"])
    x[:, 100:2900] = torch.where(x[:, 100:2900] < 0, -torch.inf, 0)
    histogram = LogitHistogram(TEMPERATURES, 8, 3000)
    found, out = histogram.totals(x), torch.empty_like(x)
    expected = [np.exp(x.double().numpy() / t).sum(axis=-1) for t in TEMPERATURES]
    assert found.numpy() == pytest.approx(np.array(expected).T, rel=2e-7)
    histogram.importance(torch.ones(5, len(TEMPERATURES), dtype=torch.float64), out)
    assert torch.equal(out == 0, x == -torch.inf)


def test_what_is_no_number_makes_the_total_of_its_row_none():
    x = relative(LOGITS["as of a model"])
    expected = totals(x)
    x[2, 7] = torch.nan
    found = totals(x)
    assert found[2].isnan().all()
    assert torch.equal(found[[0, 1, 3, 4]], expected[[0, 1, 3, 4]])


def test_a_row_has_the_same_totals_beside_whatever_others_and_in_any_order_of_its_tokens():
    x = relative(LOGITS["as of a model"])
    expected = totals(x)
    assert torch.equal(torch.cat([totals(row[None]) for row in x]), expected)
    assert torch.equal(totals(x.flip(0)).flip(0), expected)
    assert torch.equal(totals(x.flip(1)), expected)


def test_a_block_leaves_nothing_to_the_next():
    histogram = LogitHistogram(TEMPERATURES, 8, 3000)
    first, second = relative(LOGITS["far apart"]), relative(LOGITS["as of a model"])[:3]
    histogram.totals(first)
    assert torch.equal(histogram.totals(second), totals(second))


def test_importance_is_the_root_of_the_summed_squares_as_far_as_bins_tell_tokens_apart():
    x = relative(LOGITS["as of a model"])
    weights = torch.from_numpy(RANDOM.random((5, len(TEMPERATURES))))
    histogram = LogitHistogram(TEMPERATURES, 8, 3000)
    histogram.totals(x)
    out = torch.empty_like(x)
    histogram.importance(weights, out)
    powers = np.exp(x.double().numpy()[:, :, None] / np.array(TEMPERATURES))
    expected = np.sqrt(((weights.numpy()[:, None] * powers) ** 2).sum(axis=-1))
    assert out.numpy() == pytest.approx(expected, rel=0.02)


def sums_of_sets(x: Tensor, rows: list[int], sets: list[np.ndarray]) -> Tensor:
    histogram = LogitHistogram(TEMPERATURES, 8, x.shape[1])
    histogram.totals(x)
    return histogram.of_sets(x, np.array(rows), TokenSets.of(sets))


@pytest.mark.parametrize("logits", ["as of a model", "far apart", "close together"])
def test_sets_of_tokens_are_sums_of_exponentials_however_large(logits: str):
    x = relative(LOGITS[logits])
    x[1, ::3] = -torch.inf
    sizes = [0, 1, 40, HISTOGRAM_MIN_TOKENS - 1, HISTOGRAM_MIN_TOKENS, 3000, 0, HISTOGRAM_MIN_TOKENS + 1, 7]
    rows = [0, 0, 1, 1, 1, 2, 3, 4, 4]
    sets = [np.sort(np.random.default_rng(n).choice(3000, size, replace=False)) for n, size in enumerate(sizes)]
    found = sums_of_sets(x, rows, sets)
    powers = np.exp(x.double().numpy()[:, :, None] / np.array(TEMPERATURES))
    expected = [powers[row, ids].sum(axis=0) for row, ids in zip(rows, sets, strict=True)]
    assert found.numpy() == pytest.approx(np.array(expected), rel=2e-6, abs=1e-30)
    alone = [sums_of_sets(x[[row]], [0], [ids]) for row, ids in zip(rows, sets, strict=True)]
    assert torch.equal(found, torch.cat(alone))

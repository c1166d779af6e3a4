import numpy as np
import pytest
import torch
from outcome_tables import outcomes_of_sets, table_of_sets
from torch import Tensor

from robust_eval.model.generation import Generation
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.tempered import Weighted, tempered_logprobs, tempered_masses
from robust_eval.model.local.vocabulary import OTHER

TEMPERATURES = (0.0, 0.2, 0.7, 1.0, 1.9, 4.0)
CUTS = {
    "full": Generation(),
    "top_k": Generation(top_k=7),
    "top_p": Generation(top_p=0.8),
    "min_p": Generation(min_p=0.05),
    "all three": Generation(top_k=9, top_p=0.9, min_p=0.02),
}
ROWS, SIZE = 19, 60  # more rows than are in work at once
LOGITS = torch.from_numpy(np.random.default_rng(0).normal(scale=3, size=(ROWS, SIZE)) + 40).float()
SETS = [
    (6 + random.choice(SIZE - 6, size=random.integers(0, 30), replace=False), np.array([5]), np.empty(0, dtype=np.intp))
    for random in map(np.random.default_rng, range(ROWS))
]
TABLE = table_of_sets(SETS, SIZE)
FACTORS = np.array([0.5, 0, 2, 1])


def softmax(logits: Tensor, temperature: float, cut: Generation) -> np.ndarray:
    """(n, V) by the definition, in float64."""
    scaled = logits.double() / max(temperature, EPSILON)
    kept = ~cut.truncated(scaled.float()).isinf()
    scaled = scaled.masked_fill(~kept, -np.inf).numpy()
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_the_mass_of_a_kind_is_the_sum_of_its_probabilities_and_the_total_relative_to_the_largest(cut: Generation):
    log_total, shares, likeliest = tempered_masses(LOGITS, TEMPERATURES, TABLE, cut, OTHER).arrays()
    assert shares.shape == (ROWS, 3, len(TEMPERATURES))
    for index, temperature in enumerate(TEMPERATURES):
        p = softmax(LOGITS, temperature, cut)
        expected = [[row[ids].sum() for ids in sets] for row, sets in zip(p, SETS, strict=True)]
        assert shares[:, :, index] == pytest.approx(np.array(expected), abs=2e-6)
        assert log_total[:, index] == pytest.approx(-np.log(p.max(axis=1)), abs=2e-6)  # exp(0) / total
    outcomes = np.array([each.all() for each in outcomes_of_sets(SETS, SIZE)])
    for row, outcome in np.ndindex(*likeliest.shape):
        tokens = np.flatnonzero(outcomes[row] == outcome)
        expected = tokens[LOGITS[row, tokens].argmax()] if len(tokens) else -1
        assert likeliest[row, outcome] == expected


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_log_probabilities_of_tokens_are_those_of_softmax(cut: Generation):
    log_total, *_ = tempered_masses(LOGITS, TEMPERATURES, TABLE, cut).arrays()
    random = np.random.default_rng(1)
    rows, tokens = random.integers(ROWS, size=200), random.integers(SIZE, size=200)
    found = tempered_logprobs(LOGITS, rows, tokens, log_total, TEMPERATURES, cut)
    assert found.shape == (200, len(TEMPERATURES))
    for index, temperature in enumerate(TEMPERATURES):
        p = softmax(LOGITS, temperature, cut)[rows, tokens]
        possible = p > 1e-280  # what rounds to 0 in a probability has a log-probability all the same
        assert found[possible, index] == pytest.approx(np.log(p[possible]), rel=2e-6, abs=2e-6)
        assert (found[~possible, index] < -600).all()
        if cut.truncates and temperature >= 0.2:
            assert (found[~possible, index] == -np.inf).all()


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_the_importance_of_a_token_is_the_root_of_its_squared_weighted_probabilities_times_a_factor(cut: Generation):
    weight = np.random.default_rng(2).random((ROWS, len(TEMPERATURES)))
    before = LOGITS.clone()
    importance = torch.empty_like(LOGITS)
    weighted = Weighted(torch.from_numpy(weight), importance, FACTORS)
    found = tempered_masses(LOGITS, TEMPERATURES, TABLE, cut, weighted=weighted)
    alone = tempered_masses(LOGITS, TEMPERATURES, TABLE, cut)
    p = np.stack([softmax(LOGITS, temperature, cut) for temperature in TEMPERATURES], axis=-1)
    factors = FACTORS[[each.all() for each in outcomes_of_sets(SETS, SIZE)]]
    expected = factors * np.sqrt(((weight[:, None] * p) ** 2).sum(axis=-1))
    likely = expected > 1e-6
    assert importance.numpy()[likely] == pytest.approx(expected[likely], rel=0.06)
    assert importance.numpy()[~likely] == pytest.approx(expected[~likely], abs=1e-7)
    if cut.truncates:
        assert (importance.numpy()[expected == 0] == 0).all()
    assert torch.equal(alone.log_total, found.log_total)
    assert torch.equal(alone.shares, found.shares)
    assert torch.equal(LOGITS, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_half_precision_are_summed_in_full(dtype: torch.dtype):
    logits = LOGITS.to(dtype)
    _, shares, _ = tempered_masses(logits, (0.5, 1.0), TABLE, Generation()).arrays()
    for index, temperature in enumerate((0.5, 1.0)):
        p = softmax(logits, temperature, Generation())
        expected = [[row[ids].sum() for ids in sets] for row, sets in zip(p, SETS, strict=True)]
        assert shares[:, :, index] == pytest.approx(np.array(expected), abs=2e-6)


def test_no_tokens_have_no_log_probabilities():
    none = np.empty(0, dtype=np.intp)
    assert tempered_logprobs(LOGITS, none, none, np.zeros((ROWS, 6)), TEMPERATURES, Generation()).shape == (0, 6)

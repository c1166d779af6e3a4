import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outcome_tables import outcomes_of_sets, table_of_sets
from torch import Tensor

from robust_eval.model.generation import Generation
from robust_eval.model.local import tempered, vocabulary_sums
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.tempered import HISTOGRAM_MIN_TOKENS, LogitHistogram, Weighted, tempered_masses
from robust_eval.model.local.vocabulary import OutcomeTable
from robust_eval.model.local.vocabulary_sums import CHUNK, TorchSums, TritonSums, chunked, cuda_sums

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # Triton interprets its kernels on the CPU
TEMPERATURES = (EPSILON, 0.05, 0.2, 0.7, 1.0, 2.0, 50.0)


class Kind(NamedTuple):
    """How sums over a vocabulary of a size are computed at some temperatures, where, and how precisely.

    A histogram knows the ``importance`` of a token only as far as its bins tell tokens apart.
    """

    make: Callable[[tuple[float, ...], OutcomeTable], Any]
    device: torch.device = DEVICE
    totals: float = 1e-6
    importance: float = 1e-6


HISTOGRAM = Kind(lambda at, table: LogitHistogram(at, table, 8), torch.device("cpu"), 5e-6, 0.02)
ALL = slice(None)


@pytest.fixture(params=["histogram", "torch", "triton"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "triton":
        pytest.importorskip("triton", reason="Triton, which torch's builds for CUDA bring, is not installed")
        return Kind(lambda at, table: TritonSums(at, table, DEVICE))
    return Kind(TorchSums) if request.param == "torch" else HISTOGRAM


def relative(logits: np.ndarray, kind: Kind = HISTOGRAM) -> Tensor:
    x = torch.from_numpy(logits).float().to(kind.device)
    return x - x.amax(dim=-1, keepdim=True)


def totals(x: Tensor, kind: Kind = HISTOGRAM, at: tuple[float, ...] = TEMPERATURES) -> Tensor:
    return kind.make(at, no_outcomes(*x.shape)).totals(x)


def no_outcomes(rows: int, size: int) -> OutcomeTable:
    return table_of_sets([[np.empty(0, dtype=np.intp)]] * rows, size)


def powers(x: Tensor, temperatures: tuple[float, ...] = TEMPERATURES) -> np.ndarray:
    return np.exp(x.double().cpu().numpy()[:, :, None] / np.array(temperatures))


def logits(size: int, rows: int = 3, scale: float = 3) -> np.ndarray:
    random = np.random.default_rng(size)
    some = random.normal(scale=scale, size=(rows, size))
    some[1, : size // 2] = -np.inf
    some[2] = 0
    some[2, 0] = 12
    return some


@pytest.mark.parametrize("size", [1, 2, 777, 49_152, 128_256, 262_144])
def test_totals_are_sums_of_exponentials(kind: Kind, size: int):
    at = TEMPERATURES[3:5] if size > 50_000 else TEMPERATURES
    for scale in (3, 100, 1e-3) if kind is HISTOGRAM else (3,):
        x = relative(logits(size, scale=scale), kind)
        found = totals(x, kind, at)
        assert (found.shape, found.dtype) == ((3, len(at)), torch.float64)
        expected = np.log(powers(x, at).sum(axis=1))
        assert found.log().cpu().numpy() == pytest.approx(expected, rel=0, abs=kind.totals)


def test_tokens_with_an_outcome_are_summed_and_the_likeliest_found_however_many_they_are(kind: Kind):
    x = relative(logits(9_001), kind)[[0, 1, 2, 0, 1, 0, 2]]
    sizes = [(0, 1), (40, CHUNK), (CHUNK + 1, CHUNK**2), (CHUNK**2 + 1, HISTOGRAM_MIN_TOKENS - 1), (9_001, 0)]
    sizes += [(0, HISTOGRAM_MIN_TOKENS + 1), (HISTOGRAM_MIN_TOKENS, 6_000)]
    pairs = []
    for random, (one, other) in zip(map(np.random.default_rng, range(len(sizes))), sizes, strict=True):
        ids = random.permutation(9_001)
        pairs.append((np.sort(ids[:one]), np.sort(ids[one : one + other])))
    sums = kind.make(TEMPERATURES, table_of_sets(pairs, 9_001))
    sums.totals(x)
    expected = [[powers(x)[row, ids].sum(axis=0) for ids in pair] for row, pair in enumerate(pairs)]
    precision = (2e-6, 1e-7) if kind is HISTOGRAM else (1e-6, 1e-30)  # totals are 1 or more
    assert sums.of_outcomes(ALL).cpu().numpy() == pytest.approx(np.array(expected), *precision)
    likeliest = [
        [lowest_of_largest(row, ids) for ids in (np.setdiff1d(np.arange(9_001), np.concatenate(pair)), *pair)]
        for row, pair in zip(x.cpu().numpy(), pairs, strict=True)
    ]
    for first in range(3):
        assert sums.likeliest(x, ALL, first).tolist() == [row[first:] for row in likeliest]
    assert sums.likeliest(x.bfloat16(), ALL, 1)[0].tolist() == likeliest[0][1:]
    none = kind.make(TEMPERATURES, no_outcomes(len(x), 9_001))
    none.totals(x)
    assert none.of_outcomes(ALL).tolist() == [[[0.0] * len(TEMPERATURES)]] * len(x)
    assert none.likeliest(x, ALL, 1).tolist() == [[-1]] * len(x)


def lowest_of_largest(x: np.ndarray, ids: np.ndarray) -> int:
    return int(ids[x[ids].argmax()]) if (x[ids] > -np.inf).any() else -1


@pytest.mark.parametrize("weight", [1.0, 1e-20], ids=["usual weights", "tiny weights"])
def test_importance_is_the_root_of_the_summed_squares_times_the_factor_of_the_outcome(kind: Kind, weight: float):
    x = relative(logits(1_000), kind)
    weights = weight * np.random.default_rng(0).random((3, len(TEMPERATURES)))
    scores = torch.full((4, 1_024), 7.0, device=kind.device)
    sets, factors = [[np.arange(3), np.arange(500, 900, 7)]] * 3, np.array([0.3, 0.0, 5.0])
    sums = kind.make(TEMPERATURES, table_of_sets(sets, 1_000))
    sums.totals(x)
    sums.importance(torch.from_numpy(weights).to(kind.device), scores[:3, :1_000], ALL, factors)
    of_outcomes = factors[outcomes_of_sets(sets, 1_000)[0].all()]
    expected = of_outcomes * np.sqrt(((weights[:, None] * powers(x)) ** 2).sum(axis=-1))
    assert scores[:3, :1_000].cpu().numpy() == pytest.approx(expected, rel=kind.importance, abs=1e-6 * weight)
    is_zero = (x.cpu().numpy() == -np.inf) | (of_outcomes == 0)
    assert np.array_equal(scores[:3, :1_000].cpu().numpy() == 0, is_zero)
    assert (scores[3] == 7).all()
    assert (scores[:, 1_000:] == 7).all()


def test_a_row_has_the_same_numbers_alone_and_among_others(kind: Kind):
    x = relative(logits(5_003, rows=6), kind)
    sets = [[np.arange(0, 5_003, step), np.arange(1, step, step)] for step in (1, 2, 50, 5_003, 7, 3)]

    def numbers(rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        table = table_of_sets([sets[row] for row in rows], 5_003)
        sums, out = kind.make(TEMPERATURES, table), torch.empty(len(rows), 5_003, device=kind.device)
        totals = sums.totals(x[rows])
        sums.importance(1 / totals, out, ALL, np.ones(3))
        return totals, sums.of_outcomes(ALL), out

    together = numbers([*range(6)])
    for row in range(6):
        for alone, among in zip(numbers([row]), together, strict=True):
            assert torch.equal(alone[0], among[row])


def test_what_is_no_number_makes_the_total_of_its_row_none(kind: Kind):
    x = relative(logits(777), kind)
    expected = totals(x, kind)
    x[1, 700] = torch.nan
    found = totals(x, kind)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.lists(st.floats(0, 60, width=32), min_size=1, max_size=6), st.floats(0.01, 10))
def test_a_histogram_sums_a_few_tokens_anywhere_at_any_temperature_as_exactly(below: list[float], t: float):
    x = -torch.tensor([[0.0, *below]])
    assert totals(x, at=(t,)).item() == pytest.approx(powers(x, (t,)).sum(), rel=2e-7)


def test_a_histogram_has_precise_totals_the_same_in_any_order_of_the_tokens_and_after_another_block():
    x = relative(logits(3_000))
    assert totals(x).numpy()[:2] == pytest.approx(powers(x).sum(axis=1)[:2], rel=2e-7)  # few equal tokens in a row
    assert torch.equal(totals(x.flip(1)), totals(x))
    histogram = HISTOGRAM.make(TEMPERATURES, no_outcomes(5, 3_000))
    histogram.totals(relative(logits(3_000, rows=5, scale=100)))
    assert torch.equal(histogram.totals(x), totals(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masses_agree_with_those_of_the_histogram(kind: Kind, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    some = torch.from_numpy(logits(3_000, rows=9)).to(dtype)
    table = table_of_sets([(np.arange(row + 5, 3_000, 5), np.array([row])) for row in range(9)], 3_000)
    weighted = [Weighted(torch.ones(9, 3, dtype=torch.float64), torch.empty(9, 3_000), np.ones(3)) for _ in range(2)]
    scores = [each.importance for each in weighted]
    histogram = tempered_masses(some, (0.0, 0.5, 1.5), table, Generation(), weighted=weighted[0])
    monkeypatch.setattr(tempered, "LogitHistogram", lambda temperatures, table, _: kind.make(temperatures, table))
    found = tempered_masses(some, (0.0, 0.5, 1.5), table, Generation(), weighted=weighted[1])
    assert found.log_total.numpy() == pytest.approx(histogram.log_total.numpy(), rel=0, abs=1e-6)
    assert found.shares.numpy() == pytest.approx(histogram.shares.numpy(), rel=0, abs=1e-6)
    assert scores[1].numpy() == pytest.approx(scores[0].numpy(), rel=0.06, abs=1e-7)


def test_chunks_add_up_to_the_sums_of_consecutive_rows():
    sizes = np.array([3, 0, CHUNK + 1, 1, CHUNK**2 + 5])
    terms = torch.from_numpy(np.random.default_rng(0).random((sizes.sum(), 2)))
    expected = np.stack([part.sum(axis=0) for part in np.split(terms.numpy(), sizes.cumsum()[:-1])])
    found = chunked(terms, sizes)
    assert found.numpy() == pytest.approx(expected, rel=1e-14)
    first = chunked(terms[: 3 + CHUNK + 1], sizes[:3])
    assert torch.equal(first, found[:3])
    assert found.untyped_storage().nbytes() == 8 * found.numel()  # and hold no memory of terms


class _Kernels(TorchSums):
    """Kernels that get a total wrong, by a factor, or fail."""

    factor, problem = 1.0, None

    def __init__(self, temperatures: tuple[float, ...], table: OutcomeTable, device: torch.device) -> None:
        super().__init__(temperatures, table)

    def totals(self, x: Tensor) -> Tensor:
        if self.problem:
            raise self.problem
        return super().totals(x) * self.factor


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> type[_Kernels]:
    class Kernels(_Kernels):
        pass

    vocabulary_sums._kernels_work.cache_clear()
    monkeypatch.setattr(vocabulary_sums, "TritonSums", Kernels)
    monkeypatch.setattr(vocabulary_sums, "triton", SimpleNamespace(TritonError=ZeroDivisionError))
    return Kernels


def test_kernels_that_agree_with_torch_are_used(kernels: type[_Kernels], caplog: pytest.LogCaptureFixture):
    assert type(cuda_sums(TEMPERATURES, no_outcomes(1, 100), DEVICE)) is kernels
    assert not caplog.messages


@pytest.mark.parametrize(
    ("factor", "problem", "reason"),
    [
        (1 + 2e-6, None, "they differ from torch by more than 1e-06"),
        (1.0, ZeroDivisionError("no such instruction\nin line 3"), "no such instruction"),
        (1.0, RuntimeError("Failed to find C compiler."), "Failed to find C compiler."),
    ],
)
def test_kernels_that_fail_leave_the_sums_to_torch_and_one_warning(
    kernels: type[_Kernels], factor: float, problem: Exception, reason: str, caplog: pytest.LogCaptureFixture
):
    kernels.factor, kernels.problem = factor, problem
    with caplog.at_level(logging.WARNING):
        assert [type(cuda_sums(TEMPERATURES, no_outcomes(1, 100), DEVICE)) for _ in range(2)] == [TorchSums] * 2
    sentence = f"sums on {DEVICE} are slower, because Triton's kernels cannot be used: {reason}"
    assert caplog.messages == [sentence]


def test_memory_that_is_full_while_kernels_are_tried_says_nothing_about_them(kernels: type[_Kernels]):
    kernels.problem = torch.OutOfMemoryError("out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        cuda_sums(TEMPERATURES, no_outcomes(1, 100), DEVICE)
    kernels.problem = None
    assert type(cuda_sums(TEMPERATURES, no_outcomes(1, 100), DEVICE)) is kernels


def test_without_triton_torch_computes_the_sums(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vocabulary_sums, "triton", None)
    assert type(cuda_sums(TEMPERATURES, no_outcomes(1, 100), DEVICE)) is TorchSums

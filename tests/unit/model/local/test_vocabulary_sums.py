import logging
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from robust_eval.model.generation import Generation
from robust_eval.model.local import tempered, vocabulary_sums
from robust_eval.model.local.draw import EPSILON
from robust_eval.model.local.tempered import tempered_masses
from robust_eval.model.local.vocabulary import TokenSets
from robust_eval.model.local.vocabulary_sums import CHUNK, TorchSums, TritonSums, chunked, cuda_sums

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # Triton interprets its kernels on the CPU
TEMPERATURES = (EPSILON, 0.2, 0.7, 1.0, 2.0, 50.0)
Sums = TorchSums | TritonSums
Maker = Callable[..., Sums]


@pytest.fixture(params=["torch", "triton"])
def make(request: pytest.FixtureRequest) -> Maker:
    """The sums at some temperatures, by torch or Triton."""
    if request.param == "torch":
        return TorchSums
    pytest.importorskip("triton", reason="Triton, which torch's builds for CUDA bring, is not installed")
    return lambda temperatures: TritonSums(temperatures, DEVICE)


def relative(logits: np.ndarray) -> Tensor:
    x = torch.from_numpy(logits).float().to(DEVICE)
    return x - x.amax(dim=-1, keepdim=True)


def powers(x: Tensor, temperatures: tuple[float, ...] = TEMPERATURES) -> np.ndarray:
    return np.exp(x.double().cpu().numpy()[:, :, None] / np.array(temperatures))


def logits(size: int, rows: int = 3) -> np.ndarray:
    random = np.random.default_rng(size)
    some = random.normal(scale=3, size=(rows, size))
    some[1, : size // 2] = -np.inf
    some[2] = 0
    some[2, 0] = 12
    return some


@pytest.mark.parametrize("size", [1, 2, 777, 49_152, 128_256, 262_144])
def test_totals_are_within_a_millionth_of_the_definition(make: Maker, size: int):
    x = relative(logits(size))
    at = TEMPERATURES[2:4] if size > 50_000 else TEMPERATURES
    found = make(at).totals(x)
    assert (found.shape, found.dtype) == ((3, len(at)), torch.float64)
    assert found.log().cpu().numpy() == pytest.approx(np.log(powers(x, at).sum(axis=1)), rel=0, abs=1e-6)


def test_sets_of_tokens_are_sums_however_large(make: Maker):
    x = relative(logits(9_001))
    sizes = [0, 1, 40, CHUNK, CHUNK + 1, CHUNK**2, CHUNK**2 + 1, 9_001, 0]
    rows = [0, 0, 1, 1, 2, 2, 0, 1, 2]
    sets = [np.sort(np.random.default_rng(n).choice(9_001, size, replace=False)) for n, size in enumerate(sizes)]
    sums = make(TEMPERATURES)
    sums.totals(x)
    expected = [powers(x)[row, ids].sum(axis=0) for row, ids in zip(rows, sets, strict=True)]
    found = sums.of_sets(x, np.array(rows), TokenSets.of(sets))
    assert found.cpu().numpy() == pytest.approx(np.array(expected), rel=1e-6, abs=1e-30)
    none = TokenSets.of([np.empty(0, dtype=np.intp)] * 2)
    assert sums.of_sets(x, np.array([1, 2]), none).tolist() == [[0.0] * len(TEMPERATURES)] * 2


@pytest.mark.parametrize("weight", [1.0, 1e-20], ids=["usual weights", "tiny weights"])
def test_importance_is_the_root_of_the_summed_squares(make: Maker, weight: float):
    x = relative(logits(1_000))
    weights = weight * np.random.default_rng(0).random((3, len(TEMPERATURES)))
    scores = torch.full((4, 1_024), 7.0, device=DEVICE)
    sums = make(TEMPERATURES)
    sums.totals(x)
    sums.importance(torch.from_numpy(weights).to(DEVICE), scores[:3, :1_000])
    expected = np.sqrt(((weights[:, None] * powers(x)) ** 2).sum(axis=-1))
    assert scores[:3, :1_000].cpu().numpy() == pytest.approx(expected, rel=1e-6, abs=1e-6 * weight)
    assert torch.equal(scores[:3, :1_000] == 0, x == -torch.inf)
    assert (scores[3] == 7).all()
    assert (scores[:, 1_000:] == 7).all()


def test_a_row_has_the_same_numbers_alone_and_among_others(make: Maker):
    x = relative(logits(5_003, rows=6))
    sets = TokenSets.of([np.arange(0, 5_003, step) for step in (1, 2, 50, 5_003, 7, 3)])

    def numbers(rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        sums, out = make(TEMPERATURES), torch.empty(len(rows), 5_003, device=DEVICE)
        totals = sums.totals(x[rows])
        sums.importance(1 / totals, out)
        return totals, sums.of_sets(x[rows], np.arange(len(rows)), sets.take(np.array(rows))), out

    together = numbers([*range(6)])
    for row in range(6):
        for alone, among in zip(numbers([row]), together, strict=True):
            assert torch.equal(alone[0], among[row])


def test_what_is_no_number_makes_the_total_of_its_row_none(make: Maker):
    x = relative(logits(777))
    expected = make(TEMPERATURES).totals(x)
    x[1, 700] = torch.nan
    found = make(TEMPERATURES).totals(x)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masses_agree_with_those_of_the_histogram(make: Maker, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    some = torch.from_numpy(logits(3_000, rows=9)).to(dtype)
    sets = TokenSets.of([ids for row in range(9) for ids in (np.arange(row, 3_000, 5), np.array([row]))])
    weight, scores = torch.ones(9, 3, dtype=torch.float64), torch.empty(2, 9, 3_000)
    histogram = tempered_masses(some, (0.0, 0.5, 1.5), sets, Generation(), weight, scores[0])
    monkeypatch.setattr(tempered, "LogitHistogram", lambda temperatures, *_: make(temperatures))
    found = tempered_masses(some, (0.0, 0.5, 1.5), sets, Generation(), weight, scores[1])
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

    def __init__(self, temperatures: tuple[float, ...], device: torch.device) -> None:
        super().__init__(temperatures)

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
    assert type(cuda_sums(TEMPERATURES, 100, DEVICE)) is kernels
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
        assert [type(cuda_sums(TEMPERATURES, 100, DEVICE)) for _ in range(2)] == [TorchSums] * 2
    sentence = f"sums on {DEVICE} are slower, because Triton's kernels cannot be used: {reason}"
    assert caplog.messages == [sentence]


def test_memory_that_is_full_while_kernels_are_tried_says_nothing_about_them(kernels: type[_Kernels]):
    kernels.problem = torch.OutOfMemoryError("out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        cuda_sums(TEMPERATURES, 100, DEVICE)
    kernels.problem = None
    assert type(cuda_sums(TEMPERATURES, 100, DEVICE)) is kernels


def test_without_triton_torch_computes_the_sums(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vocabulary_sums, "triton", None)
    assert type(cuda_sums(TEMPERATURES, 100, DEVICE)) is TorchSums

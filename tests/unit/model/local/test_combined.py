import numpy as np
import pytest
import torch
from toy_language import DEPTH, GRID, MATCHER, Table, truth, vocabulary

from robust_eval.model.base import COMMON, INDEPENDENT, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.answer_tree import Paths, sample_answers
from robust_eval.prompt.prompt import Prompt

COLUMNS = slice(1, 6)  # of GRID among all the temperatures of the truth


def request(seed: int, trials: int, whole: bool = True, coupling: str = INDEPENDENT) -> Request:
    prompt = Prompt("", (), "q")
    return Request("q", 0, prompt, GRID, trials, DEPTH, seed, matcher=MATCHER, whole=whole, coupling=coupling)


def drawn(
    table: Table,
    seeds: range,
    trials: int,
    cut: Generation | None = None,
    whole: bool = True,
    coupling: str = INDEPENDENT,
) -> list[Paths]:
    requests = [request(seed, trials, whole, coupling) for seed in seeds]
    return sample_answers(table, requests, [[1]] * len(requests), vocabulary(), cut or Generation())


def right(paths: Paths, trials: int) -> np.ndarray:
    """The share of right trials at each temperature, read off the texts."""
    words = vocabulary()
    texts = [
        words.answer(b"".join(words.texts.raw[token] for token in row[:length])).decode()
        for row, length in zip(paths.tokens, paths.lengths, strict=True)
    ]
    return np.array([MATCHER.right(text) for text in texts]).reshape(len(GRID), trials).mean(axis=1)


@pytest.mark.parametrize("cut", [Generation(), Generation(top_k=5), Generation(top_p=0.8)])
def test_the_estimate_is_unbiased_and_better_than_counting_trials(cut: Generation):
    combined, counted = [], []
    for language in range(3):
        table = Table(language)
        expected = truth(table, cut)[COLUMNS]
        paths = drawn(table, range(150), 4, cut)
        values = np.array([path.curve.accuracy for path in paths])
        error_of_mean = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        assert np.all(np.abs(values.mean(axis=0) - expected) <= 4 * error_of_mean + 1e-6)
        combined.append(values - expected)
        counted.append(np.array([right(path, 4) for path in paths]) - expected)
    assert np.sqrt(np.mean(np.square(combined))) < 0.7 * np.sqrt(np.mean(np.square(counted)))


@pytest.mark.parametrize("coupling", [INDEPENDENT, COMMON])
def test_every_accuracy_lies_between_0_and_1(coupling: str):
    curves = [path.curve for language in range(6) for path in drawn(Table(language), range(60), 2, coupling=coupling)]
    values = np.array([curve.accuracy for curve in curves])
    assert values.min() >= 0
    assert values.max() <= 1
    assert np.isfinite([curve.standard_error for curve in curves]).all()


def test_where_hardly_any_answer_is_wrong_the_accuracy_is_1_whatever_the_other_temperatures_drew():
    class Sure(Table):
        """ " Paris", and the end: nearly always at 0.2, and seldom at 2.0."""

        def logits(self, prefix: tuple[int, ...]) -> torch.Tensor:
            return super().logits(prefix) + 4.0 * (torch.arange(self.vocabulary) == (0 if prefix else 2))

    coldest = [path.curve.accuracy[0] for path in drawn(Sure(0, spread=0.3), range(40), 4)]
    assert coldest == pytest.approx(np.ones(40), abs=1e-4)


def test_the_standard_error_is_that_of_repetitions():
    paths = drawn(Table(2), range(400), 10)
    values = np.array([path.curve.accuracy for path in paths])
    claimed = np.array([path.curve.standard_error for path in paths])
    assert np.sqrt((claimed**2).mean(axis=0)) == pytest.approx(values.std(axis=0, ddof=1), rel=0.15)


def test_the_standard_error_knows_that_a_trial_shares_its_random_numbers():
    """Draws of common numbers are alike, so that they say less together; as strata they would claim too little."""
    table = Table(2)
    expected = truth(table)[COLUMNS]
    paths = drawn(table, range(400), 10, coupling=COMMON)
    values = np.array([path.curve.accuracy for path in paths])
    claimed = np.array([path.curve.standard_error for path in paths])
    spread = values.std(axis=0, ddof=1)
    assert np.all(np.abs(values.mean(axis=0) - expected) <= 4 * spread / np.sqrt(len(values)) + 1e-6)
    assert np.sqrt((claimed**2).mean(axis=0)) == pytest.approx(spread, rel=0.15)
    independent = np.array([path.curve.accuracy for path in drawn(table, range(400), 10)]).std(axis=0, ddof=1)
    assert np.all(spread > 1.15 * independent)


def test_what_is_drawn_after_a_right_answer_is_settled_does_not_count():
    whole, short = (drawn(Table(4), range(40), 10, whole=whole) for whole in (True, False))
    for one, other in zip(whole, short, strict=True):
        assert one.curve.accuracy == pytest.approx(other.curve.accuracy, abs=1e-12)


def test_answers_that_end_when_they_are_right_are_as_right_as_whole_ones_and_shorter():
    whole, short = (drawn(Table(4), range(40), 10, whole=whole) for whole in (True, False))
    for one, other in zip(whole, short, strict=True):
        assert right(one, 10).tolist() == right(other, 10).tolist()
        for row, length in enumerate(other.lengths):
            assert one.tokens[row, :length].tolist() == other.tokens[row, :length].tolist()
    assert sum(int(path.lengths.sum()) for path in short) < sum(int(path.lengths.sum()) for path in whole)
    reasons = {path.finish_reason(row) for path in short for row in range(len(path.lengths))}
    assert reasons == {"length", "stop", "closed"}


def test_greedy_answers_and_requests_without_a_matcher_have_no_curve():
    greedy = Request("q", 0, Prompt("", (), "q"), (0.0,), 1, DEPTH, 0, matcher=MATCHER)
    plain = Request("q", 0, Prompt("", (), "q"), GRID, 2, DEPTH, 0)
    found = sample_answers(Table(0), [greedy, plain], [[1], [1]], vocabulary(), Generation())
    assert [paths.curve for paths in found] == [None, None]


@pytest.mark.parametrize("rows", [1, 3])
def test_the_estimate_does_not_depend_on_how_many_rows_of_logits_are_computed_together(
    rows: int, monkeypatch: pytest.MonkeyPatch
):
    whole = drawn(Table(4), range(5), 10, whole=False)
    monkeypatch.setattr("robust_eval.model.local.output_head.BYTES_AT_ONCE", {False: rows * 4 * len(vocabulary().ends)})
    for one, other in zip(whole, drawn(Table(4), range(5), 10, whole=False), strict=True):
        assert one.lengths.tolist() == other.lengths.tolist()
        assert one.finish.tolist() == other.finish.tolist()
        for row, length in enumerate(one.lengths):
            assert one.tokens[row, :length].tolist() == other.tokens[row, :length].tolist()
        assert one.curve.accuracy == pytest.approx(other.curve.accuracy, abs=1e-9)
        assert one.curve.standard_error == pytest.approx(other.curve.standard_error, abs=1e-9)

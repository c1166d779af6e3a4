from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from support.op_counter import OpCounter, counted
from toy_language import ALL, DEPTH, GRID, MATCHER, PIECES, Table, truth, vocabulary

from robust_eval.model.base import Enumeration, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.exact_tree import Enumerated, enumerate_answers, level_budgets
from robust_eval.model.local.prefixes import PackedPrefixes, PrefixRows
from robust_eval.model.token_texts import Ids
from robust_eval.prompt.prompt import Prompt


def request(nodes: int, seed: int = 0, depth: int = DEPTH, precision: float = 0.0) -> Request:
    enumeration = Enumeration(nodes, ALL, precision=precision)
    return Request("q", 0, Prompt("", (), "q"), GRID, 0, depth, seed, matcher=MATCHER, enumeration=enumeration)


def enumerated(
    table: Table, nodes: int, seeds: Sequence[int] = (0,), cut: Generation | None = None, precision: float = 0.0
) -> list[Enumerated]:
    requests = [request(nodes, seed, precision=precision) for seed in seeds]
    return enumerate_answers(table, requests, [[1]] * len(seeds), vocabulary(), cut or Generation())


@pytest.mark.parametrize("cut", [Generation(), Generation(top_k=4), Generation(top_p=0.7), Generation(min_p=0.1)])
def test_with_nodes_enough_the_probability_is_that_of_the_definition(cut: Generation):
    table = Table(language=3)
    (found,) = enumerated(table, nodes=100_000, cut=cut)
    expected = truth(table, cut)
    assert found.curve.temperatures.tolist() == list(ALL)
    assert found.curve.accuracy == pytest.approx(expected, abs=1e-6)
    assert found.curve.lower == pytest.approx(expected, abs=0.1)
    assert found.curve.upper == pytest.approx(expected, abs=0.1)
    assert np.abs(found.curve.upper - found.curve.lower)[:3].max() < 1e-3  # t = 0.1, 0.2 and 0.6
    assert found.curve.standard_error.tolist() == [0] * len(ALL)


def test_the_estimate_is_unbiased_at_every_temperature():
    for language in range(2):
        table = Table(language)
        values = np.array([found.curve.accuracy for found in enumerated(table, 16, range(60))])
        error_of_mean = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        assert np.all(np.abs(values.mean(axis=0) - truth(table)) <= 4 * error_of_mean + 1e-6)
        assert error_of_mean.max() > 0  # there is something to be biased about


def test_the_standard_error_is_honest():
    covered = []
    for language in range(6):
        table = Table(language)
        curves = [found.curve for found in enumerated(table, 40, range(10))]
        errors = np.array([curve.accuracy for curve in curves]) - truth(table)
        claimed = np.array([curve.standard_error for curve in curves])
        covered.append(np.abs(errors) <= 1.96 * claimed + 1e-6)
    assert 0.90 <= np.mean(covered) <= 0.98


def test_with_few_nodes_the_standard_error_of_a_flat_language_is_right_in_the_mean_square():
    errors, claimed = [], []
    for language in range(4):
        table = Table(language, spread=0.5)
        curves = [found.curve for found in enumerated(table, 24, range(20))]
        errors.append(np.array([curve.accuracy for curve in curves]) - truth(table))
        claimed.append([curve.standard_error for curve in curves])
    assert np.sqrt(np.mean(np.square(claimed))) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.15)


class Counting(Table):
    """A language that counts the prefixes which are evaluated."""

    evaluated = 0

    def children(self, parents: Ids, tokens: Ids) -> torch.Tensor:
        self.evaluated += len(tokens)
        return super().children(parents, tokens)


def test_a_question_ends_at_the_precision_asked_for_and_its_standard_error_stays_honest():
    evaluated = []
    for precision in (0.03, 0.06):
        tables, covered, squares = [Counting(language) for language in range(8)], [], []
        for table in tables:
            curves = [found.curve for found in enumerated(table, 256, range(10), precision=precision)]
            errors = np.array([curve.accuracy for curve in curves]) - truth(table)
            claimed = np.array([curve.standard_error for curve in curves])
            assert (claimed[:, np.isin(ALL, GRID)] <= precision).all()
            covered.append(np.abs(errors) <= 1.96 * claimed + 1e-6)
            squares.append(errors**2)
        assert np.mean(covered) >= 0.90
        assert np.sqrt(np.mean(squares)) <= precision
        evaluated.append(sum(table.evaluated for table in tables) / (8 * 10))
    assert 256 > evaluated[0] > evaluated[1] > 32


def test_a_question_that_does_not_reach_the_precision_is_as_with_all_its_nodes():
    whole = enumerated(Table(5), 16, range(3))
    for one, other in zip(enumerated(Table(5), 16, range(3), precision=1e-9), whole, strict=True):
        assert one.curve.accuracy.tolist() == other.curve.accuracy.tolist()
        assert one.curve.standard_error.tolist() == other.curve.standard_error.tolist()


def test_questions_of_a_block_end_each_by_itself():
    table = Table(5)
    alone = [enumerated(table, 100, (seed,), precision=0.05)[0].curve.accuracy.tolist() for seed in range(6)]
    together = [found.curve.accuracy.tolist() for found in enumerated(table, 100, range(6), precision=0.05)]
    assert together == alone
    assert together != [found.curve.accuracy.tolist() for found in enumerated(table, 100, range(6))]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(language=st.integers(0, 10_000), spread=st.floats(0.5, 6), nodes=st.integers(1, 400), seed=st.integers(0, 1000))
def test_bounds_contain_the_truth(language: int, spread: float, nodes: int, seed: int):
    table = Table(language, spread=spread)
    expected = truth(table)
    table.evaluated = 0
    (found,) = enumerated(table, nodes, (seed,))
    assert np.all(found.curve.lower <= expected + 1e-6)  # probabilities are float32
    assert np.all(found.curve.upper >= expected - 1e-6)
    assert table.evaluated <= max(nodes, 2 * (DEPTH - 1))


def test_bounds_are_narrower_in_the_mean_with_a_larger_budget():
    widths = []
    for nodes in (8, 24, 72):
        found = [tree.curve for language in range(4) for tree in enumerated(Table(language), nodes, range(2))]
        widths.append(np.mean([curve.upper - curve.lower for curve in found], axis=0))
    assert np.all(np.diff(widths, axis=0) < 0)


def test_every_prefix_that_is_evaluated_narrows_the_bounds():
    """Also one that was left to chance: what ends after it is as probable whatever the luck with which it was kept."""
    table = Table(3)
    (found,) = enumerated(table, 16)
    seen = [
        (is_right(tokens), np.exp(np.sum(logprobs[1:], axis=1)))
        for tokens, logprobs, reason in zip(found.tokens, found.logprobs, found.finish_reasons, strict=True)
        if reason != "closed"
    ]
    asked = [ALL.index(temperature) for temperature in GRID]
    assert np.all(found.curve.lower[asked] >= sum(p for right, p in seen if right) - 1e-6)
    assert np.all(1 - found.curve.upper[asked] >= sum(p for right, p in seen if not right) - 1e-6)


def test_the_answers_are_a_table_of_probabilities_that_adds_up_to_the_curve():
    (found,) = enumerated(Table(1), 24)
    assert found.weights.sum(axis=0) == pytest.approx(np.ones(len(GRID)))
    right, asked = [*map(is_right, found.tokens)], [ALL.index(temperature) for temperature in GRID]
    expected = np.clip(found.curve.accuracy, found.curve.lower, found.curve.upper)[asked]
    assert found.weights[right].sum(axis=0) == pytest.approx(expected)
    assert found.weights.min() >= 0
    assert found.weights.any(axis=1).all()
    assert (np.diff(found.trials) > 0).all()
    assert {*found.finish_reasons} <= {"length", "stop", "closed"}
    for tokens, logprobs in zip(found.tokens, found.logprobs, strict=True):
        logits = [Table(1).logits(tokens[:place]).double() for place in range(len(tokens))]
        for temperature, column in zip((1.0, *GRID), logprobs, strict=True):
            steps = [float((x / temperature).log_softmax(-1)[t]) for x, t in zip(logits, tokens, strict=True)]
            assert column == pytest.approx(steps, abs=1e-4)


def is_right(tokens: tuple[int, ...]) -> bool:
    text = b"".join(PIECES[token] for token in tokens)
    return MATCHER.right(vocabulary().answer(text).decode())


class ByPrompt(Table):
    """Each prompt has a language of its own."""

    def roots(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        self._level = [tuple(prompt) for prompt in prompts]
        return torch.stack([self.logits(prefix) for prefix in self._level])


def test_a_tree_whose_answers_have_all_ended_leaves_the_others_as_they_are():
    """Where one token alone is possible, an answer ends by itself, some after one token and some after all."""
    prompts, cut = [[number] for number in range(8)], Generation(top_k=1)
    together = enumerate_answers(ByPrompt(0), [request(3)] * len(prompts), prompts, vocabulary(), cut)
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = enumerate_answers(ByPrompt(0), [request(3)], [prompt], vocabulary(), cut)
        assert found.curve.accuracy.tolist() == alone.curve.accuracy.tolist()
    assert len({len(tokens) for found in together for tokens in found.tokens}) > 1


def test_a_model_gives_the_same_packed_and_in_rows():
    model = tiny("llama", vocabulary=len(PIECES))
    found = [
        enumerate_answers(evaluator(model, [1]), [request(30)] * 2, [[1, 4, 5], [1, 7]], vocabulary(), Generation())
        for evaluator in (PackedPrefixes,)
    ]
    for row, prompt in enumerate([[1, 4, 5], [1, 7]]):
        (alone,) = enumerate_answers(PrefixRows(model, [1]), [request(30)], [prompt], vocabulary(), Generation())
        assert found[0][row].curve.accuracy == pytest.approx(alone.curve.accuracy, abs=1e-4)


def test_budgets_of_levels_fall_and_stay_within_the_whole():
    assert level_budgets(96, 4) == [31, 27, 22, 15]
    assert level_budgets(96, 1) == [96]
    assert level_budgets(96, 0) == []
    assert level_budgets(3, 4) == [2, 2, 2, 2]  # one that is certain and one that is left to chance


def test_the_estimate_does_not_depend_on_how_many_rows_of_logits_are_computed_together(
    monkeypatch: pytest.MonkeyPatch,
):
    whole = enumerated(Table(5), 16, range(4))
    for rows in (1, 20):  # a tree at a time, some trees at a time
        monkeypatch.setattr("robust_eval.model.local.device.BYTES_PER_BATCH", rows * 4 * len(PIECES))
        for one, other in zip(whole, enumerated(Table(5), 16, range(4)), strict=True):
            assert one.curve.accuracy == pytest.approx(other.curve.accuracy, abs=1e-9)
            assert one.curve.upper == pytest.approx(other.curve.upper, abs=1e-9)


def test_a_device_is_waited_for_twice_a_level_however_many_questions_there_are():
    model = tiny("llama", vocabulary=len(PIECES))
    waits = []
    for questions in (1, 4):
        asked = [replace(request(24), question_id=str(number)) for number in range(questions)]
        prompts = [[1, *range(2, 5 + 3 * number)] for number in range(questions)]
        prefixes = PackedPrefixes(model, [1])
        with counted(model.base_model, model.get_output_embeddings(), OpCounter()) as counter:
            enumerate_answers(prefixes, asked, prompts, vocabulary(), Generation())
        waits.append({part: counter.total[f"{part}_waits"] for part in ("outside", "head", "body")})
    assert waits == [{"outside": 2 * DEPTH, "head": 0, "body": 0}] * 2

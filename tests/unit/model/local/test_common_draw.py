from collections import Counter

import numpy as np
import pytest
import torch
from architectures import tiny
from scipy import stats
from tiny_answers import PROMPTS, answers, enumerated, plain_logits, vocabulary

from robust_eval.model.base import COMMON, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local import common_draw
from robust_eval.model.local.answer_tree import sample_answers
from robust_eval.model.local.common_draw import CommonNumbers, uniforms
from robust_eval.model.local.draw import BLOCK, PART, draw
from robust_eval.model.local.packed_prefixes import PackedPrefixes
from robust_eval.prompt.prompt import Prompt


def request(name: str, temperatures: tuple[float, ...], trials: int, tokens: int = 2, seed: int = 11) -> Request:
    return Request(name, 0, Prompt("", (), name), temperatures, trials, tokens, seed, coupling=COMMON)


def numbers(trials: int, vocabulary: int, seed: int = 0) -> CommonNumbers:
    asked = request("q", (1.0,), trials, seed=seed)
    return CommonNumbers([(asked, trial) for trial in range(trials)], 2, vocabulary, torch.device("cpu"))


def drawn(logits: torch.Tensor, temperature: float, trials: int, seed: int = 0, step: int = 0) -> np.ndarray:
    picks = numbers(trials, logits.shape[-1], seed).at(step, np.arange(trials))
    return draw(logits[None], np.zeros(trials, dtype=np.intp), np.full(trials, temperature), picks).tokens.numpy()


@pytest.mark.parametrize("size", [2, 256, 257, 1000])
def test_tokens_are_drawn_in_proportion_to_their_weights(size: int):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 2
    count = 20_000
    for temperature in (0.3, 2.0):
        p = (logits.double() / temperature).softmax(-1).numpy()
        counts = np.bincount(drawn(logits, temperature, count), minlength=size)
        frequent = p * count >= 5
        observed, expected = [*counts[frequent], counts[~frequent].sum()], [*p[frequent], p[~frequent].sum()]
        kept = np.array(expected) > 1e-9
        assert (
            stats.chisquare(np.array(observed)[kept], np.array(expected)[kept] * count, sum_check=False).pvalue > 1e-4
        )


@pytest.mark.parametrize("temperature", [0.2, 1.0, 2.0, 10.0])
def test_the_winner_is_that_of_a_race_of_all_tokens(temperature: float):
    logits = torch.randn(10_000, generator=torch.Generator().manual_seed(1)) * 3
    found = drawn(logits, temperature, 40)
    race = (logits.double() / temperature) - all_numbers(40, 10_000).log()
    assert found.tolist() == race.argmax(dim=1).tolist()


def all_numbers(trials: int, vocabulary: int) -> torch.Tensor:
    """The numbers (trials, vocabulary) of all tokens at the first step."""
    whole = numbers(trials, vocabulary).at(0, np.arange(trials))._numbers
    parts = whole.least.shape[1]
    return whole.of(torch.arange(trials)[:, None], torch.arange(parts).expand(trials, parts)).flatten(1)[:, :vocabulary]


def test_the_numbers_of_most_tokens_are_not_needed(monkeypatch: pytest.MonkeyPatch):
    """Not of a peaked distribution over 150 thousand tokens, as after a question, and not of a flat one."""
    logits = torch.randn(150_000, generator=torch.Generator().manual_seed(1)) * 2
    logits[:50] += 8
    sizes = []
    of = common_draw._Numbers.of

    def counted(self: common_draw._Numbers, trial: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        sizes.append(part.numel() * PART)
        return of(self, trial, part)

    monkeypatch.setattr(common_draw._Numbers, "of", counted)
    for temperature in (0.2, 0.6, 1.0, 1.4, 2.0):
        drawn(logits, temperature, 20)
    assert sum(sizes) < 0.1 * 5 * 20 * 150_000


def test_the_numbers_of_all_tokens_are_independent_and_exponential():
    sample = all_numbers(50, 4 * BLOCK).numpy()
    assert stats.kstest(sample.ravel(), "expon").pvalue > 1e-4
    place = sample.argmin(axis=1) * 8 // sample.shape[1]
    assert stats.chisquare(np.bincount(place, minlength=8)).pvalue > 1e-4
    assert stats.kstest(sample.min(axis=1) * sample.shape[1], "expon").pvalue > 1e-4
    pairs = np.corrcoef(sample)[np.triu_indices(50, 1)]
    assert np.abs(pairs).max() < 6 / np.sqrt(sample.shape[1])


def test_the_mixing_function_is_that_of_its_authors():
    """The first numbers of the reference implementation with seed 1234567."""
    reference = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    found = uniforms(torch.tensor(1234567), torch.arange(4))
    assert found.tolist() == [(value >> 11) * 2.0**-53 for value in reference]


def test_trials_and_steps_are_independent():
    logits = torch.zeros(3)
    first, second = drawn(logits, 1.0, 20_000), drawn(logits, 1.0, 20_000, step=1)
    for one, other in ((first, second), (first[::2], first[1::2])):
        counts = Counter(zip(one.tolist(), other.tolist(), strict=True))
        assert len(counts) == 9
        assert stats.chisquare(list(counts.values())).pvalue > 1e-4


CUTS = [Generation(), Generation(top_k=5), Generation(top_p=0.6), Generation(min_p=0.2)]


@pytest.mark.parametrize("cut", CUTS, ids=["full vocabulary", "top_k", "top_p", "min_p"])
def test_each_temperature_keeps_the_probabilities_of_its_answers(cut: Generation):
    temperatures, trials = (0.5, 1.0, 2.0), 8_000
    asked = request("a", temperatures, trials)
    (paths,) = sample_answers(PackedPrefixes(tiny("llama"), []), [asked], PROMPTS[:1], vocabulary(48), cut)
    everything = answers(paths)
    for index, temperature in enumerate(temperatures):
        counts = Counter(everything[index * trials : (index + 1) * trials])
        truth = enumerated("llama", PROMPTS[0], temperature, 2, cut)
        assert set(counts) <= set(truth)
        frequent = [leaf for leaf, p in truth.items() if p * trials >= 5]
        expected, observed = [truth[leaf] * trials for leaf in frequent], [counts[leaf] for leaf in frequent]
        if len(frequent) < len(truth):
            expected.append(trials - sum(expected))
            observed.append(trials - sum(observed))
        assert stats.chisquare(observed, expected, sum_check=False).pvalue > 1e-4


def test_the_same_trial_draws_the_same_tokens_where_the_temperature_changes_little():
    """Of 200 trials at ten temperatures; drawn independently hardly two neighbours agree."""
    logits = torch.randn(5_000, generator=torch.Generator().manual_seed(3)) * 3
    tokens = np.stack([drawn(logits, t, 200) for t in np.arange(0.2, 2.01, 0.2)])
    independent = np.stack([drawn(logits, t, 200, seed) for seed, t in enumerate(np.arange(0.2, 2.01, 0.2))])
    agree, by_chance = ((each[1:] == each[:-1])[4:].mean() for each in (tokens, independent))
    assert agree > 0.5
    assert by_chance < 0.2


def test_answers_do_not_depend_on_what_is_asked_beside_them():
    model = tiny("llama")
    prompts = {name: [5, 6, 7 + place] for place, name in enumerate("abcdef")}

    def ask(names: str, temperatures: tuple[float, ...], trials: int) -> dict[tuple[str, float, int], tuple[int, ...]]:
        asked = [request(name, temperatures, trials, 3) for name in names]
        ids = [prompts[name] for name in names]
        found = sample_answers(PackedPrefixes(model, []), asked, ids, vocabulary(48), Generation())
        return {
            (name, t, trial): answer
            for name, paths in zip(names, found, strict=True)
            for t, trial, answer in zip(paths.temperatures.tolist(), paths.trials.tolist(), answers(paths), strict=True)
        }

    together = ask("abcdef", (0.4, 1.0, 1.6), 20)
    assert ask("fbdeca", (0.4, 1.0, 1.6), 20) == together
    fewer = ask("db", (1.0,), 7)
    assert fewer == {key: together[key] for key in fewer}
    assert len({together[name, 1.6, trial] for name in "ab" for trial in range(20)}) > 20  # each has its own numbers


def test_log_probabilities_are_those_of_the_temperature():
    model = tiny("llama")
    (paths,) = sample_answers(
        PackedPrefixes(model, []), [request("a", (0.5, 1.5), 5)], PROMPTS[:1], vocabulary(48), Generation()
    )
    for row, answer in enumerate(answers(paths)):
        for place, token in enumerate(answer):
            logits = plain_logits(model, PROMPTS[0] + list(answer[:place]))
            expected = (logits / paths.temperatures[row]).log_softmax(-1)[token].item()
            assert paths.sampling_logprobs[row, place] == pytest.approx(expected, abs=1e-5)

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import tiny
from scipy import stats
from support.op_counter import OpCounter, counted
from tiny_answers import ENDS, PROMPTS, enumerated, plain_logits, vocabulary

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model.base import Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.prefixes import PackedPrefixes, PrefixRows
from robust_eval.model.local.sampled_tree import sample_answers
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import TokenTexts
from robust_eval.prompt.prompt import Prompt

SHARED = [5, 6]


def request(name: str, temperatures: tuple[float, ...], trials: int, tokens: int = 3, top: int = 0) -> Request:
    return Request(name, 0, Prompt("", (), name), temperatures, trials, tokens, seed=11, top_logprobs=top)


@pytest.fixture(scope="module", params=[PrefixRows, PackedPrefixes])
def evaluator(request: pytest.FixtureRequest) -> type:
    return request.param


CUTS = {
    "full vocabulary": Generation(),
    "top_k": Generation(top_k=5),
    "top_p": Generation(top_p=0.6),
    "min_p": Generation(min_p=0.2),
}


@pytest.mark.parametrize(
    ("architecture", "cut"), [*(("llama", cut) for cut in CUTS), ("gpt2", "top_p"), ("gemma3", "full vocabulary")]
)
def test_frequencies_of_answers_follow_the_enumerated_probabilities(evaluator: type, architecture: str, cut: str):
    model = tiny(architecture)
    temperatures = (0.5, 1.0, 2.0)
    requests = [request("a", temperatures, 6_000, 2), request("b", temperatures, 10, 2)]
    drawn, _ = sample_answers(evaluator(model, SHARED), requests, PROMPTS, vocabulary(48), CUTS[cut])
    everything = drawn.answers()
    for index, temperature in enumerate(temperatures):
        counts = Counter(everything[index * 6_000 : (index + 1) * 6_000])
        truth = enumerated(architecture, PROMPTS[0], temperature, 2, CUTS[cut])
        assert sum(truth.values()) == pytest.approx(1)
        assert set(counts) <= set(truth)
        frequent = [leaf for leaf, p in truth.items() if p * 6_000 >= 5]
        expected = [truth[leaf] * 6_000 for leaf in frequent]
        observed = [counts[leaf] for leaf in frequent]
        if len(frequent) < len(truth):
            expected.append(6_000 - sum(expected))
            observed.append(6_000 - sum(observed))
        assert stats.chisquare(observed, expected, sum_check=False).pvalue > 1e-4


def test_temperature_zero_is_greedy_generation(evaluator: type):
    model = tiny("llama")
    requests = [request(name, (0.0,), 1, 12) for name in "ab"]
    drawn = sample_answers(evaluator(model, SHARED), requests, PROMPTS, vocabulary(48), Generation())
    for prompt, paths in zip(PROMPTS, drawn, strict=True):
        ids = torch.tensor([prompt])
        options = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": list(ENDS), "pad_token_id": 0}
        generated = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()
        assert paths.answers() == [tuple(generated)]
        assert paths.sampling_logprobs.tolist() == [[0.0] * 12]


def test_log_probabilities_are_those_of_plain_passes(evaluator: type):
    model = tiny("llama")
    requests = [request("a", (0.0, 0.7), 3, 4, top=6), request("b", (1.5,), 2, 4, top=6)]
    drawn = sample_answers(evaluator(model, SHARED), requests, PROMPTS, vocabulary(48), Generation())
    for prompt, paths in zip(PROMPTS, drawn, strict=True):
        for row, answer in enumerate(paths.answers()):
            for place, token in enumerate(answer):
                logits = plain_logits(model, prompt + list(answer[:place]))
                at_one = logits.log_softmax(-1)
                temperature = paths.temperatures[row]
                sampled = (logits / temperature).log_softmax(-1)[token].item() if temperature else 0.0
                assert paths.token_logprobs[row, place] == pytest.approx(at_one[token].item(), abs=1e-5)
                assert paths.sampling_logprobs[row, place] == pytest.approx(sampled, abs=1e-5)
                largest = at_one.sort(descending=True).values[:6].tolist()
                assert paths.top_logprobs[row, place].tolist() == pytest.approx(largest, abs=1e-5)


def test_the_repetition_penalty_is_that_of_the_library(evaluator: type):
    model = tiny("llama")
    penalty = Generation(repetition_penalty=1.8)
    (paths,) = sample_answers(evaluator(model, []), [request("a", (0.0,), 1, 12)], PROMPTS[:1], vocabulary(48), penalty)
    ids = torch.tensor(PROMPTS[:1])
    options = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": list(ENDS), "pad_token_id": 0}
    generated = model.generate(ids, attention_mask=torch.ones_like(ids), repetition_penalty=1.8, **options)
    assert paths.answers() == [tuple(generated[0, 5:].tolist())]


def test_an_answer_ends_at_an_end_token_or_at_its_limit(evaluator: type):
    requests = [request("a", (1.0, 2.0), 200, 6), request("b", (2.0,), 200, 2)]
    drawn = sample_answers(evaluator(tiny("llama"), SHARED), requests, PROMPTS, vocabulary(48), Generation())
    for asked, paths in zip(requests, drawn, strict=True):
        ended = [answer[-1] in ENDS for answer in paths.answers()]
        assert paths.finish_reasons() == ["stop" if stopped else "length" for stopped in ended]
        assert any(ended)
        assert not all(ended)
        for answer, stopped in zip(paths.answers(), ended, strict=True):
            assert not set(answer[:-1]) & set(ENDS)
            assert len(answer) <= asked.max_new_tokens
            assert stopped or len(answer) == asked.max_new_tokens


def test_conditions_stand_in_the_order_of_temperatures_and_trials(evaluator: type):
    (paths,) = sample_answers(
        evaluator(tiny("llama"), []), [request("a", (0.5, 1.5), 3)], PROMPTS[:1], vocabulary(48), Generation()
    )
    assert paths.temperatures.tolist() == [0.5, 0.5, 0.5, 1.5, 1.5, 1.5]
    assert paths.trials.tolist() == [0, 1, 2, 0, 1, 2]


def test_answers_do_not_depend_on_what_is_asked_beside_them():
    model = tiny("llama")
    prompts = {f"q{i}": [5, 6, *np.random.default_rng(i).integers(3, 48, 4 + i % 3).tolist()] for i in range(12)}
    temperatures = (0.4, 1.0, 1.6)

    def ask(names: list[str], evaluator: type, temperatures: tuple[float, ...], trials: int) -> dict:
        requests = [request(name, temperatures, trials, 4) for name in names]
        blocks = [[index] for index in range(len(names))] if evaluator is PrefixRows else [range(len(names))]
        found = {}
        for block in blocks:
            chosen = [requests[index] for index in block]
            ids = [prompts[one.question_id] for one in chosen]
            drawn = sample_answers(evaluator(model, SHARED), chosen, ids, vocabulary(48), Generation())
            for one, paths in zip(chosen, drawn, strict=True):
                keys = itertools.product([one.question_id], temperatures, range(trials))
                found |= dict(zip(keys, paths.answers(), strict=True))
        return found

    together = ask(list(prompts), PackedPrefixes, temperatures, 20)
    assert len(together) == 12 * 3 * 20
    assert ask(list(prompts)[::-1], PackedPrefixes, temperatures, 20) == together
    assert ask(list(prompts), PrefixRows, temperatures, 20) == together
    fewer = ask(list(prompts)[3:5], PackedPrefixes, temperatures[1:2], 7)
    assert fewer == {key: together[key] for key in fewer}


def test_other_seeds_and_questions_have_other_streams():
    model = tiny("llama")
    drawn = []
    for seed, name in ((1, "a"), (2, "a"), (1, "b")):
        asked = Request(name, 0, Prompt("", (), ""), (2.0,), 50, 3, seed)
        (paths,) = sample_answers(PrefixRows(model, []), [asked], PROMPTS[:1], vocabulary(48), Generation())
        drawn.append(paths.answers())
    assert drawn[0] != drawn[1]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize("cut", [Generation(), Generation(top_k=6_000), Generation(top_p=0.7)])
def test_frequencies_follow_the_probabilities_at_a_vocabulary_of_150_thousand(evaluator: type, cut: Generation):
    size, draws = 150_000, 6_000
    model = tiny("llama", vocabulary=size)
    none = np.zeros(size, dtype=bool)
    words = Vocabulary(none, ~none, lambda: TokenTexts([]))
    (drawn,) = sample_answers(evaluator(model, []), [request("a", (0.7, 1.5), draws, 1)], PROMPTS[:1], words, cut)
    scattered = np.random.default_rng(0).permutation(size) % 40  # groups of tokens from all over the vocabulary
    for index, temperature in enumerate((0.7, 1.5)):
        p = cut.truncated(plain_logits(model, PROMPTS[0])[None] / temperature)[0].softmax(-1).numpy()
        tokens = drawn.tokens[index * draws : (index + 1) * draws, 0]
        assert len(set(tokens[p[tokens] == 0].tolist())) <= 1  # of two at the cut, rounding may keep the other one
        for group in (scattered, np.arange(size) * 40 // size):
            expected = np.bincount(group, p, minlength=40) * draws
            observed = np.bincount(group[tokens], minlength=40)
            assert stats.chisquare(observed, expected, sum_check=False).pvalue > 1e-4


@pytest.mark.parametrize("whole", [True, False])
def test_a_device_is_waited_for_once_a_level_however_many_questions_there_are(whole: bool):
    model = tiny("llama")
    pieces = [bytes([97 + token % 3]) for token in range(48)]
    words = replace(vocabulary(48), read_texts=lambda: TokenTexts(pieces))
    waits = []
    for questions in (1, 4):
        drawn = [request(str(n), (0.5, 1.0, 2.0), 5, 4) for n in range(questions)]
        asked = [replace(each, matcher=AnswerMatcher(["abcab"]), stop_on_match=not whole) for each in drawn]
        prompts = [[*SHARED, *range(10, 14 + 3 * n)] for n in range(questions)]
        prefixes = PackedPrefixes(model, SHARED)
        with counted(model.base_model, model.get_output_embeddings(), OpCounter()) as counter:
            sample_answers(prefixes, asked, prompts, words, Generation())
        waits.append({part: counter.total[f"{part}_waits"] for part in ("outside", "head", "body")})
    assert waits == [{"outside": 4, "head": 0, "body": 0}] * 2

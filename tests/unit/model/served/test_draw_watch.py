"""Tests of draws against their log-probabilities, on simulated servers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from robust_eval.model.base import Call, Request
from robust_eval.model.generation import Generation
from robust_eval.model.served.draw_watch import CERTAIN, QUESTIONS, DrawWatch, draw_watch
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.transport.service import Choice
from robust_eval.model.served.transport.token_logprobs import Token
from robust_eval.prompt.prompt import Prompt

VOCABULARY, TOP, TOKENS = 200, 20, 4
CAN = Capabilities("max_tokens", True, True, {"top_p": 1.0}, 2.0, TOP, False, 8, True)


def request(number: int = 0, temperatures: tuple[float, ...] = (0.5, 1.0), trials: int = 10) -> Request:
    return Request(f"q{number}", 0, Prompt("", (), "An animal?"), temperatures, trials, 8, 1)


def watched(
    temperature: float,
    drawn_at: float,
    spread: float,
    repeats: bool = False,
    tempered: bool = False,
    seed: int = 0,
    questions: int = QUESTIONS,
) -> DrawWatch:
    """Draws at one temperature that are said to be at another; logits have this standard deviation."""
    watch, random = DrawWatch(tempered, TOP, {}), np.random.default_rng([seed, 1])
    for number in range(questions):
        logits = np.random.default_rng([seed, number]).normal(size=(TOKENS, VOCABULARY)) * spread
        logits -= logits.max(axis=-1, keepdims=True)
        shown = logits / temperature if tempered else logits
        logprobs = shown - np.log(np.exp(shown).sum(axis=-1, keepdims=True))
        weights = np.exp(logits / drawn_at)
        weights /= weights.sum(axis=-1, keepdims=True)
        asked, drawn = request(number, (0.25, temperature)), None
        for trial in range(10):
            drawn = drawn if repeats and drawn is not None else [int(random.choice(VOCABULARY, p=p)) for p in weights]
            tokens = [
                Token(str(token).encode(), float(own[token]), sorted(own.tolist(), reverse=True)[:TOP])
                for token, own in zip(drawn, logprobs, strict=True)
            ]
            call = Call(asked, temperature, (trial,))
            assert watch.covers(call)
            watch.add(call, [Choice("", "stop", False, tokens)])
    return watch


@pytest.mark.parametrize("spread", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("tempered", [False, True])
def test_draws_are_taken_for_draws_of_models_that_are_certain_and_of_others(
    spread: float, temperature: float, tempered: bool
) -> None:
    for seed in range(3):
        watch = watched(temperature, temperature, spread, tempered=tempered, seed=seed, questions=15)
        assert watch.repetition() < 0
        assert watch.drawn_as_at() is None


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("tempered", [False, True])
def test_a_reply_that_is_always_repeated_is_told_from_draws(temperature: float, tempered: bool) -> None:
    assert watched(temperature, temperature, 1.0, repeats=True, tempered=tempered).repetition() > CERTAIN


def test_a_model_that_is_certain_may_repeat_itself() -> None:
    assert watched(0.5, 0.5, 1e6, repeats=True).repetition() < 1


def test_few_replies_prove_nothing() -> None:
    watch = watched(1.0, 1.0, 2.0, repeats=True, questions=1)
    assert watch.repetition() > CERTAIN  # ten equal replies of four tokens that are unlikely
    fresh = DrawWatch(False, TOP, {})
    token = Token(b"yes", math.log(0.5), [math.log(0.5), math.log(0.4)])
    for trial in range(10):
        assert fresh.covers(Call(request(), 1.0, (trial,)))
        fresh.add(Call(request(), 1.0, (trial,)), [Choice("yes", "stop", False, [token])])
    assert fresh.repetition() == pytest.approx(math.log(0.5 + 0.5 * 2**9))
    assert fresh.repetition() < CERTAIN


@pytest.mark.parametrize(
    ("temperature", "drawn_at", "told"), [(2.0, 1.0, 1.0), (2.0, 0.5, 0.5), (1.0, 0.25, 0.25), (0.5, 1.0, 1.0)]
)
def test_draws_at_another_temperature_are_told(temperature: float, drawn_at: float, told: float) -> None:
    assert watched(temperature, drawn_at, 2.0).drawn_as_at() == told


def test_one_question_with_different_replies_does_not_hide_others_that_are_repeated() -> None:
    watch = watched(1.0, 1.0, 1.0, repeats=True, questions=10)
    other = [Token(b"other", -1.0, [-1.0, -2.0])]
    for number in range(5):
        watch.add(Call(request(number), 1.0, (11,)), [Choice("", "stop", False, other)])
    assert watch.repetition() > CERTAIN


def test_what_cannot_be_believed_proves_nothing() -> None:
    for logprob in (-9999.0, -math.inf, math.nan, 3.0):
        watch = DrawWatch(False, TOP, {})
        for trial in range(10):
            tokens = [Token(b"yes", logprob, [logprob, -2.0])]
            watch.covers(Call(request(), 1.0, (trial,)))
            watch.add(Call(request(), 1.0, (trial,)), [Choice("yes", "stop", False, tokens)])
        assert (watch.repetition(), watch.drawn_as_at()) == (0.0, None)


def test_tokens_that_are_not_those_of_the_reply_prove_nothing() -> None:
    """MLX's server names a likely token in place of the drawn one."""
    watch, random = DrawWatch(False, TOP, {}), np.random.default_rng(0)
    named = [Token("ĠParis".encode(), math.log(0.4), [math.log(0.4), math.log(0.35), math.log(0.25)])]
    for number in range(QUESTIONS):
        for trial in range(10):
            call, text = (
                Call(request(number), 1.0, (trial,)),
                random.choice(["Paris", "Rome", "Oslo"], p=[0.4, 0.35, 0.25]),
            )
            assert watch.covers(call)
            watch.add(call, [Choice(text, "stop", False, named)])
    assert watch.repetition() < 0
    assert watch.drawn_as_at() is None


def test_draws_of_the_first_questions_at_the_highest_temperature_are_watched() -> None:
    watch = DrawWatch(False, TOP, {})
    assert watch.covers(Call(request(), 1.0, (0,)))
    assert not watch.covers(Call(request(), 0.5, (0,)))
    assert not watch.covers(Call(request(temperatures=(0.0,)), 0.0, (0,)))
    assert not watch.covers(Call(request(temperatures=(math.nan,)), math.nan, (0,)))
    for number in range(QUESTIONS):
        watch.add(Call(request(number), 1.0, (0,)), [])
    assert watch.covers(Call(request(0), 1.0, (1,)))
    assert not watch.covers(Call(request(QUESTIONS), 1.0, (0,)))
    assert not watch.covers(Call(replace(request(0), signs=("A", "B")), 1.0, (1,)))


def test_what_changes_the_distribution_leaves_nothing_to_watch() -> None:
    plain = OpenAI("m", "m", base_url="http://localhost/v1", api_key_env=None)
    assert draw_watch(plain, CAN) is not None
    for settings in ({"generation": Generation(top_k=5)}, {"generation": Generation("repository")}):
        assert draw_watch(OpenAI("m", "m", base_url="http://localhost/v1", **settings), CAN) is None
    assert draw_watch(OpenAI("m", "m", base_url="http://localhost/v1", extra_body={"min_p": 0.1}), CAN) is None
    no_logprobs = Capabilities("max_tokens", True, True, {"top_p": 1.0}, 2.0, 0, False, 8, True)
    assert draw_watch(plain, no_logprobs) is None

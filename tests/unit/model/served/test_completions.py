from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_lines import cases

from robust_eval.model.base import Call, Completion, Request, calls
from robust_eval.model.served.completions import completions, seed_of, unanswered
from robust_eval.model.served.transport.service import Choice, ServiceResponse
from robust_eval.model.served.transport.token_logprobs import Token
from robust_eval.prompt.prompt import Prompt

PROPERTY = settings(max_examples=150, deadline=None, database=None, derandomize=True)
PROMPT = Prompt("", (), "Question: What is the capital of France?\nAnswer:")


def request(
    temperatures: tuple[float, ...] = (0.5,), trials: int = 4, question_id: str = "q1", rewrite: int = 0, **more: Any
) -> Request:
    return Request(
        question_id, rewrite, PROMPT, temperatures, trials, more.pop("max_new_tokens", 8), **({"seed": 3} | more)
    )


def call(trials: tuple[int, ...] = (0,), temperature: float = 0.5, **more: Any) -> Call:
    return Call(request((temperature,), **more), temperature, trials)


# what is asked for at once


@st.composite
def partly_known(draw: st.DrawFn) -> Request:
    temperatures = tuple(draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0, 2.0]), unique=True, max_size=4)))
    trials = draw(st.integers(1, 12))
    pairs = st.tuples(st.sampled_from([*temperatures, 3.0]), st.integers(0, trials + 2))
    return request(temperatures, trials, cached=draw(st.frozensets(pairs)))


@PROPERTY
@given(partly_known(), st.integers(1, 6))
def test_calls_ask_once_for_what_is_not_known_in_the_longest_runs_of_consecutive_trials(
    asked: Request, choices: int
) -> None:
    found = list(calls(asked, choices))
    pairs = [(call.temperature, trial) for call in found for trial in call.trials]
    wanted = [(t, trial) for t in asked.temperatures for trial in range(asked.trials)]
    assert pairs == [pair for pair in wanted if pair not in asked.cached]
    assert all(call.request is asked for call in found)
    assert all(call.trials == tuple(range(call.trials[0], call.trials[-1] + 1)) for call in found)
    assert all(1 <= len(call.trials) <= choices for call in found)
    for one, next_one in pairwise(found):
        goes_on = one.temperature == next_one.temperature and one.trials[-1] + 1 == next_one.trials[0]
        assert len(one.trials) == choices or not goes_on


# seeds


@PROPERTY
@given(partly_known(), st.integers(1, 6))
def test_a_trial_has_the_same_seed_whatever_it_is_asked_with(asked: Request, choices: int) -> None:
    alone = {(call.temperature, call.trials[0]): seed_of(call) for call in calls(asked, 1)}
    together = {
        (call.temperature, trial): seed_of(call) + place
        for call in calls(asked, choices)
        for place, trial in enumerate(call.trials)
    }
    assert together == alone


def test_every_condition_has_seeds_of_its_own() -> None:
    conditions = [
        call((trial,), temperature, question_id=question_id, rewrite=rewrite, seed=seed)
        for trial in range(5)
        for temperature in (0.2, 0.5, 1.0)
        for question_id in ("q1", "q10", "q")
        for rewrite in (0, 1, 10)
        for seed in (0, 1, 3)
    ]
    assert len({seed_of(condition) for condition in conditions}) == len(conditions)


@PROPERTY
@given(st.text(), st.integers(0, 20), st.integers(), st.floats(0, 10), st.integers(0, 2**20 - 1))
def test_a_seed_is_a_positive_32_bit_number(
    question_id: str, rewrite: int, seed: int, temperature: float, trial: int
) -> None:
    one = call((trial,), temperature, question_id=question_id, rewrite=rewrite, seed=seed)
    assert 0 <= seed_of(one) < 2**31


def test_seeds_stay_what_they_are() -> None:
    assert [seed_of(call((trial,))) for trial in (0, 1, 7)] == [SEED, SEED + 1, SEED + 7]


def test_what_else_is_asked_does_not_change_a_seed() -> None:
    assert seed_of(Call(request((0.2, 0.5, 1.0), trials=40, max_new_tokens=99, top_logprobs=5), 0.5, (0, 1))) == SEED


SEED = 1688802627
"""Of the first trial of `call`; another one would give other answers to the same request."""


# answers


def choice(
    text: str, finish_reason: str = "stop", refused: bool = False, tokens: Sequence[Token] | None = None
) -> Choice:
    return Choice(text, finish_reason, refused, None if tokens is None else list(tokens))


def tokens_of(*texts: str | bytes) -> list[Token]:
    return [
        Token(text.encode() if isinstance(text, str) else text, -float(place), [-float(place), -9.0])
        for place, text in enumerate(texts)
    ]


def completion(trial: int, text: str, finish_reason: str | None = "stop", **more: Any) -> Completion:
    unknown: dict[str, Any] = dict.fromkeys(
        ["token_ids", "token_logprobs", "sampling_logprobs", "top_logprobs", "answer_tokens"]
    )
    fields = unknown | {"temperature": 0.5, "prompt_tokens": 0, "completion_tokens": 0} | more
    return Completion(trial=trial, text=text, finish_reason=finish_reason, **fields)


def one(
    text: str, style: str = "chat", first_line: bool = True, tokens: Sequence[Token] | None = None, reason: str = "stop"
) -> Completion:
    """What becomes of one answer."""
    asked = call(first_line=first_line)
    (found,) = completions(asked, asked.trials, ServiceResponse([choice(text, reason, tokens=tokens)], 0, 0), style)
    return found


def test_answers_are_those_of_the_trials_in_order() -> None:
    answered = ServiceResponse(
        [choice("Paris."), choice(" ", "length"), choice("", "filter"), choice("I can't.", refused=True)],
        20,
        11,
    )
    assert completions(call((4, 5, 6, 7)), (4, 5, 6, 7), answered, "chat") == [
        completion(4, "Paris.", prompt_tokens=20, completion_tokens=2 + 3),
        completion(5, "", "length", completion_tokens=2),
        completion(6, "", "filter", outcome="filtered_reply", completion_tokens=2),
        completion(7, "I can't.", outcome="refused", completion_tokens=2),
    ]


def test_some_of_the_trials_may_have_been_answered() -> None:
    answered = ServiceResponse([choice("Paris"), choice("Lyon")], 20, 5)
    assert completions(call((4, 5, 6)), (4, 5), answered, "chat") == [
        completion(4, "Paris", prompt_tokens=20, completion_tokens=3),
        completion(5, "Lyon", completion_tokens=2),
    ]


def test_more_answers_than_were_asked_for_are_left() -> None:
    answered = ServiceResponse([choice("Paris"), choice("Lyon")], 20, 5)
    (found,) = completions(call((4,)), (4,), answered, "chat")
    assert (found.trial, found.text) == (4, "Paris")


def test_tokens_that_the_server_tells_are_those_that_are_counted() -> None:
    answered = ServiceResponse(
        [choice("Paris", tokens=tokens_of("Par", "is", "")), choice("Rome", tokens=tokens_of("Rome", "\n", "It"))],
        20,
        3,
    )
    assert completions(call((0, 1)), (0, 1), answered, "chat") == [
        completion(
            0,
            "Paris",
            token_logprobs=[0.0, -1.0, -2.0],
            top_logprobs=[[0.0, -9.0], [-1.0, -9.0], [-2.0, -9.0]],
            answer_tokens=2,
            prompt_tokens=20,
            completion_tokens=3,
        ),
        completion(
            1,
            "Rome",
            token_logprobs=[0.0, -1.0, -2.0],
            top_logprobs=[[0.0, -9.0], [-1.0, -9.0], [-2.0, -9.0]],
            answer_tokens=1,
            completion_tokens=3,
        ),
    ]


@PROPERTY
@given(st.integers(1, 9), st.integers(0, 100))
def test_what_was_counted_of_all_answers_together_is_split_without_rest(number: int, counted: int) -> None:
    trials = tuple(range(number))
    found = completions(call(trials), trials, ServiceResponse([choice("x")] * number, 7, counted), "chat")
    shares = [completion.completion_tokens or 0 for completion in found]
    assert sum(shares) == counted
    assert set(shares[1:]) <= {counted // number}
    assert [completion.prompt_tokens for completion in found] == [7] + [0] * (number - 1)


def test_an_answer_that_did_not_come_has_nothing_but_its_outcome() -> None:
    assert unanswered(call((2, 3)), 3, "filtered_prompt") == completion(
        3, "", None, outcome="filtered_prompt", prompt_tokens=None, completion_tokens=None
    )


# the text of an answer


@pytest.mark.parametrize(
    ("style", "first_line", "text", "answer"), cases(__file__, "an_answer_is_the_first_line_or_all_of_a_reply")
)
def test_an_answer_is_the_first_line_or_all_of_a_reply(style: str, first_line: bool, text: str, answer: str) -> None:
    found = one(text, style, first_line)
    assert (found.text, found.outcome) == (answer, None)


@pytest.mark.parametrize(
    ("style", "first_line", "text", "reason", "finish_reason"),
    cases(__file__, "an_answer_that_ends_with_its_line_is_not_cut"),
)
def test_an_answer_that_ends_with_its_line_is_not_cut(
    style: str, first_line: bool, text: str, reason: str, finish_reason: str | None
) -> None:
    assert one(text, style, first_line, reason=reason).finish_reason == finish_reason


# the tokens of an answer


@pytest.mark.parametrize(
    ("style", "first_line", "texts", "answer_tokens"),
    [
        *cases(__file__, "the_leading_tokens_that_carry_the_answer_are_counted"),
        ("chat", True, [b"a\xc3", b"\xa9b", "", ""], 2),
    ],
)
def test_the_leading_tokens_that_carry_the_answer_are_counted(
    style: str, first_line: bool, texts: list[str | bytes], answer_tokens: int
) -> None:
    assert carrying(style, first_line, texts) == answer_tokens


@pytest.mark.parametrize(
    ("texts", "answer_tokens"),
    [
        ([b"\xc3", b"\xa9", ""], 2),
        (["caf", b"\xc3", b"\xa9", "\n", "It"], 3),
        ([b"\xe6\x9d", b"\xb1", b"\xe4", b"\xba", b"\xac", ""], 5),
        ([b"\xf0\x9f", b"\x98", b"\x80", "", ""], 3),
    ],
)
def test_a_character_of_several_tokens_is_carried_by_all_of_them(texts: list[str | bytes], answer_tokens: int) -> None:
    assert carrying("chat", True, texts) == answer_tokens


def carrying(style: str, first_line: bool, texts: list[str | bytes]) -> int | None:
    """The count of a reply whose text is that of its tokens, without special ones."""
    tokens = tokens_of(*texts)
    text = b"".join(token.text for token in tokens).decode().replace("<|im_end|>", "")
    return one(text, style, first_line, tokens).answer_tokens


@PROPERTY
@given(st.lists(st.sampled_from(["a", "b c", "\n", " ", "\n\n", "é", "東京", ""])), st.booleans(), st.booleans())
def test_the_tokens_that_are_counted_are_the_fewest_that_write_the_answer(
    texts: list[str], chat: bool, first_line: bool
) -> None:
    found = one("".join(texts), "chat" if chat else "plain", first_line, tokens_of(*texts))
    if not texts:
        assert found.answer_tokens is None
        return
    assert found.answer_tokens is not None
    written = "".join(texts[: found.answer_tokens])
    assert found.text in written
    if found.answer_tokens:
        assert not found.text or found.text not in "".join(texts[: found.answer_tokens - 1])


def test_a_token_that_is_cut_within_a_character_is_counted_where_its_text_is_there() -> None:
    assert one("ab \ufffd", tokens=tokens_of("ab", b" \xe6"), reason="length").answer_tokens == 2


def test_what_is_not_told_is_not_counted() -> None:
    assert one("Paris", tokens=None) == one("Paris", tokens=[]) == completion(0, "Paris")


@pytest.mark.parametrize(
    ("temperature", "logprobs", "answer_tokens"), [(0.0, [-0.5, -0.25, -0.125], 2), (0.5, None, None)]
)
def test_of_tokens_that_the_server_names_in_place_of_the_drawn_ones_only_greedy_ones_are_known(
    temperature: float, logprobs: list[float] | None, answer_tokens: int | None
):
    """As the server of MLX does, which names one of the likeliest at each position."""
    places = [(b"The", -2.0, -0.5, "\u0120Lake"), (b"!", -3.0, -0.25, "\u0120Baikal"), (b"or", -4.0, -0.125, "")]
    tokens = [Token(text, low, [high, low], likeliest.encode()) for text, low, high, likeliest in places]
    response = ServiceResponse([Choice("Lake Baikal", "stop", False, tokens)], 9, 3)
    (answer,) = completions(call(temperature=temperature), (0,), response, "chat")
    assert answer.token_logprobs == logprobs
    assert answer.top_logprobs == [[high, low] for _, low, high, _ in places]
    assert answer_tokens is None or answer.answer_tokens == answer_tokens

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from robust_eval.model.base import Enumeration, Request
from robust_eval.model.local.batching import BLOCK_SIZES, blocks, in_order
from robust_eval.prompt.prompt import Prompt


def encoded(lengths: list[int], trials: int) -> list[tuple[list[int], Request]]:
    requests = [Request(str(n), 0, Prompt("", (), "?"), (1.0,), trials, 5, 0) for n in range(len(lengths))]
    return [([7] * length, request) for length, request in zip(sorted(lengths), requests, strict=True)]


def sizes(lengths: list[int], trials: int, most_answers: int, on_cuda: bool = False) -> list[int]:
    return [len(block) for block in blocks(encoded(lengths, trials), lambda: most_answers, BLOCK_SIZES[on_cuda])]


def test_the_first_blocks_are_small_so_that_some_answers_are_soon_kept():
    assert sizes([50] * 60, 100, 1600) == [2, 4, 8, 16, 16, 14]


def test_the_first_blocks_of_greedy_answers_hold_few_prompts():
    assert sizes([64] * 500, 1, 1600) == [16, 32, 64, 128, 128, 128, 4]


def test_on_cuda_the_first_block_is_as_large_as_the_later_ones():
    assert sizes([*range(40, 100)] * 4, 100, 12_800, on_cuda=True) == [128, 112]


def test_enumerated_requests_with_other_temperatures_are_in_a_block_of_their_own():
    enumeration = Enumeration(10, (0.5, 1.0))
    asked = [(1.0,), (1.0,), (0.5, 1.0)]
    requests = [Request(str(n), 0, Prompt("", (), "?"), at, 1, 5, 0) for n, at in enumerate(asked)]
    pairs = [([7] * 50, replace(request, enumeration=enumeration)) for request in requests]
    assert [len(block) for block in blocks(pairs, lambda: 1600, BLOCK_SIZES[True])] == [2, 1]


def test_a_question_with_more_answers_than_a_block_takes_is_a_block_of_its_own():
    assert sizes([50] * 3, 100, 60) == [1, 1, 1]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(1, 200), st.integers(1, 1600))
def test_every_prompt_is_in_one_block_and_no_block_exceeds_its_share(lengths: list[int], trials: int, most: int):
    prompts = encoded(lengths, trials)
    limits = BLOCK_SIZES[False]
    found = list(blocks(prompts, lambda: most, limits))
    assert [prompt for block in found for prompt in block] == prompts
    for number, block in enumerate(found):
        share = min(limits.ramp_up, 2**number)
        longest = max(len(ids) for ids, _ in block)
        assert len(block) == 1 or len(block) * trials <= most * share / limits.ramp_up
        assert len(block) == 1 or len(block) * longest <= limits.prompt_tokens * share / limits.ramp_up
        assert longest - len(block[0][0]) <= limits.padding


def prompts_of(*tokens: list[int]) -> list[tuple[list[int], Request]]:
    request = Request("q", 0, Prompt("", (), "?"), (1.0,), 1, 5, 0)
    return [(prompt, request) for prompt in tokens]


def test_prompts_are_answered_by_length():
    found = in_order(prompts_of([9, 1, 2, 3], [9, 4], [9, 5, 6]))
    assert [prompt for prompt, _ in found] == [[9, 4], [9, 5, 6], [9, 1, 2, 3]]


def test_prompts_that_begin_alike_are_answered_together():
    passage, other = [9, *[1] * 30], [9, *[2] * 32]
    first, second, third = [*passage, 3], [*passage, 4, 4, 4, 4], [*passage, 5, 5]
    between = [*other, 6]
    found = in_order(prompts_of(second, between, first, third))
    assert [prompt for prompt, _ in found] == [between, first, third, second]


def test_prompts_of_one_length_stay_as_they_are_asked():
    assert [prompt for prompt, _ in in_order(prompts_of([9, 7], [9, 3], [9, 5]))] == [[9, 7], [9, 3], [9, 5]]

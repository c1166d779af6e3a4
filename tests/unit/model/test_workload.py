import math
from dataclasses import replace

import pytest

from robust_eval.model.base import Enumeration, Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.workload import ServiceLimits, Spending, Workload, prompt_tokens
from robust_eval.prompt.prompt import Prompt

PROMPT = Prompt("Be brief.", (("Two and two?", "four"),), "The capital of Italy?")
ASKED = Request("q", 0, PROMPT, (0.5, 1.0), 5, 7, 0)


def test_text_without_spaces_has_tokens_as_well():
    assert prompt_tokens(Prompt("", (), "意大利的首都是哪里请只回答城市的名字"), chat=False) >= 9


@pytest.mark.parametrize(("choices", "requests"), [(None, 10), (1, 10), (2, 6), (5, 2), (32, 2)])
def test_a_request_brings_several_answers_with_one_prompt(choices: int | None, requests: int):
    length = prompt_tokens(PROMPT, chat=True)
    assert ServiceLimits(chat=True, choices=choices).workload([ASKED]) == Workload(
        10, requests, requests * length, 70, None, 0.0
    )


def test_what_is_known_is_not_asked_again():
    known = replace(ASKED, cached=frozenset({(0.5, trial) for trial in range(5)} | {(1.0, 2)}))
    length = prompt_tokens(PROMPT, chat=False)
    assert ServiceLimits(chat=False, choices=4).workload([known]) == Workload(4, 2, 2 * length, 28, None, 0.0)
    assert ServiceLimits(chat=False).workload([]) == Workload(cost=None)


def test_an_enumeration_evaluates_each_prefix_once():
    enumerated = replace(ASKED, trials=0, enumeration=Enumeration(50, (0.5, 1.0)))
    assert ServiceLimits(chat=False).workload([enumerated]) == Workload(
        50, 1, prompt_tokens(PROMPT, chat=False), 50, None, 0.0
    )


def test_prices_are_of_a_million_tokens_and_limits_of_a_minute():
    length = prompt_tokens(PROMPT, chat=True)
    terms = ServiceLimits(chat=True, spending=Spending(2.0, 8.0, None), requests_per_minute=20)
    workload = terms.workload([ASKED] * 3)
    assert workload.cost == pytest.approx((30 * length * 2 + 210 * 8) / 1e6)
    assert workload.seconds == pytest.approx(90)
    tokens = 30 * length + 210
    slower = replace(terms, tokens_per_minute=tokens / 7).workload([ASKED] * 3)
    assert slower.seconds == pytest.approx(7 * 60)
    assert replace(terms, spending=Spending(2.0, None, None)).workload([ASKED]).cost is None


def test_workloads_add_up_and_an_unknown_cost_makes_the_sum_unknown():
    one, other = Workload(1, 2, 3, 4, 0.5, 6.0), Workload(10, 20, 30, 40, 0.25, 60.0)
    assert one + other == Workload(11, 22, 33, 44, 0.75, 66.0)
    assert (one + replace(other, cost=None)).cost is None
    assert math.isclose((Workload() + one).cost or 0, 0.5)


def test_the_thoughts_of_a_model_that_is_loaded_here_are_planned_for():
    thinking = Transformers("m", "path", prompt_style="chat", thinking_budget=100)
    found = thinking.service_limits().workload([ASKED])
    assert (found.answers, found.completion_tokens, found.reasoning_tokens) == (10, 10 * 107, 10 * 100)

"""A function as a model: what it is given, what becomes of its texts, and under which name they are stored."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from robust_eval.error import UserError
from robust_eval.model.base import Request
from robust_eval.model.function_model import PROMPTS_AT_ONCE, FunctionModel
from robust_eval.prompt.prompt import Prompt


def request(question: str, trials: int = 2, temperatures: tuple[float, ...] = (0.7,)) -> Request:
    prompt = Prompt("", (("Q: one?", "1"),), f"Q: {question}?")
    return Request(question, 0, prompt, temperatures, trials, max_new_tokens=5, seed=0)


def answers(model: FunctionModel, requests: Sequence[Request]) -> list[list[tuple[str, float, int, str]]]:
    """For each block the question, temperature, trial and text of each answer."""
    blocks = model.load().complete(requests, {each.item for each in requests})
    return [
        [
            (reply.request.question_id, each.temperature, each.trial, each.text)
            for reply in block
            for each in reply.completions
        ]
        for block in blocks
    ]


def test_each_answer_has_a_prompt_of_its_own_in_a_call_for_each_temperature():
    calls: list[tuple[list[str], float]] = []

    def count(prompts: list[str], temperature: float) -> list[str]:
        calls.append((prompts, temperature))
        return [f" answer {len(calls)}.{place} \nand more" for place, _ in enumerate(prompts)]

    (found,) = answers(FunctionModel(count, "count"), [request("a", temperatures=(0.5, 1.0)), request("b", trials=1)])
    text = "Q: one? 1\n\nQ: {}?".format
    assert calls == [([text("a")] * 2, 0.5), ([text("b")], 0.7), ([text("a")] * 2, 1.0)]
    assert found == [
        ("a", 0.5, 0, "answer 1.0"),
        ("a", 0.5, 1, "answer 1.1"),
        ("a", 1.0, 0, "answer 3.0"),
        ("a", 1.0, 1, "answer 3.1"),
        ("b", 0.7, 0, "answer 2.0"),
    ]


def test_a_list_is_kept_whole_and_answers_that_are_there_are_not_asked_again():
    model = FunctionModel(lambda prompts: ["1. a\n2. b\n"] * len(prompts), "list")
    asked = replace(request("a", trials=3), first_line=False, cached=frozenset({(0.7, 1)}))
    assert answers(model, [asked]) == [[("a", 0.7, 0, "1. a\n2. b"), ("a", 0.7, 2, "1. a\n2. b")]]


def test_blocks_hold_so_many_prompts_and_only_what_is_missing():
    sizes: list[int] = []

    def count(prompts: list[str]) -> list[str]:
        sizes.append(len(prompts))
        return prompts

    requests = [request(str(number), trials=PROMPTS_AT_ONCE // 2) for number in range(5)]
    found = list(FunctionModel(count, "count").load().complete(requests, {each.item for each in requests[1:4]}))
    assert sizes == [PROMPTS_AT_ONCE, PROMPTS_AT_ONCE // 2]
    assert [[reply.request.question_id for reply in block] for block in found] == [["1", "2"], ["3"]]


def test_its_answers_are_those_of_its_name_and_version_or_of_itself_in_this_process():
    def one(prompts: list[str]) -> list[str]:
        return prompts

    def other(prompts: list[str]) -> list[str]:
        return prompts

    assert FunctionModel(one, "f").identity() == FunctionModel(one, "f").identity()
    assert FunctionModel(one, "f").identity() != FunctionModel(other, "f").identity()
    assert FunctionModel(one, "f", "1").identity() == FunctionModel(other, "f", "1").identity()
    assert FunctionModel(one, "f", "1").identity() != FunctionModel(one, "f", "2").identity()
    told = FunctionModel(lambda prompts, temperature: prompts, "f", "1").identity()
    assert told != FunctionModel(one, "f", "1").identity()


def test_one_without_a_temperature_is_asked_at_one_and_that_is_said_once(caplog: pytest.LogCaptureFixture):
    loaded = FunctionModel(lambda prompts: prompts, "f").load()
    loaded.check([request("a")])
    loaded.check([request("a", temperatures=(0.0,))])
    assert caplog.messages == [
        "the function f has no parameter 'temperature': the settings do not change its temperature"
    ]
    with pytest.raises(UserError, match=r"the sampler requests several \(0.5, 1\): add the parameter"):
        loaded.check([request("a", temperatures=(0.5, 1.0))])
    with pytest.raises(
        UserError, match=r"^sampler\.stop_on_match=true: f cannot end its answers early, .*: remove it$"
    ):
        loaded.check([replace(request("a"), stop_on_match=True)])


def test_a_compiled_function_is_a_model_too():
    assert not FunctionModel(sorted, "sorted").takes_temperature
    assert FunctionModel(list, "list").identity()["name"] == "list"

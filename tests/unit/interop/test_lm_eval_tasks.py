"""Requests and values of lm-eval's tasks, and what cannot be asked."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_lines import cases
from lm_eval.api.instance import Instance

from robust_eval.config.overrides import named_questions
from robust_eval.error import UserError
from robust_eval.interop.lm_eval_tasks.tasks import (
    AnswerCertaintyTask,
    FactualRobustnessTask,
    Options,
    QuestionValue,
    RepeatedQuestions,
    aggregations,
)
from robust_eval.stats.estimate import mean_estimate

ROME = {"id": "it", "question": "What is the capital of Italy?", "answers": ["Rome"]}
LOADED = cache(named_questions)
"""The same files for all tests, which take half a second to find."""
LETTER = {"id": "mc", "question": "Which planet is red?", "choices": ["Venus", "Mars"], "correct": 1}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quiz.jsonl").write_text(f"{json.dumps(ROME)}\n{json.dumps(LETTER)}\n")
    monkeypatch.setattr("robust_eval.interop.lm_eval_tasks.tasks.named_questions", LOADED)


def requests(task: RepeatedQuestions, **settings: Any) -> list[Instance]:
    """The requests for the first question."""
    task.build_all_requests(limit=1, **settings)
    found: list[Instance] = task.instances
    return found


def test_a_document_is_asked_at_every_temperature_as_often_as_there_are_trials():
    task = FactualRobustnessTask(dataset="quiz.jsonl", temperatures=[1, 0.5], trials=3)
    found = requests(task)
    assert [(each.arguments[1], each.repeats, each.idx) for each in found] == [
        ({"until": ["\n"], "max_gen_toks": 16, "do_sample": t > 0, "temperature": t}, repeats, number)
        for number, (t, repeats) in enumerate([(0.0, 1), (0.5, 3), (1.0, 3)])
    ]
    assert found[0].arguments[0].endswith("Question: What is the capital of Italy?\nAnswer:")
    assert [task.doc_to_target(doc) for doc in task.test_docs()] == [["Rome"], "B"]


def test_with_seeds_each_trial_has_its_own_and_it_is_the_same_again():
    task = FactualRobustnessTask(dataset="quiz.jsonl", temperatures=[0.5, 1], trials=20, seeds=True)
    task.build_all_requests()
    first = [each.arguments[1].get("seed") for each in task.instances]
    task.build_all_requests()
    assert [each.arguments[1].get("seed") for each in task.instances] == first
    seeds = [seed for seed in first if seed is not None]
    assert len(first) == 2 * (1 + 2 * 20)
    assert len({*seeds}) == len(seeds) == 2 * 2 * 20
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert {each.repeats for each in task.instances} == {1}


def test_a_conversation_ends_as_the_model_ends_it_and_has_what_the_user_wants_said_first():
    task = AnswerCertaintyTask(dataset="quiz.jsonl", temperature=0.7)
    (one,) = requests(task, apply_chat_template=True, chat_template=lambda turns: turns, system_instruction="Be brief.")
    assert one.arguments[1] == {"until": [], "do_sample": True, "temperature": 0.7}
    assert one.arguments[0][0]["content"].startswith("Be brief.\n\n")
    assert one.arguments[0][-1] == {"role": "user", "content": "Question: What is the capital of Italy?\nAnswer:"}
    assert requests(task, system_instruction="Be brief.")[0].arguments[0].startswith("Be brief.\n\nQuestion:")


def test_all_replies_count_and_what_is_below_the_first_line_of_a_plain_reply_does_not():
    task = FactualRobustnessTask(dataset="quiz.jsonl", temperatures=[0.5, 1], trials=2)
    doc = task.test_docs()[0]
    found = task.process_results(doc, [["Rome"], ["Rome", "Milan"], ["Milan\nRome", ""]])
    values = {name: each.value for name, each in found.items() if not name.endswith(("_low", "_high"))}
    assert values == {"known": 1.0, "breaking_temperature": 1.0, "unbroken_share": 0.0, "survival_t0.5": 1.0}
    unknown = task.process_results(doc, [["Milan"], ["Rome", "Rome"], ["Rome", "Rome"]])
    assert (unknown["known"].value, unknown["unbroken_share"].value) == (0.0, None)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: AnswerCertaintyTask(dataset="quiz.jsonl", trials=1), "trials must be 2 or more, not 1"),
        (lambda: AnswerCertaintyTask(dataset="no-such-set"), "no-such-set"),
        (lambda: AnswerCertaintyTask({"metadata": {"robust_eval": {"limit": 3}}}), "'limit' is not an option"),
        (lambda: AnswerCertaintyTask({"metadata": {"robust_eval": 3}}), "3 is not an option"),
        (lambda: FactualRobustnessTask(dataset="mars.jsonl"), "is an exemplar of the prompt"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(wrong: Any, said: str):
    mars = {"id": "m", "question": "Which planet is known as the Red Planet?", "answers": ["Mars"]}
    Path("mars.jsonl").write_text(json.dumps(mars))
    with pytest.raises(UserError, match=said):
        wrong()


def test_the_command_line_does_not_set_what_the_task_varies():
    task = FactualRobustnessTask(dataset="quiz.jsonl")
    task.set_config(key="generation_kwargs", value={"temperature": 0.7, "max_gen_toks": 5}, update=True)
    with pytest.raises(UserError, match="gen_kwargs must not set temperature, which the tasks of robust_eval set"):
        requests(task)
    task = FactualRobustnessTask(dataset="quiz.jsonl")
    task.set_config(key="generation_kwargs", value={"max_gen_toks": 5, "top_k": 0}, update=True)
    assert requests(task)[0].arguments[1]["max_gen_toks"] == 5


@pytest.mark.parametrize(("given", "said"), cases(__file__, "an_option_that_is_none_is_a_sentence"))
def test_an_option_that_is_none_is_a_sentence(given: Any, said: str):
    with pytest.raises(UserError, match=said):
        Options.of(given)


def test_temperatures_ascend_and_stand_once():
    assert Options.of({"temperatures": [1, 0.5, 1.0]}).temperatures == (0.5, 1.0)


def ends(found: list[QuestionValue]) -> list[float]:
    assert [*aggregations("x")] == ["x", "x_low", "x_high"]
    return [part(found) for part in aggregations("x").values()]


def test_undefined_values_are_left_out_and_groups_are_resampled_together():
    values = [1.0, 0.0, 2.0, 2.0, 1.0, math.nan]
    groups = ["a", "a", "b", "b", "", ""]
    found = [
        QuestionValue(None if v != v else v, str(n), g, 2.0)
        for n, (v, g) in enumerate(zip(values, groups, strict=True))
    ]
    labels = ["group a", "group a", "group b", "group b", "question 4", "question 5"]
    assert ends(found) == list(mean_estimate(np.array(values), labels, (0.0, 2.0)))
    alone = [one._replace(group="") for one in found]
    assert ends(alone) == list(mean_estimate(np.array(values), None, (0.0, 2.0)))
    assert ends(alone)[0] == pytest.approx(6 / 5)


def test_without_a_value_it_is_undefined():
    assert all(map(math.isnan, ends([QuestionValue(None, "1", "", 1.0)])))

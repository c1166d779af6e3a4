import pytest
from answer_rows import answer_row

from robust_eval.answer import answer_table
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Reasoning, Request
from robust_eval.question import Question
from robust_eval.sampler.thinking import Thinking

FRANCE = Question("france", "Capital of France?", ("Paris",))


class Grading(Matching):
    first_line = True

    def choices(self, question: Question) -> None:
        return None


def trace(number: int, tokens: list[int], own: int, outcome: str = "ok") -> dict:
    row = answer_row("france", rewrite=5000, trial=number, outcome=outcome, weight=0.5)
    return row | {"token_ids": tokens, "answer_tokens": own}


def told(requests: list[Request]) -> list[tuple]:
    return [(each.variant, each.form, each.reasoning.tokens, each.trials) for each in requests]


def test_each_trace_is_cut_off_at_every_budget_and_the_same_thought_is_asked_for_once():
    sampler = Thinking(traces=3, budgets=[4, 0, 2], answers=5)
    (thoughts,) = sampler.trace_requests([FRANCE], 7)
    assert (thoughts.trials, thoughts.max_new_tokens, thoughts.reasoning) == (3, 4, Reasoning(most=4))
    traces = answer_table([trace(0, [5, 6, 7, 8], 4), trace(1, [5, 9], 1), trace(2, [3], 1, outcome="error")])
    assert told(sampler.answer_requests([FRANCE], traces, Grading(), 7)) == [
        (9000, "trace 0, budget 0", (), 15),
        (25000, "trace 0, budget 2", (5, 6), 5),
        (45000, "trace 0, budget 4", (5, 6, 7, 8), 5),
        (15001, "trace 1, budgets 2 4", (5,), 5),
    ]


def test_the_most_that_is_asked_is_planned_before_there_are_traces():
    sampler = Thinking(traces=3, budgets=[0, 2, 4], answers=5)
    planned = sampler.requests([FRANCE], Grading(), 7)
    assert [each.reasoning.most for each in planned] == [4] + [None] * 7
    assert len({each.item for each in planned}) == len(planned)
    assert sampler.repetitions == 15
    assert sampler.trace_requests([FRANCE], 7) == planned[:1]
    assert Thinking(budgets=[0]).trace_requests([FRANCE], 7) == []


def test_without_a_number_of_answers_all_are_enumerated_after_each_thought():
    sampler = Thinking(temperatures=[0.5, 2.0], budgets=[2], nodes=9)
    (request,) = sampler.answer_requests([FRANCE], answer_table([trace(0, [5, 6], 2)]), Grading(), 7)
    assert request.enumeration is not None
    assert (request.enumeration.nodes, request.enumeration.temperatures) == (9, (0.5, 1.0, 2.0))
    assert request.matcher is not None
    assert (sampler.estimator, sampler.repetitions) == ("exact", float("inf"))
    unknown = Question("q", "Why?")
    with pytest.raises(
        UserError, match=r"the answers to question q while .* set sampler\.thinking\.answers=10 to draw"
    ):
        sampler.answer_requests([unknown], answer_table([trace(0, [5], 1) | {"question_id": "q"}]), Grading(), 7)


def test_a_service_thinks_and_answers_at_once_with_every_budget():
    for budgets, limits in (([0, 64], [16, 80]), (["high", "low"], [16, 16])):
        sampler = Thinking(traces=3, budgets=budgets).of_model("thinking", True, "m")
        requests = sampler.requests([FRANCE], Grading(), 7)
        asked = [(each.reasoning, each.form, each.trials, each.max_new_tokens) for each in requests]
        ordered = sorted(budgets, key=str, reverse=budgets[0] == "high")
        assert asked == [
            (Reasoning(most=budget), f"budget {budget}", 3, limit)
            for budget, limit in zip(ordered, limits, strict=True)
        ]
        assert len({each.item for each in requests}) == 2
        assert (sampler.estimator, sampler.repetitions) == ("trials", 3)


def test_the_greedy_answer_comes_without_thinking_or_with_the_least_that_a_service_takes():
    sampler = Thinking(budgets=[8, 64])
    assert sampler.baseline_request(FRANCE, Grading(), 7, 0).reasoning == Reasoning(())
    served = sampler.of_model("thinking", True, "m").baseline_request(FRANCE, Grading(), 7, 0)
    assert (served.reasoning, served.max_new_tokens) == (Reasoning(most=8), 24)

from pathlib import Path

import pytest
from answer_rows import answer_row

from robust_eval.answer import Answers, answer_table
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.pushback import read_pushback
from robust_eval.question import Question
from robust_eval.sampler.base import NothingKeptError
from robust_eval.sampler.challenge import Challenge, turn_of, turns_of

FRANCE = Question("france", "Capital of France?", ("Paris",))
METALS = Question("metals", "Liquid?", choices=("iron", "mercury", "tin"), correct=1)
DOUBT = {"pushbacks": ["doubt"]}


def replied(question: Question, text: str, rewrite: int = 0, **other) -> dict:
    label = text[:1] if question.choices else None
    return answer_row(question.id, rewrite=rewrite, text=text, label=label) | {"answer": text} | other


def asked(sampler: Challenge, baseline: list[dict], *replies: list[dict], questions=(FRANCE,)) -> list[Request]:
    """The requests after the greedy answers and the replies to each turn."""
    steps = sampler.steps(list(questions), answer_table(baseline), Matching(), 3)
    step = next(steps)
    for rows in replies:
        step = steps.send(Answers(answer_table(rows)))
    return list(step.requests)


def test_at_the_first_turn_the_greedy_answer_is_doubted_in_every_conversation():
    sampler = Challenge(temperatures=[0.5], trials=2, max_new_tokens=9, **DOUBT)
    requests = asked(sampler, [replied(FRANCE, "<think>hm</think>Paris.", answer="Paris")])
    assert [(each.variant, each.temperatures, each.trials) for each in requests] == [
        (4001, (0.5,), 1),
        (14001, (0.5,), 1),
    ]
    for request in requests:
        challenge = read_pushback(request.form)
        assert challenge is not None
        assert (challenge.turn, challenge.kind) == (1, "doubt")
        prompt = prompt_for(FRANCE).continued("Paris.", challenge.words)
        expected = Request("france", request.variant, prompt, (0.5,), 1, 9, 3, form=request.form)
        assert request == expected
    messages = requests[0].prompt.messages()
    assert [each["role"] for each in messages[-4:]] == ["assistant", "user", "assistant", "user"]
    assert messages[-2]["content"] == "Paris."


def test_a_conversation_goes_on_with_its_own_replies_and_ends_where_none_came():
    sampler = Challenge(trials=3, **DOUBT)
    first = [replied(FRANCE, "Paris")]
    opened = asked(sampler, first)
    outcomes = ("ok", "error", "invalid")
    before = [
        replied(FRANCE, text, request.variant, form=request.form, outcome=outcome)
        for request, text, outcome in zip(opened, ("Lyon", "", "<think>without end"), outcomes, strict=True)
    ]
    requests = asked(sampler, first, before)
    assert [each.variant for each in requests] == [4002, 24002]
    for request, begun, reply in zip(requests, (opened[0], opened[2]), ("Lyon", "(no answer)"), strict=True):
        challenge = read_pushback(request.form)
        assert challenge is not None
        assert request.prompt == begun.prompt.continued(reply, challenge.words)
    filtered = [replied(FRANCE, "", outcome="filtered_reply"), replied(METALS, "B")]
    assert {each.question_id for each in asked(sampler, filtered, questions=[FRANCE, METALS])} == {"metals"}


def test_a_choice_is_denied_with_its_letter():
    first = [replied(METALS, "B", answer="B")]
    for pushbacks, said in (
        (["denial", "alternative"], ("B) mercury", "A) iron", "C) tin")),
        (["denial"], ["B) merc"]),
    ):
        (request,) = asked(Challenge(trials=1, pushbacks=pushbacks), first, questions=[METALS])
        assert any(words in request.prompt.question for words in said)


def test_what_may_be_asked_is_planned_before_any_answer_is_there():
    sampler = Challenge(turns=3, trials=2, temperatures=[1.0, 0.5])
    planned = sampler.requests([FRANCE, METALS], Matching(), 3)
    assert len(planned) == 2 * 3 * 2
    assert len({each.item for each in planned}) == len(planned)
    assert [turn_of(each) for each in planned[:3]] == [1, 2, 3]
    assert {each.temperatures for each in planned} == {(0.5, 1.0)}
    assert len(planned[2].prompt.exemplars) == len(prompt_for(FRANCE).exemplars) + 3
    assert (sampler.repetitions, sampler.axis, sampler.selects_by_baseline) == (6, "turn", True)


def test_rows_have_the_turn_for_a_rewrite_and_the_conversation_for_a_trial():
    rows = turns_of(answer_table([replied(FRANCE, "a", number) for number in (4001, 34005)]), 4).to_pylist()
    assert [(row["rewrite"], row["trial"], row["weight"]) for row in rows] == [(4001, 0, 0.25), (4005, 3, 0.25)]


def test_questions_without_a_reply_are_not_doubted():
    rows = [
        replied(question, "x", exact=right, correct=right, outcome=outcome)
        for question, right, outcome in ((FRANCE, True, "ok"), (METALS, False, "error"))
    ]
    both, table = [FRANCE, METALS], answer_table(rows)
    assert Challenge().select(both, table, 0) == [FRANCE]
    assert Challenge(selection="contains").select(both, table, 0) == [FRANCE]
    with pytest.raises(NothingKeptError, match="none of the questions was answered: there is nothing to challenge"):
        Challenge().select([METALS], table.slice(1), 0)


def test_a_kind_that_the_file_has_not_is_refused_with_those_that_it_has(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"builtin:challenge\.yaml has no threat; it has doubt, alternative, authority, d"
    ):
        Challenge(pushbacks=["threat"]).requests([FRANCE], Matching(), 0)
    mine = tmp_path / "mine.yaml"
    mine.write_text("challenges: {threat: ['Last chance: not {answer}?']}")
    (request, *_) = Challenge(pushbacks=["threat"], challenges=str(mine)).requests([FRANCE], Matching(), 0)
    assert request.form == "turn 1, threat: Last chance: not Paris?"
    with pytest.raises(UserError, match=r"few_shot\.yaml has no doubt; it has none: challenges is missing"):
        Challenge(challenges="builtin:few_shot.yaml").requests([FRANCE], Matching(), 0)

from dataclasses import replace
from pathlib import Path

import pytest
from json_lines import json_lines

from robust_eval.error import UserError
from robust_eval.prompt.arrangement import Arrangement
from robust_eval.prompt.prompt import Prompt, prompt_for, refuse_exemplars, rewriting_prompt
from robust_eval.question import Question

SYSTEM = "Answer with the answer alone, as briefly as possible."

ABSTRACTIVE = Question(
    "q1",
    "What is the capital of France?",
    answers=("Paris",),
    rewrites=("Which city is the French capital?", "France is governed from which city?"),
)
EXTRACTIVE = Question(
    "q2",
    "Who rebuilt the wheel?",
    answers=("Odile",),
    context="The mill stood idle.\nOdile rebuilt its wheel.",
    rewrites=("Name the one who rebuilt the wheel.", "By whom was the wheel rebuilt?"),
)
MULTIPLE_CHOICE = Question(
    "q3",
    "What is the unit of force?",
    choices=("newton", "joule", "watt", "pascal"),
    correct=0,
    rewrites=("In which unit is force measured?",),
)

PROMPTS = json_lines(Path(__file__).with_suffix(".jsonl"))
"""The prompt of each scenario (docs/methods.md, §2); two exemplars for closed-book questions (§1), three for choices"""


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case["scenario"])
def test_a_question_as_chat_messages_with_and_without_a_system_role_and_as_plain_text(case):
    scenarios = {"abstractive": ABSTRACTIVE, "extractive": EXTRACTIVE, "multiple_choice": MULTIPLE_CHOICE}
    prompt = prompt_for(scenarios[case["scenario"]])
    turns = [{"role": role, "content": content} for role, content in case["turns"]]
    assert prompt.messages() == [{"role": "system", "content": SYSTEM}, *turns]
    turns[0] = {"role": "user", "content": f"{SYSTEM}\n\n{turns[0]['content']}"}
    assert prompt.messages(system_role=False) == turns
    assert prompt.text() == case["text"]


@pytest.mark.parametrize(
    ("number", "letters", "shown"),
    [
        (2, "BBA", "A) mass\nB) temperature\n"),
        (3, "BCA", "A) mass\nB) voltage\nC) temperature\n"),
        (4, "BDA", "A) mass\nB) voltage\nC) speed\nD) temperature\n"),
        (5, "BDA", "A) mass\nB) voltage\nC) speed\nD) temperature\nE) distance\n"),
        (6, "BDA", "A) mass\nB) voltage\nC) speed\nD) temperature\nE) distance\n"),
    ],
)
def test_exemplars_have_no_more_choices_than_the_question(number: int, letters: str, shown: str):
    question = Question("q", "Which?", choices=tuple("uvwxyz"[:number]), correct=0)
    exemplars = prompt_for(question).exemplars
    assert [answer for _, answer in exemplars] == list(letters)
    assert exemplars[1][0] == f"Question: What does a thermometer measure?\n{shown}Answer:"
    in_numbers = prompt_for(question, arrangement=Arrangement(tuple(range(number)), "numbers")).exemplars
    assert [answer for _, answer in in_numbers] == [str("ABCDE".index(letter) + 1) for letter in letters]


@pytest.mark.parametrize(
    ("question", "rewrite", "expected"),
    [
        (ABSTRACTIVE, 2, "Question: France is governed from which city?\nAnswer:"),
        (EXTRACTIVE, 1, f"Context: {EXTRACTIVE.context}\nQuestion: Name the one who rebuilt the wheel.\nAnswer:"),
        (
            MULTIPLE_CHOICE,
            1,
            "Question: In which unit is force measured?\nA) newton\nB) joule\nC) watt\nD) pascal\nAnswer:",
        ),
    ],
)
def test_a_rewrite_takes_the_place_of_the_question_and_of_nothing_else(question, rewrite, expected):
    original = prompt_for(question)
    assert prompt_for(question, rewrite) == Prompt(original.system, original.exemplars, expected)


def test_braces_in_a_question_are_text():
    question = Question("q", "What is {context} in {0}?", context="A {question} of {choices} and {{braces}}.")
    assert prompt_for(question).question == (
        "Context: A {question} of {choices} and {{braces}}.\nQuestion: What is {context} in {0}?\nAnswer:"
    )


def test_ten_choices_are_lettered_to_j():
    question = Question("q", "Which?", choices=tuple("0123456789"), correct=0)
    assert prompt_for(question).question == (
        "Question: Which?\nA) 0\nB) 1\nC) 2\nD) 3\nE) 4\nF) 5\nG) 6\nH) 7\nI) 8\nJ) 9\nAnswer:"
    )


def test_a_prompt_without_exemplars_is_the_question_alone():
    prompt = Prompt("Be brief.", (), "Question: Who?\nAnswer:")
    assert prompt.text() == "Question: Who?\nAnswer:"
    assert prompt.messages() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Question: Who?\nAnswer:"},
    ]
    assert prompt.messages(system_role=False) == [
        {"role": "user", "content": "Be brief.\n\nQuestion: Who?\nAnswer:"},
    ]


REMEDY = (
    "use another question, or set sampler.prompts to another file of exemplars, or to builtin:zero_shot.yaml, which "
    "has none"
)


@pytest.mark.parametrize(
    ("wording", "more"),
    [
        ("Who wrote the play Hamlet?", {}),
        (" who wrote the play hamlet? ", {}),
        ("Who wrote the play  'HAMLET'", {}),
        ("who wrote\nthe play Hamlet ?!", {}),
        ("Who drew the maps of the marsh?", {"context": "Karl drew."}),
        ("What does a thermometer measure?", {"choices": ("mass", "temperature"), "correct": 1}),
    ],
)
def test_an_exemplar_is_refused_by_its_normal_form_as_a_question_and_as_a_rewrite(wording: str, more: dict):
    asked = Question("x", wording, **more)
    for question in (asked, replace(asked, text="Is it so?", rewrites=("Whose is it?", wording))):
        with pytest.raises(UserError) as caught:
            refuse_exemplars([ABSTRACTIVE, question])
        assert str(caught.value) == f"the question {wording!r} is an exemplar of the prompt; {REMEDY}"


def test_the_remedy_for_an_exemplar_works():
    question = Question("x", "Who wrote the play Hamlet?", ("Shakespeare",))
    refuse_exemplars([question], "builtin:zero_shot.yaml")
    with pytest.raises(UserError) as caught:
        refuse_exemplars([Question("x", "What do bees collect from flowers?")], kind="rewriting")
    assert str(caught.value).endswith(REMEDY.replace("sampler.prompts", "rewriter.prompts"))
    refuse_exemplars([question], "builtin:zero_shot.yaml", kind="rewriting")


def test_a_question_on_the_passage_of_an_exemplar_is_refused():
    passage = " Anna Berg led the survey of the marsh,\nand her brother Karl drew the maps. "
    question = Question("x", "Who led the survey?", ("Anna Berg",), context=passage)
    with pytest.raises(UserError, match=r"the question 'Who led the survey\?' has the context of an"):
        refuse_exemplars([question])


def test_the_exemplar_of_another_scenario_is_a_question_like_any_other():
    assert refuse_exemplars([Question("x", "What does a thermometer measure?", ("temperature",))]) is None


def test_a_question_of_which_only_the_key_is_known_cannot_be_asked():
    question = Question("0_1", "", choices=tuple("ABCDE"), correct=3)
    for prompt in (lambda: prompt_for(question), lambda: rewriting_prompt(question, 5, "builtin:few_shot.yaml")):
        with pytest.raises(UserError, match="question 0_1 has accepted answers but no text, which a model needs"):
            prompt()


def test_the_prompt_of_the_physics_study_has_its_choices_in_one_line():
    prompt = prompt_for(MULTIPLE_CHOICE, 0, "builtin:physics.yaml")
    assert prompt.question == "What is the unit of force? A. newton, B. joule, C. watt, D. pascal\nAnswer:"
    assert (
        prompt.system
        == "You answer multiple-choice questions on physics. Reply with the letter of the right choice alone."
    )
    assert [answer for _, answer in prompt.exemplars] == ["B", "D", "A"]
    assert prompt.exemplars[0][0] == (
        "Which of these is a unit of length? A. second, B. metre, C. kelvin, D. newton\nAnswer:"
    )
    with pytest.raises(
        UserError, match=r"^sampler\.prompts=builtin:physics\.yaml has no template for abstractive: add one, or"
    ):
        prompt_for(ABSTRACTIVE, 0, "builtin:physics.yaml")

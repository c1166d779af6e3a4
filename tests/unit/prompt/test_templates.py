from pathlib import Path

import pytest
from golden import Golden

from robust_eval.error import UserError
from robust_eval.prompt.prompt import Prompt, prompt_for, refuse_exemplars, rewriting_prompt
from robust_eval.prompt.templates import FEW_SHOT, REWRITING, read_templates
from robust_eval.question import Question, Scenario

ZERO_SHOT = "builtin:zero_shot.yaml"
OPEN = Question("q1", "Who wrote Emma?", rewrites=("By whom is Emma?",))
ON_CONTEXT = Question("q2", "Who rebuilt the wheel?", context="Odile rebuilt it.", rewrites=("By whom?",))
WITH_CHOICES = Question("q3", "Which is a force?", choices=("5 N", "5 J"), correct=0, rewrites=("Find the force.",))
REFUSED = Golden(Path(__file__).with_suffix(".jsonl"))
FILES = "choose builtin:few_shot.yaml, builtin:physics.yaml, builtin:zero_shot.yaml or your own file"
ASKS_FOR_FIVE = "Rewrite the question in 5 radically different ways.\nQuestion: Who wrote Emma?"
BEES = "Rewrite the question in 5 radically different ways.\nQuestion: What do bees collect from flowers?"
OF_BEES = (
    "1. Name the thing that bees gather when they visit flowers.\n"
    "2. Flowers give something to the bees that come to them. What is it?\n"
    "3. When a bee flies from flower to flower, what is it after?\n"
    "4. What is collected from flowers by bees?\n"
    "5. Bees take what from the flowers that they visit?"
)
GULLIVER = "Rewrite the question in 5 radically different ways.\nQuestion: Who wrote Gulliver's Travels?"
OF_GULLIVER = (
    "1. By whom was Gulliver's Travels written?\n"
    "2. Name the author of Gulliver's Travels.\n"
    "3. Gulliver's Travels is the work of which writer?\n"
    "4. Whose book is Gulliver's Travels?\n"
    "5. Which writer invented the travels of Gulliver?"
)
MINE = """\
system: Be terse.
abstractive:
  template: "{{Q}} {question} A:"
  exemplars:
    - {question: "One and one?", answer: 2}
    - {question: "{context}?", answer: "{braces}"}
extractive:
  template: "{question} See: {context} Again: {question}"
multiple_choice:
  template: "{choices}\\n{question}"
  exemplars:
    - {question: "Which?", choices: [yes it is, 3], answer: A}
rewriting:
  template: "{rewrites} times: {question}"
  exemplars:
    - {question: "Who?", rewrites: [Name them., "Whom?"]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def refusal(path: object) -> str:
    with pytest.raises(UserError) as caught:
        read_templates(str(path))
    return str(caught.value)


@pytest.mark.parametrize("path", [FEW_SHOT, ZERO_SHOT])
def test_the_files_of_the_package_hold_every_template(path: str):
    assert set(read_templates(path).templates) == {*map(str, Scenario), REWRITING}


def test_zero_shot_prompts_are_the_papers():
    # docs/methods.md, §2: "Answer Generator"
    asked = {
        (OPEN, 0): "Question: Who wrote Emma?\nShort Answer:",
        (OPEN, 1): "Question: By whom is Emma?\nShort Answer:",
        (ON_CONTEXT, 0): "Context: Odile rebuilt it.\nQuestion: Who rebuilt the wheel?\nAnswer:",
        (ON_CONTEXT, 1): "Context: Odile rebuilt it.\nQuestion: By whom?\nAnswer:",
        (WITH_CHOICES, 0): "Question: Which is a force?\nA) 5 N\nB) 5 J\nAnswer:",
        (WITH_CHOICES, 1): "Question: Find the force.\nA) 5 N\nB) 5 J\nAnswer:",
    }
    for (question, rewrite), text in asked.items():
        prompt = prompt_for(question, rewrite, ZERO_SHOT)
        assert prompt == Prompt("", (), text)
        assert prompt.messages() == [{"role": "user", "content": text}]
        assert prompt.text() == text


def test_rewrites_are_asked_for_without_exemplars():
    prompt = rewriting_prompt(OPEN, 5, ZERO_SHOT)
    assert prompt.text() == ASKS_FOR_FIVE
    assert prompt.messages() == [{"role": "user", "content": ASKS_FOR_FIVE}]


def test_rewrites_are_asked_for_with_exemplars_whose_lists_are_numbered_and_without_a_system_line():
    prompt = rewriting_prompt(OPEN, 3, FEW_SHOT)
    asked = ASKS_FOR_FIVE.replace("5", "3")
    assert prompt.text() == f"{BEES} {OF_BEES}\n\n{GULLIVER} {OF_GULLIVER}\n\n{asked}"
    assert prompt.messages() == [
        {"role": "user", "content": BEES},
        {"role": "assistant", "content": OF_BEES},
        {"role": "user", "content": GULLIVER},
        {"role": "assistant", "content": OF_GULLIVER},
        {"role": "user", "content": asked},
    ]


def test_rewrites_are_asked_for_of_the_question_alone():
    for question in (ON_CONTEXT, WITH_CHOICES):
        assert rewriting_prompt(question, 5, ZERO_SHOT).question.splitlines()[1:] == [f"Question: {question.text}"]


def test_a_file_of_ones_own_is_used_for_questions_and_for_rewriting(file: Path):
    file.write_bytes(b"\xef\xbb\xbf" + MINE.encode())
    path = str(file)
    exemplars = (("{Q} One and one? A:", "2"), ("{Q} {context}? A:", "{braces}"))
    assert prompt_for(OPEN, 0, path) == Prompt("Be terse.", exemplars, "{Q} Who wrote Emma? A:")
    assert prompt_for(OPEN, 1, path) == Prompt("Be terse.", exemplars, "{Q} By whom is Emma? A:")
    shown = "Who rebuilt the wheel? See: Odile rebuilt it. Again: Who rebuilt the wheel?"
    assert prompt_for(ON_CONTEXT, 0, path) == Prompt("Be terse.", (), shown)
    assert prompt_for(WITH_CHOICES, 0, path) == Prompt(
        "Be terse.", (("A) yes it is\nB) 3\nWhich?", "A"),), "A) 5 N\nB) 5 J\nWhich is a force?"
    )
    assert rewriting_prompt(OPEN, 4, path) == Prompt(
        "", (("2 times: Who?", "1. Name them.\n2. Whom?"),), "4 times: Who wrote Emma?"
    )


def test_an_exemplar_of_a_file_of_ones_own_is_refused_as_a_question(file: Path):
    file.write_text(MINE, encoding="utf-8")
    refuse_exemplars([OPEN], str(file))
    with pytest.raises(UserError, match=r"the question 'one and ONE\?' is an exemplar of the prompt;"):
        refuse_exemplars([OPEN, Question("sum", "one and ONE?")], str(file))


def test_a_missing_scenario_is_refused_where_it_is_needed_and_only_there(file: Path):
    file.write_text('extractive:\n  template: "{context} {question}"\n', encoding="utf-8")
    path = str(file)
    refuse_exemplars([ON_CONTEXT], path)
    assert prompt_for(ON_CONTEXT, 0, path) == Prompt("", (), "Odile rebuilt it. Who rebuilt the wheel?")
    for kind, ask in {
        "abstractive": lambda: prompt_for(OPEN, 0, path),
        "multiple_choice": lambda: refuse_exemplars([ON_CONTEXT, WITH_CHOICES], path),
        "rewriting": lambda: rewriting_prompt(ON_CONTEXT, 5, path),
    }.items():
        with pytest.raises(UserError) as caught:
            ask()
        setting = "rewriter.prompts" if kind == "rewriting" else "sampler.prompts"
        assert str(caught.value) == f"{setting}={path} has no template for {kind}: add one, or choose another file"


def test_a_file_that_cannot_be_read_is_named_with_those_there_are(tmp_path: Path):
    gone = tmp_path / "gone.yaml"
    assert refusal(gone) == (f"sampler.prompts={gone} cannot be read: No such file or directory; {FILES}")
    assert refusal(tmp_path) == f"sampler.prompts={tmp_path} cannot be read: Is a directory; {FILES}"
    start = "sampler.prompts=builtin:one_shot.yaml cannot be read: No such file or directory; choose "
    assert refusal("builtin:one_shot.yaml").startswith(start)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("system: é".encode("latin-1"))
    assert refusal(latin).startswith(f"sampler.prompts={latin} cannot be read: 'utf-8' codec can't decode byte 0xe9")


@pytest.mark.parametrize("case", REFUSED.cases, ids=lambda case: case["content"][:60])
def test_a_file_that_would_fail_or_mislead_is_refused_in_one_sentence(file: Path, case: dict[str, str]):
    file.write_text(case["content"], encoding="utf-8")
    REFUSED.check(case, message=refusal(file).replace(str(file), "FILE"))

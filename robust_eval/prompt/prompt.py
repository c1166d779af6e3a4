"""One prompt: a system line, exemplars, and the question, independent of how a model wants it written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question

TEMPLATES = Path(__file__).with_name("templates.yaml")


@dataclass(frozen=True)
class Prompt:
    """What a model is shown. ``exemplars`` are (question as asked, answer) pairs; all of it ends in "Answer:"."""

    system: str
    exemplars: tuple[tuple[str, str], ...]
    question: str

    def text(self) -> str:
        """As plain text, for continuation: exemplars, then the question, parted by empty lines; no system line."""
        shown = [f"{question} {answer}" for question, answer in self.exemplars]
        return "\n\n".join([*shown, self.question])

    def messages(self, system_role: bool = True) -> list[dict[str, str]]:
        """As chat messages; without a system role the system line opens the first message of the user."""
        turns = [part for question, answer in self.exemplars for part in (("user", question), ("assistant", answer))]
        turns.append(("user", self.question))
        if system_role:
            turns.insert(0, ("system", self.system))
        else:
            turns[0] = ("user", f"{self.system}\n\n{turns[0][1]}")
        return [{"role": role, "content": content} for role, content in turns]


def prompt_for(question: Question, rewrite: int = 0) -> Prompt:
    """The prompt of a question, or of its rewrite number 1, 2, …; context and choices are never rewritten."""
    templates = _templates()
    scenario = templates[question.scenario]
    text = question.rewrites[rewrite - 1] if rewrite else question.text
    exemplars = tuple(
        (_filled(scenario["template"], exemplar), str(exemplar["answer"])) for exemplar in scenario["exemplars"]
    )
    shown = {"question": text, "context": question.context, "choices": question.choices}
    return Prompt(str(templates["system"]), exemplars, _filled(scenario["template"], shown))


def refuse_exemplars(questions: Sequence[Question]) -> None:
    """UserError where a question is an exemplar of its own prompt: the answer would stand above it."""
    for question in questions:
        exemplars = {str(exemplar["question"]).casefold() for exemplar in _templates()[question.scenario]["exemplars"]}
        if question.text.strip().casefold() in exemplars:
            raise UserError(
                f"question {question.id}, {question.text!r}, is an exemplar of the prompt; remove it from the questions"
            )


def _filled(template: str, shown: Mapping[str, Any]) -> str:
    return template.format(
        question=shown["question"], context=shown.get("context", ""), choices=_lettered(shown.get("choices", ()))
    )


def _lettered(choices: Sequence[str]) -> str:
    return "\n".join(f"{LETTERS[index]}) {choice}" for index, choice in enumerate(choices))


@cache
def _templates() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(TEMPLATES.read_text(encoding="utf-8"))
    return loaded

"""Prompt: a system line, exemplars and the question, independent of the model's format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from robust_eval.error import UserError
from robust_eval.normalization import normalised_form
from robust_eval.prompt.arrangement import FORMS, GIVEN, LINES, OPTIONS, Arrangement, Form
from robust_eval.prompt.templates import FEW_SHOT, REWRITING, SUPPORT, ZERO_SHOT, Templates, read_templates
from robust_eval.question import LETTERS, Question


@dataclass(frozen=True)
class Prompt:
    """Prompt of a model. ``exemplars`` are (formatted question, answer) pairs; ``system`` may be empty."""

    system: str
    exemplars: tuple[tuple[str, str], ...]
    question: str

    def text(self) -> str:
        """Return the prompt as plain text: exemplars, then the question, between empty lines; no system line."""
        exemplars = [f"{question} {answer}" for question, answer in self.exemplars]
        return "\n\n".join([*exemplars, self.question])

    def continued(self, reply: str, words: str) -> "Prompt":
        """Return the prompt of the continued conversation: the reply to this one, and the user's next words.

        >>> Prompt("", (), "Capital of France?").continued("Paris", "Are you sure?").exemplars
        (('Capital of France?', 'Paris'),)
        """
        return replace(self, exemplars=(*self.exemplars, (self.question, reply)), question=words)

    def messages(self, system_role: bool = True) -> list[dict[str, str]]:
        """Return the prompt as chat messages; without a system role the system line opens the user's first one."""
        turns = [part for question, answer in self.exemplars for part in (("user", question), ("assistant", answer))]
        turns.append(("user", self.question))
        if self.system and system_role:
            turns.insert(0, ("system", self.system))
        elif self.system:
            turns[0] = ("user", f"{self.system}\n\n{turns[0][1]}")
        return [{"role": role, "content": content} for role, content in turns]


def prompt_for(
    question: Question, rewrite: int = 0, prompts: str = FEW_SHOT, arrangement: Arrangement | None = None
) -> Prompt:
    """Return the prompt of a question, or of its rewrite number 1, 2, …; context and choices are never rewritten.

    ``prompts`` names a file of templates (:func:`robust_eval.prompt.templates.read_templates`). Exemplars have no more
    choices than the question. An ``arrangement`` sets the order and form of the choices, and the form of the exemplars.
    """
    templates = read_templates(prompts)
    scenario = templates.of(question.scenario)
    text = question.rewrites[rewrite - 1] if rewrite else _text(question)
    form = None if arrangement is None or arrangement.form == GIVEN else FORMS[arrangement.form]
    exemplars = _shown_exemplars(prompts, question.scenario, form, len(question.choices))
    choices = question.choices if arrangement is None else arrangement.of(question).choices
    fields = {"question": text, "context": question.context, "choices": choices, "options": choices}
    return Prompt(templates.system, exemplars, _filled(scenario.template, fields, form))


@cache
def _shown_exemplars(prompts: str, scenario: str, form: Form | None, choices: int) -> tuple[tuple[str, str], ...]:
    """Return the exemplars that prompts of a scenario show, one object for all prompts."""
    template = read_templates(prompts).of(scenario)
    return tuple(
        (_filled(template.template, exemplar, form), _signed(str(exemplar["answer"]), form))
        for exemplar in (_with_choices(each, choices) for each in template.exemplars)
    )


def rewriting_prompt(question: Question, rewrites: int, prompts: str) -> Prompt:
    """Return the prompt for rewrites of the text of a question, without its context and choices."""
    templates = read_templates(prompts, "rewriter.prompts")
    template = templates.of(REWRITING)
    exemplars = []
    for exemplar in template.exemplars:
        lines = [f"{number}. {text}" for number, text in enumerate(exemplar["rewrites"], start=1)]
        request = template.template.format(question=exemplar["question"], rewrites=len(lines))
        exemplars.append((request, "\n".join(lines)))
    return Prompt("", tuple(exemplars), template.template.format(question=_text(question), rewrites=rewrites))


def verdict_prompt(
    question: Question,
    references: Sequence[str],
    reply: str,
    prompts: str,
    form: str,
    rubric: str = "",
    swap: bool = False,
) -> Prompt:
    """Return the prompt for a judge's verdict on a reply, by the template of a ``form``.

    All texts are filled in as JSON strings: none can close its quotation marks or begin a line, so that instructions in
    a reply remain a quotation. ``swap`` exchanges the lines of the reply and of the references (or the context).
    """
    templates = read_templates(prompts, "grader.prompts")
    template = templates.of(form).template
    if swap:
        lines = template.split("\n")
        names = "{context}" if form == SUPPORT else "{references}", "{reply}"
        first, second = (next(index for index, line in enumerate(lines) if name in line) for name in names)
        lines[first], lines[second] = lines[second], lines[first]
        template = "\n".join(lines)
    fields = {
        "question": _quoted(question.title),
        "references": "; ".join(map(_quoted, references)),
        "context": _quoted(question.context),
        "rubric": _quoted(rubric),
        "reply": _quoted(reply),
    }
    return Prompt(templates.system, (), template.format(**fields))


def _quoted(text: str) -> str:
    """Return a text as a JSON string in one line, with escapes for all characters that end a line in other programs."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\u{ord(sign):04x}" if sign in "\x7f\x85\u2028\u2029" else sign for sign in quoted)


def _text(question: Question) -> str:
    """Return the text of a question for its prompt; UserError if it has a key alone."""
    if not question.text:
        raise UserError(
            f"question {question.id} has accepted answers but no text, which a model needs: set sampler=recorded "
            "sampler.file=… to grade recorded answers to it"
        )
    return question.text


def refuse_exemplars(questions: Sequence[Question], prompts: str = FEW_SHOT, kind: str | None = None) -> None:
    """Raise UserError if a question, a rewrite or a context equals that of a prompt's exemplar, in normalised form.

    ``kind`` names the template, if it is not that of the question's scenario.
    """
    setting = "rewriter.prompts" if kind == REWRITING else "sampler.prompts"
    templates = read_templates(prompts, setting)
    template_names = dict.fromkeys(kind or question.scenario for question in questions)
    exemplars_of = {template_name: _exemplars(templates, template_name) for template_name in template_names}
    remedy = f"use another question, or set {setting} to another file of exemplars, or to {ZERO_SHOT}, which has none"
    for question in questions:
        texts, contexts = exemplars_of[kind or question.scenario]
        for wording in (question.text, *question.rewrites):
            if normalised_form(wording) in texts:
                raise UserError(f"the question {wording!r} is an exemplar of the prompt; {remedy}")
        if question.context and contexts and normalised_form(question.context) in contexts:
            raise UserError(f"the question {question.text!r} has the context of an exemplar of the prompt; {remedy}")


def _exemplars(templates: Templates, kind: str) -> tuple[set[str], set[str]]:
    """Return normalised forms of the questions and of the contexts of the prompt's exemplars."""
    exemplars = templates.of(kind).exemplars
    questions = {normalised_form(str(exemplar["question"])) for exemplar in exemplars}
    return questions, {normalised_form(str(exemplar["context"])) for exemplar in exemplars if "context" in exemplar}


def _filled(template: str, fields: Mapping[str, Any], form: Form | None = None) -> str:
    return template.format(
        question=fields["question"],
        context=fields.get("context", ""),
        choices=(form or LINES).shown(fields.get("choices", ())),
        options=(form or OPTIONS).shown(fields.get("options", ())),
    )


def _with_choices(exemplar: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Return an exemplar with at most ``number`` choices: the right one and the first others, with new letters.

    >>> _with_choices({"question": "A unit of time?", "choices": ["metre", "newton", "hour"], "answer": "C"}, 2)
    {'question': 'A unit of time?', 'choices': ['metre', 'hour'], 'answer': 'B'}
    """
    name = next((name for name in ("choices", "options") if name in exemplar), "")
    answer, choices = str(exemplar["answer"]), exemplar.get(name, ())
    right = LETTERS.find(answer[:1]) if answer and not answer[1:2].isalnum() else -1
    if not 0 <= right < len(choices) or not 0 < number < len(choices):
        return exemplar
    wrong = [index for index in range(len(choices)) if index != right]
    kept = sorted([right, *wrong[: number - 1]])
    return {**exemplar, name: [choices[index] for index in kept], "answer": LETTERS[kept.index(right)] + answer[1:]}


def _signed(answer: str, form: Form | None) -> str:
    """Return the answer of a prompt's exemplar with the form's sign in place of its letter."""
    if form is None or answer[:1] not in LETTERS or answer[1:2].isalnum():
        return answer
    return form.signs()[LETTERS.index(answer[0])] + answer[1:]

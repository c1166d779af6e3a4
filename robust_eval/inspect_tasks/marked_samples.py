"""Questions as samples of inspect_ai: one for each question and condition, with the mark that says which it is."""

from collections.abc import Sequence
from typing import Any

from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

from robust_eval.answer import EarlyStopping, SamplingMetadata, temperature_name
from robust_eval.config.questions import named_questions
from robust_eval.error import UserError
from robust_eval.harness.logged import question_of, texts
from robust_eval.harness.own_mark import MARK, mark_of
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import LETTERS, Question

Data = str | Sequence[Sample]
"""A data set: the name of one of ours or the path of a file (``dataset=…``), or samples of inspect_ai."""
PLANNED = "temperatures"
"""The key of a mark that lists the temperatures above 0 at which its question is asked."""
SWEEP = "temperature_sweep"
"""The sampler of a run of ours that asks as such a task does."""
_MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


def marked_samples(
    data: Data, limit: int | None, conditions: Sequence[tuple[int, float]], prompts: str, settles: float | None = None
) -> MemoryDataset:
    """Return a sample for each condition and question; all of one condition, then those of the next.

    ``conditions`` are pairs of the number of a wording (0: the question itself) and a temperature; where there are
    several wordings, questions without another are left out. Samples that are given are asked as they are. ``settles``
    is the share below which a fact breaks, where trials end as soon as that is settled: the log says so, and whoever
    reads it knows that its accuracies are biased. UserError for data that cannot be read, or where no question is left.
    """
    name, known = _loaded(data, limit)
    planned = sorted({t for _, t in conditions if t > 0})
    if max(rewrite for rewrite, _ in conditions):
        known = [(question, given) for question, given in known if question.rewrites]
    if not known:
        raise UserError(f"no question of {name} can be asked" + (": none has rewrites" if len(planned) == 1 else ""))
    settled = None if settles is None else SamplingMetadata(False, {SWEEP: EarlyStopping(tuple(planned), settles)})
    samples = []
    for rewrite, t in conditions:
        for question, given in known:
            if rewrite > len(question.rewrites):
                continue
            mark = mark_of(question, rewrite, t, SWEEP if settled and t else None, settled) | {PLANNED: planned}
            samples.append(
                Sample(
                    id=_name(question, rewrite, t, len(conditions)),
                    input=_input(question, rewrite, prompts, given),
                    target=_target(question) if given is None else given.target,
                    choices=list(question.choices) or None,
                    metadata={**((given and given.metadata) or {}), MARK: mark},
                )
            )
    if len({sample.id for sample in samples}) < len(samples):
        raise UserError("two samples would have the same id: give the questions other ids")
    return MemoryDataset(samples, name=name)


def _loaded(data: Data, limit: int | None) -> tuple[str, list[tuple[Question, Sample | None]]]:
    """Return the name of the data, and the questions, each with the sample that it was made of."""
    if isinstance(data, str):
        name, questions = named_questions(data, limit)
        return name, [(question, None) for question in questions]
    found: list[tuple[Question, Sample | None]] = []
    for number, sample in enumerate(data[:limit], start=1):
        named = str(number if sample.id is None else sample.id)
        asked = sample.input if isinstance(sample.input, str) else sample.input[-1].text
        said = sample.metadata or {}
        others = {"group": str(said.get("group", "")), "rewrites": tuple(texts(said.get("rewrites")))}
        question = question_of(named, asked, texts(sample.target), sample.choices or (), f"sample {named}", **others)
        found.append((question, sample))
    return "samples", found


def _name(question: Question, rewrite: int, t: float, conditions: int) -> str:
    """Return the id of a sample; the question's own where there is one condition, or the answer is greedy."""
    if conditions == 1 or (t == 0 and not rewrite):
        return question.id
    return f"{question.id} {f'rewrite {rewrite}' if rewrite else f't={temperature_name(t)}'}"


def _input(question: Question, rewrite: int, prompts: str, given: Sample | None) -> str | list[ChatMessage]:
    if given is not None:
        return question.rewrites[rewrite - 1] if rewrite else given.input
    found: list[ChatMessage] = []
    for message in prompt_for(question, rewrite, prompts).messages():
        made: Any = _MESSAGES[message["role"]]
        found.append(made(content=message["content"]))
    return found


def _target(question: Question) -> str | list[str]:
    if question.choices:
        return "" if question.correct is None else LETTERS[question.correct]
    return list(question.answers)

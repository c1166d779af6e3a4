"""Tasks for ``inspect eval``: FRS, answer certainty and MultiQ&A on any provider that inspect_ai has."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalSpec
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import SampleScore, Scorer, value_to_float
from inspect_ai.util import EarlyStop, EarlyStopping
from pydantic import JsonValue

from robust_eval.answer import DEFAULT_TEMPERATURE, SamplingMetadata, temperature_name
from robust_eval.answer import EarlyStopping as SettledBreaks
from robust_eval.config.overrides import named_questions
from robust_eval.error import UserError
from robust_eval.interop import inspect_metrics
from robust_eval.interop.inspect_scoring import PLANNED, asked, graded, mark_in, temperature_in
from robust_eval.interop.logged_answer import question_of, texts
from robust_eval.interop.own_mark import MARK, mark_of
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import LETTERS, Question
from robust_eval.sampler.known_facts import GRID
from robust_eval.stats.frs import settled

Data = str | Sequence[Sample]
"""A data set: the name of one of ours or the path of a file (``dataset=…``), or samples of inspect_ai."""
SWEEP = "temperature_sweep"
"""The sampler of a run of ours that asks as such a task does."""
_MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task
def frs(
    dataset: Data = "facts",
    limit: int | None = None,
    temperatures: Sequence[float] | float = GRID,
    trials: int = 10,
    d: float = 1.0,
    k: int = 10,
    threshold: float = 0.5,
    settle: bool = False,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the task of the Factual Robustness Score: a greedy answer to each question, and trials over a grid.

    Parameters
    ----------
    dataset
        One of ours by its name, the path of a file, or samples of inspect_ai, which are asked as they are.
    limit
        Maximum number of questions.
    temperatures, trials
        The grid, all above 0, and the answers at each temperature.
    d, k, threshold
        Weight of the entropy, tokens that enter it, and the accuracy below which a fact breaks.
    settle
        True for early stopping once breaking temperatures are settled (:class:`SettledEarly`).
    prompts
        Templates for questions of ours.
    scorer
        Scorer of the replies; the default is our grader.
    """
    levels = _levels(temperatures)
    if len(levels) < 2 or min(levels) <= 0:
        raise UserError(f"temperatures must be two or more, all above 0, not {temperatures}")
    return Task(
        dataset=marked_samples(
            dataset, limit, [(0, 0.0), *((0, t) for t in levels)], prompts, threshold if settle else None
        ),
        solver=asked(top_logprobs=k),
        scorer=graded(scorer),
        metrics=[
            inspect_metrics.frs(d, k, threshold),
            inspect_metrics.breaking_temperature(threshold),
            inspect_metrics.firmness(threshold),
        ],
        epochs=Epochs(trials),
        early_stopping=SettledEarly(threshold, settle),
    )


@task
def certainty(
    dataset: Data = "facts",
    limit: int | None = None,
    temperature: float | None = None,
    trials: int = 20,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the task of answer certainty: each question repeatedly, at one temperature or the model's own.

    The other parameters are those of :func:`frs`.
    """
    at = DEFAULT_TEMPERATURE if temperature is None else float(temperature)
    if at <= 0:
        raise UserError(f"temperature must be above 0, not {temperature}")
    return Task(
        dataset=marked_samples(dataset, limit, [(0, at)], prompts),
        solver=asked(),
        scorer=graded(scorer),
        metrics=[inspect_metrics.answer_entropy()],
        epochs=Epochs(trials),
    )


@task
def multiqa(
    dataset: Data = "facts",
    limit: int | None = None,
    rewrites: int = 5,
    temperature: float = 1.0,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the task of MultiQ&A: each question and its rewrites, of which there are ``rewrites`` at most, once.

    Questions without rewrites are left out; samples of inspect_ai have them in their metadata, under ``rewrites``. The
    other parameters are those of :func:`certainty`.
    """
    if rewrites < 1:
        raise UserError(f"rewrites must be 1 or more, not {rewrites}")
    samples = marked_samples(dataset, limit, [(number, float(temperature)) for number in range(rewrites + 1)], prompts)
    return Task(dataset=samples, solver=asked(), scorer=graded(scorer), metrics=[inspect_metrics.agreement()])


def _levels(temperatures: Sequence[float] | float) -> list[float]:
    """Return the temperatures as numbers, ascending; ``-T temperatures=0.5,1`` gives texts."""
    values = [temperatures] if isinstance(temperatures, int | float) else list(temperatures)
    try:
        return sorted({float(t) for t in values})
    except (TypeError, ValueError) as problem:
        raise UserError(f"temperatures must be numbers, not {temperatures}") from problem


class SettledEarly(EarlyStopping):
    """Early stopping of trials that breaking temperatures do not need.

    A greedy answer is asked for once, and a question whose greedy answer is wrong is asked no further. With
    ``settle``, trials end at a temperature once the outstanding ones cannot change its verdict (:func:`settled`), and
    above the first at which the fact breaks. inspect_ai completes the samples that it has started: a low
    ``max_samples`` saves more. Breaking temperatures, FRS and firmness are those of all trials; accuracies and
    entropies are biased.
    """

    def __init__(self, threshold: float = 0.5, settle: bool = False) -> None:
        self.threshold, self.settle = threshold, settle
        self.epochs = 0
        self.place: dict[str | int, tuple[str, float]] = {}
        """The question and the temperature of each sample."""
        self.sweep: dict[str, list[str | int]] = defaultdict(list)
        """The samples of each question above temperature 0, from below."""
        self.values: dict[str | int, list[float]] = defaultdict(list)
        self.stopped = 0

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Keep the plan of the task."""
        self.epochs = epochs
        self.values.clear()
        self.sweep.clear()
        self.stopped = 0
        by_name = [(each.id if each.id is not None else number, each) for number, each in enumerate(samples, start=1)]
        self.place = {}
        for name, sample in by_name:
            mark = mark_in(sample.metadata)
            self.place[name] = (str(mark["question"]["id"]), temperature_in(mark))
        for name, (question, t) in sorted(self.place.items(), key=lambda item: item[1][1]):
            if t > 0:
                self.sweep[question].append(name)
        return "robust_eval"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002
        """Return the reason to skip an epoch of a sample; None to ask it."""
        reason = self._reason(id, epoch)
        if reason is None:
            return None
        self.stopped += 1
        return EarlyStop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(self, id: str | int, epoch: int, scores: dict[str, SampleScore]) -> None:  # noqa: A002
        """Count a verdict; NaN: no reply came."""
        for score in scores.values():
            self.values[id].append(value_to_float()(score.score.value))
            return

    async def complete_task(self) -> dict[str, JsonValue]:
        """Return the number of skipped epochs."""
        return {"skipped": self.stopped, "planned": self.epochs * len(self.place)}

    def _reason(self, name: str | int, epoch: int) -> str | None:
        question, t = self.place[name]
        if t == 0:
            return None if epoch == 1 else "one greedy answer is enough"
        greedy = [value for each in self._greedy(question) for value in self.values[each]]
        if greedy and not any(value >= 0.5 for value in greedy):
            return "the greedy answer is wrong"
        if not self.settle:
            return None
        for each in self.sweep[question]:
            verdict = self._settled(each)
            if each == name:
                return None if verdict is None else f"settled: it {verdict}"
            if verdict in ("breaks", "unknown"):
                return f"it {verdict} at t = {self.place[each][1]:g}"
        return None

    def _greedy(self, question: str) -> Sequence[str | int]:
        return [name for name, (question_id, t) in self.place.items() if question_id == question and t == 0]

    def _settled(self, name: str | int) -> str | None:
        values = self.values[name]
        right = sum(value >= 0.5 for value in values if not math.isnan(value))
        wrong = sum(value < 0.5 for value in values if not math.isnan(value))
        return settled(right, wrong, max(self.epochs - len(values), 0), self.threshold)


def marked_samples(
    data: Data, limit: int | None, conditions: Sequence[tuple[int, float]], prompts: str, settles: float | None = None
) -> MemoryDataset:
    """Return a sample for each condition and question; all of one condition, then those of the next.

    ``conditions`` are pairs of the number of a wording (0: the question itself) and a temperature; with several
    wordings, questions without a rewrite are left out. Samples of inspect_ai are unchanged. ``settles`` is the
    threshold of early stopping, which the log records because it biases accuracies. UserError for data that cannot be
    read, or without a usable question.
    """
    name, questions = _loaded(data, limit)
    planned = sorted({t for _, t in conditions if t > 0})
    if max(rewrite for rewrite, _ in conditions):
        questions = [(question, sample) for question, sample in questions if question.rewrites]
    if not questions:
        raise UserError(f"no question of {name} can be asked" + (": none has rewrites" if len(planned) == 1 else ""))
    settled = None if settles is None else SamplingMetadata(False, {SWEEP: SettledBreaks(tuple(planned), settles)})
    samples = []
    for rewrite, t in conditions:
        for question, sample in questions:
            if rewrite > len(question.rewrites):
                continue
            mark = mark_of(question, rewrite, t, SWEEP if settled and t else None, settled) | {PLANNED: planned}
            samples.append(
                Sample(
                    id=_name(question, rewrite, t, len(conditions)),
                    input=_input(question, rewrite, prompts, sample),
                    target=_target(question) if sample is None else sample.target,
                    choices=list(question.choices) or None,
                    metadata={**((sample and sample.metadata) or {}), MARK: mark},
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
    questions_and_samples: list[tuple[Question, Sample | None]] = []
    for number, sample in enumerate(data[:limit], start=1):
        sample_id = str(number if sample.id is None else sample.id)
        question_text = sample.input if isinstance(sample.input, str) else sample.input[-1].text
        metadata = sample.metadata or {}
        more_fields = {"group": str(metadata.get("group", "")), "rewrites": tuple(texts(metadata.get("rewrites")))}
        question = question_of(
            sample_id, question_text, texts(sample.target), sample.choices or (), f"sample {sample_id}", **more_fields
        )
        questions_and_samples.append((question, sample))
    return "samples", questions_and_samples


def _name(question: Question, rewrite: int, t: float, conditions: int) -> str:
    """Return the id of a sample; the question's own where there is one condition, or the answer is greedy."""
    if conditions == 1 or (t == 0 and not rewrite):
        return question.id
    return f"{question.id} {f'rewrite {rewrite}' if rewrite else f't={temperature_name(t)}'}"


def _input(question: Question, rewrite: int, prompts: str, sample: Sample | None) -> str | list[ChatMessage]:
    if sample is not None:
        return question.rewrites[rewrite - 1] if rewrite else sample.input
    messages: list[ChatMessage] = []
    for message in prompt_for(question, rewrite, prompts).messages():
        made: Any = _MESSAGES[message["role"]]
        messages.append(made(content=message["content"]))
    return messages


def _target(question: Question) -> str | list[str]:
    if question.choices:
        return "" if question.correct is None else LETTERS[question.correct]
    return list(question.answers)

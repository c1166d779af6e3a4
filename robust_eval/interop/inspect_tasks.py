"""Tasks for ``inspect eval``: FRS, answer certainty and MultiQ&A on any provider that inspect_ai has."""

from collections import defaultdict
from collections.abc import Sequence

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalSpec
from inspect_ai.model import ChatMessage
from inspect_ai.scorer import SampleScore, Scorer, value_to_float
from inspect_ai.util import EarlyStop, EarlyStopping
from pydantic import JsonValue, TypeAdapter

from robust_eval.answer import DEFAULT_TEMPERATURE, SamplingMetadata, temperature_name
from robust_eval.answer import EarlyStopping as EarlyStoppingMetadata
from robust_eval.config.overrides import named_questions
from robust_eval.error import UserError
from robust_eval.interop import inspect_metrics
from robust_eval.interop.export_mark import MARK, mark_of
from robust_eval.interop.finished_answers import right_answers
from robust_eval.interop.inspect_scoring import PLANNED, asked, graded, mark_in, temperature_in
from robust_eval.interop.logged_answer import question_of, texts
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import Question
from robust_eval.sampler.known_facts import GRID
from robust_eval.stats.frs import settled

Data = str | Sequence[Sample]
"""A data set: the name of a built-in one or the path of a file (``dataset=…``), or samples of inspect_ai."""
SWEEP = "temperature_sweep"
"""The sampler of robust_eval that corresponds to the task."""
_MESSAGES = TypeAdapter(list[ChatMessage])


@task
def frs(
    dataset: Data = "facts",
    limit: int | None = None,
    temperatures: Sequence[float] | float = GRID,
    trials: int = 10,
    d: float = 1.0,
    k: int = 10,
    threshold: float = 0.5,
    early_stop: bool = False,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the inspect_ai task of the Factual Robustness Score: a greedy answer to each question, and trials over a
    grid.

    Parameters
    ----------
    dataset
        Name of a built-in data set, path of a file, or samples of inspect_ai, which are sent unchanged.
    limit
        Maximum number of questions.
    temperatures, trials
        Grid of temperatures above 0, and the number of answers at each.
    d, k, threshold
        Weight of the entropy, number of tokens in it, and the accuracy below which a fact breaks.
    early_stop
        True to skip trials that cannot change a breaking temperature (:class:`TrialEarlyStopping`).
    prompts
        Prompt templates, unless the data are samples of inspect_ai.
    scorer
        Scorer of the replies; by default the grader of robust_eval.
    """
    levels = _levels(temperatures)
    if len(levels) < 2 or min(levels) <= 0:
        raise UserError(f"temperatures must be two or more, all above 0, not {temperatures}")
    return Task(
        dataset=marked_samples(
            dataset, limit, [(0, 0.0), *((0, t) for t in levels)], prompts, threshold if early_stop else None
        ),
        solver=asked(top_logprobs=k),
        scorer=graded(scorer),
        metrics=[
            inspect_metrics.frs(d, k, threshold),
            inspect_metrics.breaking_temperature(threshold),
            inspect_metrics.unbroken_share(threshold),
            inspect_metrics.auroc(),
        ],
        epochs=Epochs(trials),
        early_stopping=TrialEarlyStopping(threshold, early_stop),
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
    """Return the inspect_ai task of answer certainty: trials of each question at one temperature, by default the
    model's own.

    The other parameters are those of :func:`frs`.
    """
    at = DEFAULT_TEMPERATURE if temperature is None else float(temperature)
    if at <= 0:
        raise UserError(f"temperature must be above 0, not {temperature}")
    return Task(
        dataset=marked_samples(dataset, limit, [(0, at)], prompts),
        solver=asked(),
        scorer=graded(scorer),
        metrics=[inspect_metrics.answer_entropy(), inspect_metrics.pass_hat(trials), inspect_metrics.auroc()],
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
    """Return the inspect_ai task of MultiQ&A: one answer to each question and to each of at most ``rewrites`` rewrites.

    Questions without rewrites are left out; a sample of inspect_ai has its rewrites in its metadata, under
    ``rewrites``. The other parameters are those of :func:`certainty`.
    """
    if rewrites < 1:
        raise UserError(f"rewrites must be 1 or more, not {rewrites}")
    samples = marked_samples(dataset, limit, [(number, float(temperature)) for number in range(rewrites + 1)], prompts)
    return Task(dataset=samples, solver=asked(), scorer=graded(scorer), metrics=[inspect_metrics.agreement()])


def _levels(temperatures: Sequence[float] | float) -> list[float]:
    """Return an inspect_ai task's temperatures as numbers, ascending; ``-T temperatures=0.5,1`` gives texts."""
    values = [temperatures] if isinstance(temperatures, int | float) else list(temperatures)
    try:
        return sorted({float(t) for t in values})
    except (TypeError, ValueError) as problem:
        raise UserError(f"temperatures must be numbers, not {temperatures}") from problem


class TrialEarlyStopping(EarlyStopping):
    """Early stopping of inspect_ai trials that breaking temperatures do not need.

    The greedy answer is sampled once; if it is wrong, the question has no trials. With ``early_stop``, trials end at a
    temperature once the outstanding ones cannot change its verdict (:func:`settled`), and above the first temperature
    at which the fact breaks. inspect_ai completes the samples that it has started: a low ``max_samples`` saves more.
    Breaking temperatures, FRS and unbroken shares equal those of all trials; accuracies and entropies are biased.
    """

    def __init__(self, threshold: float = 0.5, early_stop: bool = False) -> None:
        self.threshold, self.early_stop = threshold, early_stop
        self.epochs = self.skipped = 0
        self.conditions: dict[str | int, tuple[str, float]] = {}
        """Question and temperature of each sample, by ascending temperature."""
        self.values: dict[str | int, list[float]] = defaultdict(list)

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Record the questions and temperatures of the inspect_ai task."""
        self.epochs, self.skipped = epochs, 0
        self.values.clear()
        conditions = {}
        for number, sample in enumerate(samples, start=1):
            mark = mark_in(sample.metadata)
            sample_id = number if sample.id is None else sample.id
            conditions[sample_id] = (str(mark["question"]["id"]), temperature_in(mark))
        self.conditions = dict(sorted(conditions.items(), key=lambda item: item[1][1]))
        return "robust_eval"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002
        """Return the reason to skip an epoch of an inspect_ai sample; None to run it."""
        reason = self._reason(id, epoch)
        if reason is None:
            return None
        self.skipped += 1
        return EarlyStop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(self, id: str | int, epoch: int, scores: dict[str, SampleScore]) -> None:  # noqa: A002
        """Count the verdict of a sample's first scorer; NaN without a reply."""
        self.values[id] += [value_to_float()(score.score.value) for score in [*scores.values()][:1]]

    async def complete_task(self) -> dict[str, JsonValue]:
        """Return the numbers of skipped and of planned epochs of the task."""
        return {"skipped": self.skipped, "planned": self.epochs * len(self.conditions)}

    def _reason(self, sample_id: str | int, epoch: int) -> str | None:
        question, t = self.conditions[sample_id]
        if t == 0:
            return None if epoch == 1 else "one greedy answer is enough"
        for each in [name for name, (question_id, _) in self.conditions.items() if question_id == question]:
            level, values = self.conditions[each][1], self.values[each]
            right, wrong = sum(value >= 0.5 for value in values), sum(value < 0.5 for value in values)  # NaN is neither
            if level == 0:
                if values and not right:
                    return "the greedy answer is wrong"
            elif self.early_stop:
                verdict = settled(right, wrong, max(self.epochs - len(values), 0), self.threshold)
                if each == sample_id:
                    return None if verdict is None else f"the fact {verdict}"
                if verdict in ("breaks", "unknown"):
                    return f"the fact {'has no replies' if verdict == 'unknown' else verdict} at t = {level:g}"
        return None


def marked_samples(
    data: Data,
    limit: int | None,
    conditions: Sequence[tuple[int, float]],
    prompts: str,
    early_stop_threshold: float | None = None,
) -> MemoryDataset:
    """Return an inspect_ai sample for each condition and question, condition by condition.

    A condition is the number of a rewrite (0: the question itself) and a temperature; with several rewrites, questions
    without one are left out. ``early_stop_threshold`` is the threshold of early stopping, which the log records because
    it biases accuracies. UserError for data that cannot be read, or without a usable question.
    """
    name, questions = _loaded(data, limit)
    planned = sorted({t for _, t in conditions if t > 0})
    if max(rewrite for rewrite, _ in conditions):
        questions = [(question, sample) for question, sample in questions if question.rewrites]
    if not questions:
        raise UserError(f"no question of {name} can be asked" + (": none has rewrites" if len(planned) == 1 else ""))
    sampling = (
        None
        if early_stop_threshold is None
        else SamplingMetadata(False, {SWEEP: EarlyStoppingMetadata(tuple(planned), early_stop_threshold)})
    )
    samples = []
    for rewrite, t in conditions:
        for question, sample in questions:
            if rewrite > len(question.rewrites):
                continue
            mark = mark_of(question, rewrite, t, SWEEP if sampling and t else None, sampling) | {PLANNED: planned}
            samples.append(
                Sample(
                    id=_name(question, rewrite, t, len(conditions)),
                    input=_input(question, rewrite, prompts, sample),
                    target=right_answers(question) if sample is None else sample.target,
                    choices=list(question.choices) or None,
                    metadata={**((sample and sample.metadata) or {}), MARK: mark},
                )
            )
    if len({sample.id for sample in samples}) < len(samples):
        raise UserError("two samples would have the same id: give the questions different ids")
    return MemoryDataset(samples, name=name)


def _loaded(data: Data, limit: int | None) -> tuple[str, list[tuple[Question, Sample | None]]]:
    """Return an inspect_ai task's data: its name, and the questions, each with the sample that it was made of."""
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
    """Return the id of a sample: that of the question if there is one condition, or the answer is greedy."""
    if conditions == 1 or (t == 0 and not rewrite):
        return question.id
    return f"{question.id} {f'rewrite {rewrite}' if rewrite else f't={temperature_name(t)}'}"


def _input(question: Question, rewrite: int, prompts: str, sample: Sample | None) -> str | list[ChatMessage]:
    if sample is not None:
        return question.rewrites[rewrite - 1] if rewrite else sample.input
    return _MESSAGES.validate_python(prompt_for(question, rewrite, prompts).messages())

"""Tasks for lm-eval: breaking temperatures and answer certainty of any model that it supports.

A document is a question, with requests for all trials at each temperature.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.config.task import TaskConfig
from lm_eval.filters import build_filter_ensemble

from robust_eval.aggregator.base import EqualText
from robust_eval.answer import SamplingMetadata, answer_table
from robust_eval.config.overrides import named_questions
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.interop.export_mark import MARK, mark_of
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.reliability_metric import PASS_HAT, TrialReliability, powers
from robust_eval.metric.score import Measured, grid, question_groups, verdicts
from robust_eval.metric.uncertainty_metric import ErrorDetection
from robust_eval.prompt.prompt import prompt_for, refuse_exemplars
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import LETTERS, Question
from robust_eval.reader.reply import FirstLineReader, ReplyReader
from robust_eval.sampler.known_facts import GRID
from robust_eval.stats.estimate import UNDEFINED, mean_estimate
from robust_eval.stats.frs import breaking_temperature
from robust_eval.stats.uncertainty import error_ranking

log = logging.getLogger(__name__)

_PLAIN = {"until": ["\n"], "max_gen_toks": 16}
_CHAT: dict[str, Any] = {"until": []}
"""Ends of replies: of a completion the first line, of a conversation what the model generates."""


@dataclass(frozen=True)
class Options:
    """Options of the lm-eval tasks; UserError for a wrong value."""

    dataset: str = "facts"
    """Name of a built-in data set, or path of a file."""
    trials: int | None = None
    """Replies at each temperature; by default 10 for breaking temperatures, 20 for certainty."""
    temperatures: tuple[float, ...] = GRID
    """Grid of breaking temperatures, all above 0."""
    temperature: float = 1.0
    """Temperature of certainty."""
    threshold: float = 0.5
    """Accuracy below which a fact breaks."""
    prompts: str = FEW_SHOT
    """Prompt templates."""
    seeds: bool = False
    """True to send a seed with each trial."""

    def __post_init__(self) -> None:
        temperatures = self.temperatures if isinstance(self.temperatures, tuple | list) else ()
        is_grid = all(map(_above_zero, temperatures)) and len({*temperatures}) > 1
        is_number = self.trials is None or (type(self.trials) is int and self.trials >= 1)
        for name, expected, is_valid in (
            ("dataset", "a string", isinstance(self.dataset, str)),
            ("prompts", "a string", isinstance(self.prompts, str)),
            ("seeds", "true or false", isinstance(self.seeds, bool)),
            ("trials", "a whole number of 1 or more", is_number),
            ("temperatures", "two or more finite numbers, all above 0", is_grid),
            ("temperature", "a finite number above 0", _above_zero(self.temperature)),
            ("threshold", "above 0 and at most 1", _above_zero(self.threshold) and self.threshold <= 1),
        ):
            if not is_valid:
                raise UserError(f"{name} must be {expected}, not {getattr(self, name)!r:.60}")
        object.__setattr__(self, "temperatures", tuple(sorted({float(t) for t in temperatures})))

    @classmethod
    def of(cls, values: Any, **more_values: Any) -> "Options":
        """Return the lm-eval task options of a mapping and of ``more_values``; UserError for an unknown name."""
        names = [each.name for each in fields(cls)]
        options: dict[Any, Any] = {**values, **more_values} if isinstance(values, Mapping) else {values: None}
        for name in options:
            if name not in names:
                raise UserError(f"{name!r:.40} is not an option of robust_eval's tasks: use {', '.join(names)}")
        return cls(**options)


def _above_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


AUROC = "auroc_answer_entropy"
"""Name of the ranking of errors by answer entropy."""
BOUNDS = ("", "_low", "_high")
"""Suffixes of the name of a metric: of its value, and of the bounds of its interval."""


class QuestionValue(NamedTuple):
    """Metric of one question of a task, which lm-eval stores in its samples as a list.

    ``value`` is None where undefined; ``maximum`` is the highest possible value, the lowest is 0. For :data:`AUROC`
    ``correct`` is 1 if the majority of the answers is right, 0 if it is wrong.
    """

    value: float | None
    question: str
    group: str
    maximum: float
    correct: float = math.nan


def aggregations(metric: str) -> dict[str, Callable[[Sequence[QuestionValue]], float]]:
    """Return lm-eval's aggregations of a metric: its mean over questions, or the AUROC of its values, and the bounds of
    the interval.
    """
    return {f"{metric}{suffix}": partial(_aggregated, metric, index) for index, suffix in enumerate(BOUNDS)}


def _aggregated(metric: str, index: int, question_values: Sequence[QuestionValue]) -> float:
    """Return a metric's mean over the questions where it is defined, or a bound of its interval; NaN without any. For
    :data:`AUROC` it is the ranking of errors by the values, NaN unless some answers are right and some wrong.
    """
    values = [QuestionValue(*one) for one in question_values]
    numbers = np.array([math.nan if one.value is None else one.value for one in values])
    groups = question_groups([Question(one.question, "", group=one.group) for one in values])
    if metric == AUROC:
        return error_ranking(numbers, [one.correct for one in values], groups).auroc.estimate[index]
    return mean_estimate(numbers, groups, (0.0, max(one.maximum for one in values)))[index]


class DocumentRequest(NamedTuple):
    """Request of an lm-eval document: a number of replies at a temperature, beginning with a trial."""

    temperature: float
    trial: int
    replies: int


class RepeatedQuestions(Task):  # type: ignore[misc]  # lm-eval is not typed
    """Task of repeated questions for lm-eval; a subclass defines the temperatures and the metrics.

    ``config`` is that of lm-eval, whose metadata hold :class:`Options` under ``robust_eval``; in Python these are
    keyword arguments. UserError for wrong options, and for data that cannot be read.
    """

    VERSION = 1
    OUTPUT_TYPE = "generate_until"
    NAME = ""
    """Default name of the task."""

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Any) -> None:
        settings = dict(config or {})
        metadata = settings.get("metadata") or {}
        self.options = Options.of(metadata.get(MARK, {}), **options)
        self.questions = {question.id: question for question in named_questions(self.options.dataset)[1]}
        refuse_exemplars(list(self.questions.values()), self.options.prompts)
        self.chat = False
        self.requests = self._requests()
        # TaskConfig has a default for the ends of replies, which depend on the prompt style
        self._config = TaskConfig(
            task=settings.get("task", self.NAME),
            num_fewshot=0,  # exemplars are those of our prompts
            generation_kwargs=dict(_PLAIN),
            metadata={**metadata, MARK: asdict(self.options)},
        )
        self._config.generation_kwargs = {}
        self._filters = [build_filter_ensemble("none", [])]  # all replies; lm-eval's default takes the first
        self._instances: list[Instance] | None = None
        self._repeated, self._varied = False, False

    def plan(self) -> dict[float, int]:
        """Return the number of replies that the task plans at each temperature, ascending."""
        raise NotImplementedError

    def metrics(self) -> dict[str, bool]:
        """Return the names of the lm-eval task's metrics, each with True if higher is better."""
        raise NotImplementedError

    def values(self, question: Question, graded: pa.Table) -> Mapping[str, tuple[float, ...]]:
        """Return the value of each metric for a question, its maximum, and for :data:`AUROC` the verdict."""
        raise NotImplementedError

    def get_config(self, key: str) -> Any:
        """Return an entry of the lm-eval task's configuration; None without one."""
        return getattr(self._config, key, None)

    def has_training_docs(self) -> bool:
        """Return False: an lm-eval task of repeated questions has no training documents."""
        return False

    def has_validation_docs(self) -> bool:
        """Return False: an lm-eval task of repeated questions has no validation documents."""
        return False

    def has_test_docs(self) -> bool:
        """Return True: all documents of the lm-eval task are test documents."""
        return True

    def test_docs(self) -> list[dict[str, Any]]:
        """Return an lm-eval document for each question."""
        return [_document(question, self.chat) for question in self.questions.values()]

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """Return the prompt of an lm-eval document as plain text."""
        return prompt_for(self.questions[doc["id"]], prompts=self.options.prompts).text()

    def doc_to_target(self, doc: Mapping[str, Any]) -> str | list[str]:
        """Return an lm-eval document's target: the letter of the right choice, or the accepted answers."""
        question = self.questions[doc["id"]]
        return list(question.answers) if question.correct is None else LETTERS[question.correct]

    def build_all_requests(self, **settings: Any) -> None:
        """Build all requests, without lm-eval's cache, whose key is the task's name alone."""
        self.chat = bool(settings.get("apply_chat_template"))
        super().build_all_requests(**settings | {"cache_requests": False})

    def fewshot_context(
        self,
        doc: Mapping[str, Any],
        num_fewshot: int = 0,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False,
        chat_template: Callable[[list[dict[str, str]]], Any] | None = None,
        gen_prefix: str | None = None,
    ) -> Any:
        """Return the prompt of a document, as text or by the model's chat template, with robust_eval's exemplars."""
        instruction = f"{system_instruction}\n\n" if system_instruction else ""
        if not apply_chat_template or chat_template is None:
            return instruction + self.doc_to_text(doc)
        prompt = prompt_for(self.questions[doc["id"]], prompts=self.options.prompts)
        return chat_template(replace(prompt, system=f"{instruction}{prompt.system}".strip()).messages())

    def construct_requests(
        self, doc: Mapping[str, Any], ctx: Any, metadata: tuple[str, int, int], **kwargs: Any
    ) -> list[Instance]:
        """Return the requests for a question; UserError if the command line sets a setting that the task varies."""
        generation_settings = self._config.generation_kwargs
        if refused_settings := {"temperature", "do_sample", "seed"} & generation_settings.keys():
            raise UserError(
                f"gen_kwargs must not set {min(refused_settings)}, which the tasks of robust_eval set: set "
                "temperatures, temperature and seeds with --metadata '{\"robust_eval\": {…}}'"
            )
        settings = (_CHAT if self.chat else _PLAIN) | generation_settings
        return [
            Instance(
                request_type=self.OUTPUT_TYPE,
                doc=doc,
                arguments=(ctx, settings | self._sampling_settings(doc["id"], request)),
                idx=number,
                metadata=(*metadata[:2], request.replies),
            )
            for number, request in enumerate(self.requests)
        ]

    def process_results(self, doc: Mapping[str, Any], results: Sequence[Sequence[Any]]) -> dict[str, QuestionValue]:
        """Grade all replies to a question as a run of robust_eval does, and return the value of each metric."""
        question = self.questions[doc["id"]]
        table = answer_table(
            {"question_id": question.id, "rewrite": 0, "temperature": request.temperature, "trial": trial}
            | {"text": reply, "outcome": "ok" if reply.strip() else "empty", "weight": 1.0}
            for request, replies in zip(self.requests, results, strict=True)
            for trial, reply in enumerate(map(str, replies), start=request.trial)
        )
        for t, number_of_trials in self.plan().items():
            texts = table.filter(pc.equal(table["temperature"], t))["text"].unique()
            self._repeated |= number_of_trials > 1
            self._varied |= len(texts) > 1
        grader = ReplyGrader(ReplyReader() if self.chat else FirstLineReader(), Matching(), first_line=False)
        graded = EqualText().aggregate([question], grader.grade([question], table))
        values = self.values(question, graded)
        return {
            f"{name}{suffix}": QuestionValue(None if math.isnan(value) else value, question.id, question.group, *more)
            for name, (value, *more) in values.items()
            for suffix in BOUNDS
        }

    def aggregation(self) -> dict[str, Callable[[Sequence[QuestionValue]], float]]:
        """Return lm-eval's aggregations of all metrics; warn if all repeats are the same."""
        if self._repeated and not self._varied:
            log.warning(
                "%s: at each temperature, all replies to a question are the same. lm-eval sends a server the same seed "
                'with every request: set --metadata \'{"robust_eval": {"seeds": true}}\' to seed each trial separately',
                self._config.task,
            )
            self._varied = True  # warn once
        return {name: part for metric in self.metrics() for name, part in aggregations(metric).items()}

    def higher_is_better(self) -> dict[str, bool]:
        """Return for each metric, and the bounds of its interval, True if higher is better."""
        return {f"{metric}{suffix}": better for metric, better in self.metrics().items() for suffix in BOUNDS}

    def _requests(self) -> list[DocumentRequest]:
        """Return one lm-eval request for each temperature, or for each trial if trials have seeds."""
        requests = []
        for t, replies in self.plan().items():
            size = 1 if self.options.seeds and t > 0 else replies
            requests += [DocumentRequest(t, trial, size) for trial in range(0, replies, size)]
        return requests

    def _sampling_settings(self, question_id: str, request: DocumentRequest) -> dict[str, Any]:
        """Return the sampling settings of an lm-eval request; each question, temperature and trial has its own seed."""
        settings: dict[str, Any] = {"do_sample": request.temperature > 0, "temperature": request.temperature}
        if self.options.seeds and request.temperature:
            key = repr((question_id, request.temperature, request.trial)).encode("utf-8", "surrogatepass")
            settings["seed"] = int.from_bytes(hashlib.sha256(key).digest()[:4]) >> 1
        return settings


class FactualRobustnessTask(RepeatedQuestions):
    """Task for lm-eval: breaking temperatures of the known facts, by a greedy answer to each question and trials over a
    grid.
    """

    NAME = "robust_eval_frs"

    def plan(self) -> dict[float, int]:
        """Return the number of replies at each temperature: one greedy answer; by default the paper's ten trials."""
        return {0.0: 1, **dict.fromkeys(self.options.temperatures, self.options.trials or 10)}

    def metrics(self) -> dict[str, bool]:
        """Metrics of the lm-eval task: share of known facts; of these the mean breaking temperature, and the share that
        holds up to the last and to each other temperature.
        """
        levels = map(_survival_at, self.options.temperatures[:-1])
        return dict.fromkeys(["known", "breaking_temperature", "unbroken_share", *levels], True)

    def values(self, question: Question, graded: pa.Table) -> Mapping[str, tuple[float, ...]]:
        """Return the values of :meth:`metrics`; NaN for a fact that is not known, or does not break."""
        levels = self.options.temperatures
        greedy = pc.equal(graded["temperature"], 0)
        is_known = float(verdicts(graded.filter(greedy))[0])
        accuracy = grid([question.id], graded.filter(pc.invert(greedy)), levels).accuracy
        t_b = float(breaking_temperature(accuracy, levels, self.options.threshold)[0]) if is_known == 1 else math.nan
        holds = {t: (math.nan if math.isnan(t_b) else float(t_b > t), 1.0) for t in levels}
        metrics = {
            "known": (is_known, 1.0),
            "breaking_temperature": (math.nan if math.isinf(t_b) else t_b, levels[-1]),
            "unbroken_share": holds.pop(levels[-1]),
        }
        return metrics | {_survival_at(t): value for t, value in holds.items()}


class AnswerCertaintyTask(RepeatedQuestions):
    """Task for lm-eval: entropy of a question's answers at one temperature, error rate, and how often all are right."""

    NAME = "robust_eval_certainty"

    def plan(self) -> dict[float, int]:
        """Return the task's number of replies, by default the paper's twenty trials; UserError for fewer than two."""
        trials = 20 if self.options.trials is None else self.options.trials
        if trials < 2:
            raise UserError(f"trials must be 2 or more, not {trials}: certainty is measured from repeated answers")
        return {float(self.options.temperature): trials}

    def metrics(self) -> dict[str, bool]:
        """Return the metrics of the lm-eval task: mean entropy (nats) of the answers to a question, the mean error
        rate, pass^k for k = 1, 2, 4, … and the number of trials, and the ranking of errors by the entropy.
        """
        rates = dict.fromkeys(self._pass_rates().values(), True)
        return {"answer_entropy": False, "error_rate": False, AUROC: True} | rates

    def values(self, question: Question, graded: pa.Table) -> Mapping[str, tuple[float, ...]]:
        """Return the values of :meth:`metrics`; NaN without an answer."""
        measured = Measured(graded.slice(0, 0), graded)
        certainty, reliability, detection = (
            metric.score([question], measured, seed=0)
            for metric in (AnswerCertainty(), TrialReliability(), ErrorDetection())
        )
        (row,), (ranked,) = certainty.tables["certainty"].to_pylist(), detection.tables["uncertainty"].to_pylist()
        maximum = max(row["most"], 0.0 if math.isnan(row["entropy"]) else row["entropy"])
        rates = {own: reliability.values.get(name, UNDEFINED).value for name, own in self._pass_rates().items()}
        return {
            "answer_entropy": (row["entropy"], maximum),
            "error_rate": (row["error_rate"], 1.0),
            AUROC: (ranked.get("answer_entropy", math.nan), maximum, ranked["correct"]),
            **{name: (value, 1.0) for name, value in rates.items()},
        }

    def _pass_rates(self) -> dict[str, str]:
        """Return lm-eval's names of pass^k by those of our metrics."""
        (trials,) = self.plan().values()
        return {PASS_HAT.name.format(k): f"pass_hat_k{k}" for k in powers(trials)}


def _document(question: Question, chat: bool) -> dict[str, Any]:
    """Return the lm-eval document of a question, with its mark."""
    mark = mark_of(question, 0, None, metadata=SamplingMetadata(False, {}) if chat else None)
    choices = {"choices": list(question.choices)} if question.choices else {}
    return {"id": question.id, "question": question.title, "answers": list(question.answers), **choices, MARK: mark}


def _survival_at(t: float) -> str:
    return f"survival_t{t:g}"

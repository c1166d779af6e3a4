"""Tasks for lm-eval: breaking temperatures and answer certainty of any model that it has.

A document is a question. Its requests are all that is asked of it: at each temperature as many replies as there are
trials, of which every one counts.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
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
from robust_eval.interop.own_mark import MARK, mark_of
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.score import Measured, grid, mean_estimate, question_groups, verdicts
from robust_eval.prompt.prompt import prompt_for, refuse_exemplars
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import LETTERS, Question
from robust_eval.reader.reply import FirstLineReader, ReplyReader
from robust_eval.sampler.known_facts import GRID
from robust_eval.stats.frs import breaking_temperature

log = logging.getLogger(__name__)

_PLAIN = {"until": ["\n"], "max_gen_toks": 16}
_CHAT: dict[str, Any] = {"until": []}
"""Ends of replies: to a prompt as plain text the first line, in a conversation as the model ends them."""


@dataclass(frozen=True)
class Options:
    """Options of both tasks, one object for the group; UserError for a wrong value."""

    dataset: str = "facts"
    """One of ours by its name, or the path of a file."""
    trials: int | None = None
    """Replies at each temperature; None: as many as the method has."""
    temperatures: tuple[float, ...] = field(default=GRID)
    """The grid of breaking temperatures, all above 0."""
    temperature: float = 1.0
    """At which certainty is measured."""
    threshold: float = 0.5
    """The accuracy below which a fact breaks."""
    prompts: str = FEW_SHOT
    """Templates of the prompts."""
    seeds: bool = False
    """True if each trial has a seed of its own."""

    def __post_init__(self) -> None:
        temperatures = self.temperatures if isinstance(self.temperatures, tuple | list) else ()
        whole_trials = self.trials is None or (type(self.trials) is int and self.trials >= 1)
        grid = len(temperatures) > 1 and all(map(_above_zero, temperatures)) and len({*temperatures}) > 1
        for name, expected, is_right in (
            ("dataset", "a text", isinstance(self.dataset, str)),
            ("prompts", "a text", isinstance(self.prompts, str)),
            ("seeds", "true or false", isinstance(self.seeds, bool)),
            ("trials", "a whole number of 1 or more", whole_trials),
            ("temperatures", "two or more numbers, all above 0", grid),
            ("temperature", "a number above 0", _above_zero(self.temperature)),
            ("threshold", "above 0 and at most 1", _above_zero(self.threshold) and self.threshold <= 1),
        ):
            if not is_right:
                raise UserError(f"{name} must be {expected}, not {getattr(self, name)!r:.60}")
        object.__setattr__(self, "temperatures", tuple(sorted({float(t) for t in temperatures})))

    @classmethod
    def of(cls, values: Any, **more_values: Any) -> "Options":
        """Return the options of a mapping and of ``more_values``; UserError for an unknown name."""
        names = [each.name for each in fields(cls)]
        whole: dict[Any, Any] = {**values, **more_values} if isinstance(values, Mapping) else {values: None}
        for name in whole:
            if name not in names:
                raise UserError(f"the options of robust_eval's tasks are {', '.join(names)}, and not {name!r:.40}")
        return cls(**whole)


def _above_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


ENDS = ("", "_low", "_high")
"""Suffixes of the name of a metric: of its value, and of the ends of its interval."""


class QuestionValue(NamedTuple):
    """A metric of one question, which lm-eval keeps in its samples as a list."""

    value: float | None
    """None where it is undefined."""
    question: str
    group: str
    highest: float
    """The highest value that is possible; the lowest is 0."""


def aggregations(metric: str) -> dict[str, Callable[[Sequence[QuestionValue]], float]]:
    """Return lm-eval's aggregations of a metric: its mean over questions, and the ends of the interval."""
    return {f"{metric}{end}": partial(_part, place) for place, end in enumerate(ENDS)}


def _part(place: int, values_of_questions: Sequence[QuestionValue]) -> float:
    """Return value, low or high of a mean over questions, undefined ones left out; NaN where there is none."""
    each = [QuestionValue(*one) for one in values_of_questions]
    values = np.array([math.nan if one.value is None else one.value for one in each])
    groups = question_groups([Question(one.question, "", group=one.group) for one in each])
    return mean_estimate(values, groups, (0.0, max(one.highest for one in each)))[place]


class DocumentRequest(NamedTuple):
    """One request of a document: so many replies at a temperature, the first of which is this trial."""

    temperature: float
    trial: int
    replies: int


class RepeatedQuestions(Task):  # type: ignore[misc]  # lm-eval is not typed
    """Repeated questions; a subclass has the temperatures and the metrics.

    ``config`` is that of lm-eval, whose metadata hold :class:`Options` under ``robust_eval``; from Python these are
    keyword arguments. UserError for wrong options, and for data that cannot be read.
    """

    VERSION = 1
    OUTPUT_TYPE = "generate_until"
    NAME = ""
    """Name of the task where ``config`` has none."""

    def __init__(self, config: Mapping[str, Any] | None = None, **options: Any) -> None:
        settings = dict(config or {})
        metadata = settings.get("metadata") or {}
        self.options = Options.of(metadata.get(MARK, {}), **options)
        self.questions = {question.id: question for question in named_questions(self.options.dataset)[1]}
        refuse_exemplars(list(self.questions.values()), self.options.prompts)
        self.chat = False
        self.requests = self._requests()
        self.documents = [_document(question, self.chat) for question in self.questions.values()]
        # TaskConfig has a default for the ends of replies, which depend on the prompt style
        self._config = TaskConfig(
            task=settings.get("task", self.NAME),
            num_fewshot=0,  # exemplars are those of our prompts
            generation_kwargs=dict(_PLAIN),
            metadata={**metadata, MARK: asdict(self.options)},
        )
        self._config.generation_kwargs = {}
        self._filters = [build_filter_ensemble("none", [])]  # all replies, where lm-eval takes the first
        self._instances: list[Instance] | None = None
        self._repeated, self._varied = False, False

    def plan(self) -> dict[float, int]:
        """Return the number of replies at each temperature, ascending."""
        raise NotImplementedError

    def metrics(self) -> dict[str, bool]:
        """Return the names of the metrics, each with True if more is better."""
        raise NotImplementedError

    def values(self, question: Question, graded: pa.Table) -> dict[str, tuple[float, float]]:
        """Return the value of each metric for a question, and the highest possible value."""
        raise NotImplementedError

    def get_config(self, key: str) -> Any:
        """Return an entry of the configuration; None where there is none."""
        return getattr(self._config, key, None)

    def has_training_docs(self) -> bool:
        """See Task: there are none."""
        return False

    def has_validation_docs(self) -> bool:
        """See Task: there are none."""
        return False

    def has_test_docs(self) -> bool:
        """See Task: all are."""
        return True

    def test_docs(self) -> list[dict[str, Any]]:
        """Return a document for each question."""
        return self.documents

    def doc_to_text(self, doc: Mapping[str, Any]) -> str:
        """Return the prompt of a question as plain text."""
        return prompt_for(self.questions[doc["id"]], prompts=self.options.prompts).text()

    def doc_to_target(self, doc: Mapping[str, Any]) -> str | list[str]:
        """Return the letter of the right choice, or the accepted answers."""
        question = self.questions[doc["id"]]
        return list(question.answers) if question.correct is None else LETTERS[question.correct]

    def build_all_requests(self, **settings: Any) -> None:
        """See Task. Requests are made anew each time: lm-eval finds kept ones by the task's name alone."""
        self.chat = bool(settings.get("apply_chat_template"))
        self.documents = [_document(question, self.chat) for question in self.questions.values()]
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
        """Return the prompt of a question, as text or as the model writes conversations; exemplars are ours."""
        before = f"{system_instruction}\n\n" if system_instruction else ""
        if not apply_chat_template or chat_template is None:
            return before + self.doc_to_text(doc)
        prompt = prompt_for(self.questions[doc["id"]], prompts=self.options.prompts)
        return chat_template(replace(prompt, system=f"{before}{prompt.system}".strip()).messages())

    def construct_requests(
        self, doc: Mapping[str, Any], ctx: Any, metadata: tuple[str, int, int], **kwargs: Any
    ) -> list[Instance]:
        """Return the requests of a question; UserError where the command line sets what the task varies."""
        generation_settings = self._config.generation_kwargs
        if refused_settings := {"temperature", "do_sample", "seed"} & generation_settings.keys():
            raise UserError(
                f"gen_kwargs sets {min(refused_settings)}, which these tasks set themselves: choose temperatures, "
                "temperature and seeds by --metadata '{\"robust_eval\": {…}}'"
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
        """Grade all replies to a question as a run of ours does, and return its values."""
        question = self.questions[doc["id"]]
        rows = []
        for request, replies in zip(self.requests, results, strict=True):
            for number, reply in enumerate(map(str, replies)):  # as lm-eval writes them
                place = {"question_id": question.id, "rewrite": 0, "temperature": request.temperature}
                reply_columns = {"text": reply, "outcome": "ok" if reply.strip() else "empty", "weight": 1.0}
                rows.append({**place, "trial": request.trial + number, **reply_columns})
        table = answer_table(rows)
        for t, number_of_trials in self.plan().items():
            texts = table.filter(pc.equal(table["temperature"], t))["text"].unique()
            self._repeated |= number_of_trials > 1
            self._varied |= len(texts) > 1
        judge = ReplyGrader(ReplyReader() if self.chat else FirstLineReader(), Matching(), first_line=False)
        graded = EqualText().aggregate([question], judge.grade([question], table))
        values = self.values(question, graded)
        return {
            f"{name}{end}": QuestionValue(None if math.isnan(value) else value, question.id, question.group, highest)
            for name, (value, highest) in values.items()
            for end in ENDS
        }

    def aggregation(self) -> dict[str, Callable[[Sequence[QuestionValue]], float]]:
        """Return the aggregations of all metrics; warn if all repeats are the same."""
        if self._repeated and not self._varied:
            log.warning(
                "%s: at each temperature all replies to a question are the same. lm-eval sends a server the same seed "
                'with every request: --metadata \'{"robust_eval": {"seeds": true}}\' gives each trial its own',
                self._config.task,
            )
            self._varied = True  # said once
        return {name: part for metric in self.metrics() for name, part in aggregations(metric).items()}

    def higher_is_better(self) -> dict[str, bool]:
        """Return True if more of a metric is better."""
        return {f"{metric}{end}": better for metric, better in self.metrics().items() for end in ENDS}

    def _requests(self) -> list[DocumentRequest]:
        """Return one request for each temperature, or for each trial if trials have seeds."""
        requests = []
        for t, replies in self.plan().items():
            size = 1 if self.options.seeds and t > 0 else replies
            requests += [DocumentRequest(t, trial, size) for trial in range(0, replies, size)]
        return requests

    def _sampling_settings(self, question_id: str, request: DocumentRequest) -> dict[str, Any]:
        """Return the sampling settings of a request; each question, temperature and trial has its own seed."""
        settings: dict[str, Any] = {"do_sample": request.temperature > 0, "temperature": request.temperature}
        if self.options.seeds and request.temperature:
            place = repr((question_id, request.temperature, request.trial)).encode("utf-8", "surrogatepass")
            settings["seed"] = int.from_bytes(hashlib.sha256(place).digest()[:4]) >> 1
        return settings


class FactualRobustnessTask(RepeatedQuestions):
    """A greedy answer to each question, and trials over a grid of temperatures: which facts are known, and where they
    break.
    """

    NAME = "robust_eval_frs"

    def plan(self) -> dict[float, int]:
        """See RepeatedQuestions: ten trials as in the paper."""
        return {0.0: 1, **dict.fromkeys(self.options.temperatures, self.options.trials or 10)}

    def metrics(self) -> dict[str, bool]:
        """Share of known facts; of these the mean temperature at which they break, and the share that holds up to each
        temperature, and to the last.
        """
        return dict.fromkeys(["known", "breaking_temperature", "firmness", *map(_firm_at, self._below)], True)

    def values(self, question: Question, graded: pa.Table) -> dict[str, tuple[float, float]]:
        levels = self.options.temperatures
        greedy = pc.equal(graded["temperature"], 0)
        is_known = float(verdicts(graded.filter(greedy))[0])
        accuracy = grid([question.id], graded.filter(pc.invert(greedy)), levels).accuracy
        breaks = float(breaking_temperature(accuracy, levels, self.options.threshold)[0])
        if is_known != 1:
            breaks = math.nan
        holds = {_firm_at(t): (_holds(breaks, t), 1.0) for t in self._below}
        broken = math.nan if math.isinf(breaks) else breaks
        metrics = {"known": (is_known, 1.0), "breaking_temperature": (broken, levels[-1])}
        return metrics | {"firmness": (_holds(breaks, levels[-1]), 1.0)} | holds

    @property
    def _below(self) -> Sequence[float]:
        """The temperatures below the highest."""
        return self.options.temperatures[:-1]


class AnswerCertaintyTask(RepeatedQuestions):
    """Each question repeatedly at one temperature: entropy of the answers and their error rate."""

    NAME = "robust_eval_certainty"

    def plan(self) -> dict[float, int]:
        """See RepeatedQuestions: twenty trials as in the paper; UserError for fewer than two."""
        trials = 20 if self.options.trials is None else self.options.trials
        if trials < 2:
            raise UserError(f"trials must be 2 or more, not {trials}: certainty is measured by repeated answers")
        return {float(self.options.temperature): trials}

    def metrics(self) -> dict[str, bool]:
        """Mean entropy (nats) of the answers to a question, and the mean error rate."""
        return {"answer_entropy": False, "error_rate": False}

    def values(self, question: Question, graded: pa.Table) -> dict[str, tuple[float, float]]:
        score = AnswerCertainty().score([question], Measured(graded.slice(0, 0), graded), seed=0)
        (row,) = score.tables["certainty"].to_pylist()
        highest = max(row["most"], 0.0 if math.isnan(row["entropy"]) else row["entropy"])
        return {"answer_entropy": (row["entropy"], highest), "error_rate": (row["error_rate"], 1.0)}


def _document(question: Question, chat: bool) -> dict[str, Any]:
    """Return the document of a question; its mark says how a reply is read."""
    mark = mark_of(question, 0, None, metadata=SamplingMetadata(False, {}) if chat else None)
    choices = {"choices": list(question.choices)} if question.choices else {}
    return {"id": question.id, "question": question.title, "answers": list(question.answers), **choices, MARK: mark}


def _firm_at(t: float) -> str:
    return f"firmness_t{t:g}"


def _holds(breaks: float, t: float) -> float:
    """Return 1 if a fact holds up to a temperature, 0 if not, NaN if that is not known."""
    return math.nan if math.isnan(breaks) else float(breaks > t)

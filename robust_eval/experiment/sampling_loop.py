"""Sampling loop over blocks of questions: rewrites, greedy answers, selection, answers of the samplers, verdicts."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.aggregator.base import Aggregator, EqualText
from robust_eval.answer import (
    NO_ANSWER,
    NO_REPLY,
    SCHEMA,
    Answers,
    EarlyStopping,
    SamplingMetadata,
    most_frequent,
    rows,
)
from robust_eval.experiment.models import Models
from robust_eval.experiment.own_temperature import own_profile
from robust_eval.experiment.run_record import DeferredRun, write_answers, write_rewrites
from robust_eval.experiment.schedule import (
    early_stopping_rules,
    reasons_for_full_sampling,
    refuse_early_stopping,
    remember_share,
)
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.metric.score import Metric
from robust_eval.model.base import ALL, Request, Temperatures
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewriter, Rewritten
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.base import (
    ORDER,
    Conditions,
    NothingKeptError,
    Sampler,
    clip_to_supported,
    greedy_requests,
    highest_temperature,
)
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.store.steps import Steps, VerdictsOf
from robust_eval.store.stored_model import StoredModel

log = logging.getLogger(__name__)


_Part = TypeVar("_Part", Answers, pa.Table)


class RunState(NamedTuple):
    """Questions and the answers collected so far.

    ``rewritten`` are the questions with their rewrites, ``questions`` those of the run, ``kept`` those selected by
    their ``greedy`` answers (graded: ``baseline``); ``answers`` holds the answers of each sampler to them, ``graded``
    the same with verdicts.
    """

    rewritten: Rewritten
    questions: Sequence[Question] = ()
    kept: Sequence[Question] = ()
    greedy: pa.Table = SCHEMA.empty_table()
    baseline: pa.Table = SCHEMA.empty_table()
    answers: Mapping[str, Answers] = MappingProxyType({})
    graded: Mapping[str, pa.Table] = MappingProxyType({})


def joined(parts: Sequence[RunState], order: Sequence[Question]) -> RunState:
    """Return all parts as one, with questions and answers in ``order``."""
    if len(parts) == 1:
        return parts[0]
    place = {question.id: number for number, question in enumerate(order)}
    ids = pa.array(list(place))

    def questions(groups: Iterable[Sequence[Question]]) -> list[Question]:
        return sorted((question for each in groups for question in each), key=lambda question: place[question.id])

    def table(groups: Iterable[pa.Table]) -> pa.Table:
        merged = pa.concat_tables(groups, promote_options="default")
        return merged.take(pc.sort_indices(pc.index_in(merged["question_id"], value_set=ids)))  # a stable sort

    def answers(groups: Sequence[Answers]) -> Answers:
        return Answers(table(each.table for each in groups), table(each.curves for each in groups))

    return RunState(
        Rewritten(
            questions(part.rewritten.questions for part in parts),
            table(part.rewritten.found for part in parts),
            table(part.rewritten.replies for part in parts),
        ),
        questions(part.questions for part in parts),
        questions(part.kept for part in parts),
        table(part.greedy for part in parts),
        table(part.baseline for part in parts),
        {name: answers(groups) for name, groups in _by_sampler(part.answers for part in parts).items()},
        {name: table(groups) for name, groups in _by_sampler(part.graded for part in parts).items()},
    )


def _by_sampler(parts: Iterable[Mapping[str, _Part]]) -> dict[str, list[_Part]]:
    """Return the tables of each sampler; a part without a kept question has none."""
    by_sampler: dict[str, list[_Part]] = {}
    for part in parts:
        for name, each in part.items():
            by_sampler.setdefault(name, []).append(each)
    return by_sampler


def grade(
    reply_grader: ReplyGrader,
    clusters: Mapping[str, Aggregator],
    questions: Sequence[Question],
    answers: Mapping[str, Answers],
) -> dict[str, pa.Table]:
    """Read and grade the answers of each sampler, and give answers that mean the same one label.

    ``clusters`` has the aggregator of the samplers whose labels a metric reads: for others, equal texts suffice.
    """
    return {
        sampler: clusters.get(sampler, EqualText()).aggregate(questions, reply_grader.grade(questions, sampled.table))
        for sampler, sampled in answers.items()
    }


def clustered_by(
    aggregator: Aggregator, metrics: Mapping[str, Metric], read: Mapping[str, str]
) -> dict[str, Aggregator]:
    """Return the aggregator of the samplers whose labels a metric reads; ``read`` maps metrics to their sampler."""
    return {read[name]: aggregator for name, metric in metrics.items() if metric.needs_clusters}


PLURALITY_DRAWS = 5
"""Number of draws whose most frequent answer replaces the greedy one of a model without temperature 0."""


@dataclass(frozen=True)
class SampledSource:
    """Answers of a model. All samplers ask the same questions, so that their metrics can be joined by question.

    The first sampler says how the greedy answers are asked for, which all samplers share. Of a model that takes no
    temperature 0 the most frequent of several answers stands for the greedy one, where questions are selected by it;
    elsewhere there is none.
    """

    samplers: Mapping[str, Sampler]
    model: StoredModel
    reply_grader: ReplyGrader
    seed: int
    top_logprobs: int
    """Minimum number of top log-probabilities per greedy token."""
    supported_temperatures: Temperatures = ALL
    """Temperatures that the model supports."""
    early_stopping: Mapping[str, EarlyStopping] = field(default_factory=dict)
    """Early-stopping rule of each sampler that has one."""
    early_stopping_possible: Sequence[str] = ()
    """Samplers without early stopping that could use it."""
    selecting: Mapping[str, Sampler] = field(default_factory=dict)
    """Samplers that ask nothing and select questions, before the others: those of temperatures, without one."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """Metrics of the answers."""
    profile: str = ""
    """Sentence on the perturbations of a profile at the model's own temperature; empty for any other run."""

    @property
    def selects(self) -> bool:
        """True if some questions are selected by their baseline answers."""
        return any(sampler.selects for sampler in self._all)

    @property
    def greedy(self) -> str:
        """Name of the baseline answers in log messages: "greedy" or "most frequent"."""
        return "greedy" if self.supported_temperatures.greedy else "most frequent"

    def conditions(self) -> Mapping[str, Conditions]:
        """Return the conditions of each sampler: the sampler itself."""
        return self.samplers

    def asked(self, questions: Sequence[Question]) -> list[Question]:
        """Return all questions. Raises UserError for a question that is an exemplar of the prompt."""
        refuse_exemplars(questions, self._first.prompts)
        return list(questions)

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that every sampler can ask; with other samplers, one of choice orders excludes none."""
        chosen = list(questions)
        deciding = [sampler for sampler in self._all if sampler.axis != ORDER]
        for sampler in deciding or self._all:
            chosen = sampler.candidates(chosen)
        return chosen

    def baseline(self, questions: Sequence[Question]) -> pa.Table:
        """Ask for the greedy answers, once each sampler could make its requests: its mistakes are found before."""
        for name in self.samplers:
            self.requests(name, questions)
        requests = self.greedy_requests(questions)
        if not requests:
            return SCHEMA.empty_table()
        table = self.model.answers(requests, f"{self.greedy} answers").table
        if self.supported_temperatures.greedy:
            return table
        return table.take(most_frequent(self.reply_grader.grade(questions, table)))

    def greedy_requests(self, questions: Sequence[Question]) -> list[Request]:
        """Return the requests for the baseline answers: at temperature 0, or the draws of a plurality vote."""
        sampler = self._first
        requests = greedy_requests(
            questions,
            sampler.prompts,
            sampler.max_new_tokens,
            self.seed,
            self.top_logprobs,
            self.reply_grader.first_line,
        )
        requests = [
            replace(sampler.greedy(request), signs=sampler.signs(question))
            for question, request in zip(questions, requests, strict=True)
        ]
        if self.supported_temperatures.greedy:
            return requests
        if not self.selects:
            return []
        lowest = sampler.temperatures[0]
        return [replace(request, temperatures=(lowest,), trials=PLURALITY_DRAWS) for request in requests]

    def requests(self, sampler: str, questions: Sequence[Question]) -> list[Request]:
        """Return the requests of a sampler for the selected questions."""
        return self.samplers[sampler].requests(questions, self.reply_grader, self.seed)

    def select(self, questions: Sequence[Question], baseline: pa.Table) -> list[Question]:
        """Select the questions that every sampler keeps."""
        chosen = list(questions)
        for sampler in self._all:
            chosen = sampler.select(chosen, baseline, self.seed)
        return chosen

    def at_most(self, questions: Sequence[Question]) -> list[Question]:
        """Return the largest possible selection: the smallest of those of the samplers."""
        chosen = list(questions)
        for sampler in self._all:
            chosen = sampler.at_most(chosen)
        return chosen

    def answers(self, questions: Sequence[Question], baseline: pa.Table) -> dict[str, Answers]:
        """Sample the answers of one sampler after the other, without those that have no requests."""
        collected = {}
        for name in self.samplers:
            stage, planned = self.stage(name), sum(request.answers for request in self.requests(name, questions))
            if not planned:
                continue
            collected[name] = self.model.ask(self._steps(name, questions, baseline), stage, self._verdicts(questions))
            if name in self.early_stopping:
                requested = collected[name].table.num_rows
                log.info("%s: %d of %d answers decide every breaking temperature", stage, requested, planned)
                remember_share(self.model.identity, requested, planned)
        return collected

    def planned(
        self, sampler: str, questions: Sequence[Question], baseline: pa.Table | None
    ) -> tuple[list[Request], Answers | None]:
        """Return the missing requests of a sampler to a cache-only model, and its answers if there are none."""
        return self.model.planned(self._steps(sampler, questions, baseline), self._verdicts(questions))

    def _steps(self, sampler: str, questions: Sequence[Question], baseline: pa.Table | None) -> list[Steps]:
        return self.samplers[sampler].steps(questions, baseline, self.reply_grader, self.seed)

    def _verdicts(self, questions: Sequence[Question]) -> VerdictsOf:
        """Return a function that grades answers; None for a missing reply, or a question without an accepted answer."""

        def verdicts(table: pa.Table) -> list[bool | None]:
            graded = self.reply_grader.grade(questions, table)
            return [
                None if outcome in NO_REPLY else False if outcome in NO_ANSWER else correct
                for correct, outcome in rows(graded, "correct", "outcome")
            ]

        return verdicts

    def stage(self, sampler: str) -> str:
        """Return the name of a sampler's answers in progress bars and logs."""
        return "sampled answers" if len(self.samplers) == 1 else f"answers of {sampler}"

    def identity(self) -> dict[str, Any]:
        """Return the supported temperatures, if the model does not support all."""
        supported = self.supported_temperatures
        if supported.default_only:
            metadata = {"loaded.temperatures": "the model's own", "loaded.profile": self.profile}
            return {name: value for name, value in metadata.items() if value}
        capped = not math.isinf(supported.highest)
        metadata = {"loaded.temperatures": f"up to {supported.highest:g}"} if capped else {}
        if not supported.greedy:
            metadata["loaded.greedy"] = (
                f"the most frequent of {PLURALITY_DRAWS} answers at {self._first.temperatures[0]:g}"
            )
        return metadata

    @property
    def _first(self) -> Sampler:
        return self._all[0]

    @property
    def _all(self) -> list[Sampler]:
        return [*self.selecting.values(), *self.samplers.values()]


AnswerSource = SampledSource | RecordedAnswers
"""Source of a run's answers: its model, or a file of recorded answers."""


def answer_source(
    recorded: RecordedAnswers | None,
    samplers: Mapping[str, Sampler],
    metrics: Mapping[str, Metric],
    model: StoredModel,
    reply_grader: ReplyGrader,
    seed: int,
) -> AnswerSource:
    """Return the source of a run's answers: a file of ``recorded`` ones, or samplers with the model."""
    if recorded is not None:
        refuse_early_stopping(recorded, metrics)
        return recorded
    judged, name = reply_grader.grader.uses_model, model.config.name
    samplers = {key: each.of_model(key, model.config.remote, name) for key, each in samplers.items()}
    supported = model.temperatures(highest_temperature(samplers.values()))
    own = own_profile(samplers, metrics, model.config, supported)
    if own is None:
        samplers = {key: clip_to_supported(key, each, supported, name) for key, each in samplers.items()}
    else:
        samplers, metrics = own.samplers, own.metrics
        log.warning(own.sentence)
    rules = early_stopping_rules(samplers, metrics, judged)
    samplers |= {key: samplers[key].stopping_at(rule.threshold) for key, rule in rules.items()}
    collection = SampledSource(
        samplers,
        model,
        reply_grader,
        seed,
        top_logprobs=max(each.top_logprobs for each in metrics.values()),
        supported_temperatures=supported,
        early_stopping=rules,
        early_stopping_possible=[
            key
            for key in samplers
            if key not in rules and not reasons_for_full_sampling(key, samplers, metrics, judged)
        ],
        selecting=own.selecting if own else {},
        metrics=metrics,
        profile=own.sentence if own else "",
    )
    if not supported.greedy and collection.selects:
        log.warning(
            "%s takes no temperature 0: the most frequent of %d answers stands for the greedy one",
            *(name, PLURALITY_DRAWS),
        )
    return collection


@dataclass
class SamplingLoop:
    """Loop over blocks of ``questions``. All answers so far are in the ``folder`` before the next step.

    ``clusters`` has the aggregator of the samplers whose labels a metric reads. ``parts`` are the blocks so far;
    ``full`` is True once the samplers take no more questions.
    """

    questions: Sequence[Question]
    source: AnswerSource
    reply_grader: ReplyGrader
    rewriter: Rewriter
    models: Models
    clusters: Mapping[str, Aggregator]
    seed: int
    deferred_run: DeferredRun
    folder: Path
    watch: Stopwatch
    parts: list[RunState] = field(default_factory=list)
    full: bool = False

    def __post_init__(self) -> None:
        self._metadata = SamplingMetadata(self.reply_grader.first_line, self.source.early_stopping)
        self._rewriter = self.rewriter.within(self.models.writer.temperatures)
        if not self._rewriter.asks:  # recorded rewrites are added to all questions at once
            self.questions = self._rewritten(self.questions).questions

    def rewrite(self, block: Sequence[Question]) -> Rewritten:
        """Return questions with the rewrites of a model; unchanged without a model that rewrites."""
        if not self._rewriter.asks:
            return Rewritten(list(block))
        rewritten = self._rewritten(block)
        self.deferred_run.then(lambda _: write_rewrites(self._with(RunState(rewritten)).rewritten, self.folder))
        return rewritten

    def answer(self, rewritten: Rewritten) -> RunState:
        """Sample one more block (greedy answers, selection, further answers, verdicts); return all blocks so far.

        If no question is kept, :meth:`raise_if_none_selected` raises the reason.
        """
        source, reply_grader = self.source, self.reply_grader
        part = RunState(rewritten, source.asked(rewritten.questions))
        try:
            with self.watch.stage("baseline"):
                candidates = source.candidates(part.questions)
                part = part._replace(greedy=source.baseline(candidates))
                self._write(part)
                part = part._replace(baseline=reply_grader.grade(candidates, part.greedy))
                part = part._replace(kept=self._within_most(source.select(candidates, part.baseline)))
            if part.greedy.num_rows or isinstance(source, RecordedAnswers):
                log.info("%s answers: %d of %d questions kept", source.greedy, len(part.kept), len(candidates))
            with self.watch.stage("sampling"):
                part = part._replace(answers=source.answers(part.kept, part.baseline))
            self._write(part)
            with self.watch.stage("grading"):
                part = part._replace(graded=grade(self.reply_grader, self.clusters, part.kept, part.answers))
        except NothingKeptError:
            log.debug("no question of this block is kept")
        self.parts.append(part)
        return joined(self.parts, self.questions)

    def raise_if_none_selected(self, state: RunState) -> None:
        """Raise NothingKeptError, which says why, where no question at all is kept."""
        if not state.kept:
            self.source.select(self.source.candidates(state.questions), state.baseline)

    def _within_most(self, selected: list[Question]) -> list[Question]:
        """Return the questions that are selected, without those that would be too many with those kept before."""
        before = [question for part in self.parts for question in part.kept]
        kept = self.source.at_most([*before, *selected])[len(before) :]
        chosen = [*before, *kept]
        self.full = bool(chosen) and len(self.source.at_most([*chosen, chosen[-1]])) == len(chosen)
        if not kept:
            raise NothingKeptError("the samplers take no more questions")
        return kept

    def _rewritten(self, questions: Sequence[Question]) -> Rewritten:
        with self.watch.stage("rewriting"):
            return self._rewriter.rewrite(questions, self.models.writer, self.seed)

    def _with(self, part: RunState) -> RunState:
        return joined([*self.parts, part], self.questions)

    def _write(self, part: RunState) -> None:
        """Begin the run, if it has not begun, and write the answers so far."""
        self.deferred_run()
        so_far = self._with(part)
        write_answers(so_far.greedy, so_far.answers, self._metadata, self.folder)

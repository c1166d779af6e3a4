"""Sampling loop: it samples, grades and scores block after block of questions until enough is known."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.aggregator.base import Aggregator, EqualText
from robust_eval.answer import GREEDY, SCHEMA, Answers, SamplingMetadata
from robust_eval.experiment.answer_source import AnswerSource
from robust_eval.experiment.models import Models
from robust_eval.experiment.run_record import (
    DeferredRun,
    write_answers,
    write_graded,
    write_question_status,
    write_rewrites,
)
from robust_eval.experiment.schedule import QuestionScheduler
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewriter, Rewritten
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.base import NothingKeptError
from robust_eval.sampler.recorded_answers import RecordedAnswers

log = logging.getLogger(__name__)


_Part = TypeVar("_Part", Answers, pa.Table)
_Value = TypeVar("_Value")


class RunState(NamedTuple):
    """State of the sampling loop: questions and answers of a block, or of all blocks so far.

    ``rewritten`` are the questions with their rewrites, ``questions`` those that the source of answers can use,
    ``kept`` those selected by their ``baseline_answers`` (with verdicts ``graded_baseline``). ``answers_by_sampler``
    are the further answers to the kept ones, ``graded_by_sampler`` the same with verdicts.
    """

    rewritten: Rewritten
    questions: Sequence[Question] = ()
    kept: Sequence[Question] = ()
    baseline_answers: pa.Table = SCHEMA.empty_table()
    graded_baseline: pa.Table = SCHEMA.empty_table()
    answers_by_sampler: Mapping[str, Answers] = MappingProxyType({})
    graded_by_sampler: Mapping[str, pa.Table] = MappingProxyType({})

    @property
    def all_graded(self) -> dict[str, pa.Table]:
        """All graded answers of the loop by sampler, those of the baseline under :data:`~robust_eval.answer.GREEDY`."""
        return {GREEDY: self.graded_baseline, **self.graded_by_sampler}


def joined(blocks: Sequence[RunState], order: Sequence[Question]) -> RunState:
    """Return all blocks of the sampling loop as one, with questions and answers in ``order``."""
    place = {question.id: number for number, question in enumerate(order)}
    ids = pa.array(list(place))

    def questions(groups: Iterable[Sequence[Question]]) -> list[Question]:
        return sorted((question for each in groups for question in each), key=lambda question: place[question.id])

    if len(blocks) == 1 and questions([blocks[0].rewritten.questions]) == blocks[0].rewritten.questions:
        return blocks[0]

    def table(groups: Iterable[pa.Table]) -> pa.Table:
        merged = pa.concat_tables(groups, promote_options="default")
        return merged.take(pc.sort_indices(pc.index_in(merged["question_id"], value_set=ids)))  # a stable sort

    def answers(groups: Sequence[Answers]) -> Answers:
        return Answers(table(each.table for each in groups), table(each.exact_curves for each in groups))

    return RunState(
        Rewritten(
            questions(block.rewritten.questions for block in blocks),
            table(block.rewritten.model_rewrites for block in blocks),
            table(block.rewritten.replies for block in blocks),
        ),
        questions(block.questions for block in blocks),
        questions(block.kept for block in blocks),
        table(block.baseline_answers for block in blocks),
        table(block.graded_baseline for block in blocks),
        {name: answers(groups) for name, groups in _by_sampler(block.answers_by_sampler for block in blocks).items()},
        {name: table(groups) for name, groups in _by_sampler(block.graded_by_sampler for block in blocks).items()},
    )


def _by_sampler(blocks: Iterable[Mapping[str, _Part]]) -> dict[str, list[_Part]]:
    """Return the tables of each sampler in all blocks; a block without a kept question has none."""
    by_sampler: dict[str, list[_Part]] = {}
    for block in blocks:
        for name, each in block.items():
            by_sampler.setdefault(name, []).append(each)
    return by_sampler


@dataclass
class SamplingLoop:
    """Sampling loop over blocks of ``questions``: :meth:`run` takes each block from rewriting to scores.

    ``aggregators`` has the aggregator of the samplers whose labels a metric reads; for others, equal texts suffice. All
    answers so far are in the ``folder`` before the next step.
    """

    questions: Sequence[Question]
    source: AnswerSource
    reply_grader: ReplyGrader
    rewriter: Rewriter
    models: Models
    aggregators: Mapping[str, Aggregator]
    seed: int
    deferred_run: DeferredRun
    folder: Path
    watch: Stopwatch

    def __post_init__(self) -> None:
        self._blocks: list[RunState] = []
        conditions = {name: (each.axis, each.estimator) for name, each in self.source.conditions().items()}
        self._metadata = SamplingMetadata(self.reply_grader.first_line, self.source.early_stopping, conditions)

    def run(
        self, schedule: QuestionScheduler, score: Callable[[RunState], dict[str, Score]]
    ) -> tuple[RunState, dict[str, Score]]:
        """Sample, grade and score block after block until the schedule ends or the samplers take no more questions.

        Return the state of the run and its scores. Raises NothingKeptError if no question is kept, after writing the
        verdicts on the baseline answers.
        """
        state, scores = RunState(Rewritten([])), dict[str, Score]()
        limit = self.source.max_questions
        while len(state.kept) != limit and (block := schedule.next(scores)):
            rewritten = self._rewrite(block)
            if not schedule.left:
                self.models.release_writer()
            self._blocks.append(self._answer(rewritten, None if limit is None else limit - len(state.kept)))
            state = self._state()
            self._write_later(write_graded, state.all_graded)
            with self.watch.stage("scoring"):
                scores = score(state)
            if progress := schedule.in_words(scores):
                log.info("%s", progress)
        if not state.kept and state.graded_baseline.num_rows:
            write_question_status(state.questions, scores, self.folder, self.deferred_run.record)
        candidates = self.source.candidates(state.questions)
        if omitted := len(state.questions) - len(candidates):
            log.info(
                "%d of %d questions left out: the sampler needs rewrites, choices or accepted answers that they lack",
                *(omitted, len(state.questions)),
            )
        if not state.kept:
            self.source.select(candidates, state.graded_baseline)  # its error names examples from all blocks
            raise NothingKeptError("the samplers keep none of the selected questions: raise sampler.max_questions")
        return state, schedule.reported(scores)

    def _rewrite(self, questions: Sequence[Question]) -> Rewritten:
        """Return a block of questions with a model's rewrites; unchanged without a model that rewrites."""
        if not self.rewriter.asks:
            return Rewritten(list(questions))
        with self.watch.stage("rewriting"):
            rewritten = self.rewriter.rewrite(questions, self.models.writer, self.seed)
        self._write_later(write_rewrites, self._state(RunState(rewritten)).rewritten)
        return rewritten

    def _write_later(self, write: Callable[[_Value, Path], None], value: _Value) -> None:
        """Write a value, as it is now, into the folder as soon as the run has started."""
        self.deferred_run.then(lambda _: write(value, self.folder))

    def _answer(self, rewritten: Rewritten, limit: int | None) -> RunState:
        """Return a block of questions with their baseline answers, and with the further answers to the kept ones, at
        most ``limit``.
        """
        source = self.source
        block = RunState(rewritten, source.usable_questions(rewritten.questions))
        with self.watch.stage("baseline"), suppress(NothingKeptError):  # a later block may keep some
            candidates = source.candidates(block.questions)
            block = block._replace(baseline_answers=source.baseline(candidates))
            self._start_and_write(block)
            block = block._replace(graded_baseline=self.reply_grader.grade(candidates, block.baseline_answers))
            kept = source.select(candidates, block.graded_baseline)[:limit]
            block = block._replace(kept=kept)
            if kept and (block.baseline_answers.num_rows or isinstance(source, RecordedAnswers)):
                log.info("%s answers: %d of %d questions kept", source.baseline_name, len(kept), len(candidates))
        if block.kept:
            with self.watch.stage("sampling"):
                block = block._replace(answers_by_sampler=source.answers(block.kept, block.graded_baseline))
            self._start_and_write(block)
            with self.watch.stage("grading"):
                block = block._replace(graded_by_sampler=self._graded(block))
        return block

    def _graded(self, block: RunState) -> dict[str, pa.Table]:
        """Return the block's answers of each sampler with verdicts, and one label for those that mean the same."""
        return {
            sampler: self.aggregators.get(sampler, EqualText()).aggregate(
                block.kept, self.reply_grader.grade(block.kept, answers.table)
            )
            for sampler, answers in block.answers_by_sampler.items()
        }

    def _state(self, *unfinished: RunState) -> RunState:
        return joined([*self._blocks, *unfinished], self.questions)

    def _start_and_write(self, block: RunState) -> None:
        """Start the run, if it has not started, and write the loop's answers so far."""
        self.deferred_run.start()
        state = self._state(block)
        write_answers(state.baseline_answers, state.answers_by_sampler, self._metadata, self.folder)

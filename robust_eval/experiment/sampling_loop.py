"""Sampling loop over blocks of questions: rewrites, greedy answers, selection, answers of the samplers, verdicts."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.aggregator.base import Aggregator, EqualText
from robust_eval.answer import GREEDY, SCHEMA, Answers, SamplingMetadata
from robust_eval.experiment.answer_source import AnswerSource
from robust_eval.experiment.models import Models
from robust_eval.experiment.run_record import DeferredRun, write_answers, write_rewrites
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewriter, Rewritten
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.base import NothingKeptError
from robust_eval.sampler.recorded_answers import RecordedAnswers

log = logging.getLogger(__name__)


_Part = TypeVar("_Part", Answers, pa.Table)


class RunState(NamedTuple):
    """Questions and answers of a block, or of all blocks so far.

    ``rewritten`` are the questions with their rewrites, ``questions`` those of the run, ``kept`` those selected by
    their baseline answers (``ungraded_baseline``, and with verdicts ``baseline``). ``answers`` holds the answers of
    each sampler to these, ``graded`` the same with verdicts.
    """

    rewritten: Rewritten
    questions: Sequence[Question] = ()
    kept: Sequence[Question] = ()
    ungraded_baseline: pa.Table = SCHEMA.empty_table()
    baseline: pa.Table = SCHEMA.empty_table()
    answers: Mapping[str, Answers] = MappingProxyType({})
    graded: Mapping[str, pa.Table] = MappingProxyType({})

    @property
    def graded_by_sampler(self) -> dict[str, pa.Table]:
        """All graded answers, those of the baseline under :data:`~robust_eval.answer.GREEDY`."""
        return {GREEDY: self.baseline, **self.graded}


def joined(blocks: Sequence[RunState], order: Sequence[Question]) -> RunState:
    """Return all blocks as one, with questions and answers in ``order``."""
    if len(blocks) == 1:
        return blocks[0]
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
            questions(block.rewritten.questions for block in blocks),
            table(block.rewritten.found for block in blocks),
            table(block.rewritten.replies for block in blocks),
        ),
        questions(block.questions for block in blocks),
        questions(block.kept for block in blocks),
        table(block.ungraded_baseline for block in blocks),
        table(block.baseline for block in blocks),
        {name: answers(groups) for name, groups in _by_sampler(block.answers for block in blocks).items()},
        {name: table(groups) for name, groups in _by_sampler(block.graded for block in blocks).items()},
    )


def _by_sampler(blocks: Iterable[Mapping[str, _Part]]) -> dict[str, list[_Part]]:
    """Return the tables of each sampler; a block without a kept question has none."""
    by_sampler: dict[str, list[_Part]] = {}
    for block in blocks:
        for name, each in block.items():
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


@dataclass
class SamplingLoop:
    """Loop over blocks of ``questions``. All answers so far are in the ``folder`` before the next step.

    ``clusters`` has the aggregator of the samplers whose labels a metric reads. ``blocks`` are the states of the blocks
    so far; ``full`` is True once the samplers take no more questions.
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
    blocks: list[RunState] = field(default_factory=list)
    full: bool = False

    def __post_init__(self) -> None:
        self._metadata = SamplingMetadata(self.reply_grader.first_line, self.source.early_stopping)
        self._rewriter = self.rewriter.within(self.models.writer.temperatures)
        if not self._rewriter.asks:  # recorded rewrites are added to all questions at once
            self.questions = self._rewritten(self.questions).questions

    def rewrite(self, questions: Sequence[Question]) -> Rewritten:
        """Return questions with the rewrites of a model; unchanged without a model that rewrites."""
        if not self._rewriter.asks:
            return Rewritten(list(questions))
        rewritten = self._rewritten(questions)
        self.deferred_run.then(lambda _: write_rewrites(self._state_with(RunState(rewritten)).rewritten, self.folder))
        return rewritten

    def answer(self, rewritten: Rewritten) -> RunState:
        """Sample one more block (greedy answers, selection, further answers, verdicts); return the state of all blocks.

        A block in which no question is kept has no further answers. If no block has any, :meth:`refuse` has the reason.
        """
        source = self.source
        block = RunState(rewritten, source.asked(rewritten.questions))
        with self.watch.stage("baseline"), suppress(NothingKeptError):
            candidates = source.candidates(block.questions)
            block = block._replace(ungraded_baseline=source.baseline(candidates))
            self._write(block)
            block = block._replace(baseline=self.reply_grader.grade(candidates, block.ungraded_baseline))
            block = block._replace(kept=self._kept(source.select(candidates, block.baseline)))
            if block.kept and (block.ungraded_baseline.num_rows or isinstance(source, RecordedAnswers)):
                log.info("%s answers: %d of %d questions kept", source.baseline_name, len(block.kept), len(candidates))
        if block.kept:
            with self.watch.stage("sampling"):
                block = block._replace(answers=source.answers(block.kept, block.baseline))
            self._write(block)
            with self.watch.stage("grading"):
                block = block._replace(graded=grade(self.reply_grader, self.clusters, block.kept, block.answers))
        self.blocks.append(block)
        return joined(self.blocks, self.questions)

    def refuse(self, state: RunState) -> NoReturn:
        """Raise the NothingKeptError of a run in which no question is kept, by all of its questions."""
        self.source.select(self.source.candidates(state.questions), state.baseline)
        raise NothingKeptError("the samplers take none of the selected questions: raise their maximum number")

    def _kept(self, selected: list[Question]) -> list[Question]:
        """Return the selected questions of a block, no more than the samplers take with those of earlier blocks."""
        before = [question for block in self.blocks for question in block.kept]
        kept = self.source.at_most([*before, *selected])[len(before) :]
        chosen = [*before, *kept]
        self.full = bool(chosen) and len(self.source.at_most([*chosen, chosen[-1]])) == len(chosen)
        return kept

    def _rewritten(self, questions: Sequence[Question]) -> Rewritten:
        with self.watch.stage("rewriting"):
            return self._rewriter.rewrite(questions, self.models.writer, self.seed)

    def _state_with(self, block: RunState) -> RunState:
        return joined([*self.blocks, block], self.questions)

    def _write(self, block: RunState) -> None:
        """Begin the run, if it has not begun, and write the answers so far."""
        self.deferred_run()
        state = self._state_with(block)
        write_answers(state.ungraded_baseline, state.answers, self._metadata, self.folder)

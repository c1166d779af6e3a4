"""Asking questions: rewrites, greedy answers, the selection by them, the answers of the samplers, their verdicts."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from robust_eval.answer import SamplingMetadata
from robust_eval.config.config import Config
from robust_eval.experiment.answered import Answered, joined
from robust_eval.experiment.answering import Asked, Recorded
from robust_eval.experiment.beginning import Beginning
from robust_eval.experiment.grade import grade
from robust_eval.experiment.models import Models
from robust_eval.experiment.output import write_answers, write_rewrites
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.base import NothingKeptError

log = logging.getLogger(__name__)


@dataclass
class Asking:
    """Asks block after block of ``questions``. Whatever came lies in the ``folder`` before the next step.

    ``read`` names the sampler whose answers each metric reads. ``parts`` are the blocks that were asked, ``full`` says
    whether the samplers take no more questions.
    """

    config: Config
    questions: Sequence[Question]
    source: Asked | Recorded
    models: Models
    read: Mapping[str, str]
    begin: Beginning
    folder: Path
    watch: Stopwatch
    parts: list[Answered] = field(default_factory=list)
    full: bool = False

    def __post_init__(self) -> None:
        self._how = SamplingMetadata(self.config.judge.first_line, self.source.undecided)
        self._rewriter = self.config.rewriter.within(self.models.writer.temperatures)
        if not self._rewriter.asks:  # what there is, is given to all at once
            self.questions = self._rewritten(self.questions).questions

    def rewrite(self, block: Sequence[Question]) -> Rewritten:
        """Return questions with the rewrites that a model is asked for; as they are, where none is."""
        if not self._rewriter.asks:
            return Rewritten(list(block))
        rewritten = self._rewritten(block)
        self.begin.then(lambda _: write_rewrites(self._with(Answered(rewritten)).rewritten, self.folder))
        return rewritten

    def answer(self, rewritten: Rewritten) -> Answered:
        """Ask for the greedy answers of one more block, select by them, ask for the answers of the samplers and grade
        them. Return everything that was answered until now.

        There may be no question that is kept: :meth:`refuse_nothing` says why.
        """
        source, judge = self.source, self.config.judge
        part = Answered(rewritten, source.asked(rewritten.questions))
        try:
            with self.watch.stage("baseline"):
                candidates = source.candidates(part.questions)
                part = part._replace(greedy=source.baseline(candidates))
                self._leave(part)
                part = part._replace(baseline=judge.grade(candidates, part.greedy))
                part = part._replace(kept=self._within_most(source.select(candidates, part.baseline)))
            if part.greedy.num_rows or isinstance(source, Recorded):
                log.info("%s answers: %d of %d questions kept", source.greedy, len(part.kept), len(candidates))
            with self.watch.stage("sampling"):
                part = part._replace(answers=source.answers(part.kept, part.baseline))
            self._leave(part)
            with self.watch.stage("grading"):
                part = part._replace(graded=grade(self.config, part.kept, part.answers, self.read))
        except NothingKeptError:
            log.debug("no question of this block is kept")
        self.parts.append(part)
        return joined(self.parts, self.questions)

    def refuse_nothing(self, answered: Answered) -> None:
        """Raise NothingKeptError, which says why, where no question at all is kept."""
        if not answered.kept:
            self.source.select(self.source.candidates(answered.questions), answered.baseline)

    def _within_most(self, selected: list[Question]) -> list[Question]:
        """Return the questions that are selected, without those that would be too many with those kept before."""
        before = [question for part in self.parts for question in part.kept]
        kept = self.source.at_most([*before, *selected])[len(before) :]
        self.full = len(kept) < len(selected)
        if not kept:
            raise NothingKeptError("the samplers take no more questions")
        return kept

    def _rewritten(self, questions: Sequence[Question]) -> Rewritten:
        with self.watch.stage("rewriting"):
            return self._rewriter.rewrite(questions, self.models.writer, self.config.seed)

    def _with(self, part: Answered) -> Answered:
        return joined([*self.parts, part], self.questions)

    def _leave(self, part: Answered) -> None:
        """Begin the run, if it has not begun, and write the answers so far."""
        self.begin()
        so_far = self._with(part)
        write_answers(so_far.greedy, so_far.answers, self._how, self.folder)

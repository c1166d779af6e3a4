"""The plan of a run: how many answers, requests and tokens it will ask for, and what they cost."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat

import pyarrow as pa

from robust_eval.answer import SCHEMA
from robust_eval.config.config import Config
from robust_eval.experiment.answering import Asked, Recorded, answering
from robust_eval.experiment.comparing import asking_judge, most_compared
from robust_eval.experiment.load import load
from robust_eval.experiment.models import Models
from robust_eval.experiment.undecided import expected_share
from robust_eval.grader.judge import Judge
from robust_eval.model.base import Request
from robust_eval.model.workload import Workload
from robust_eval.question import Question
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.base import THOUGHT, TURN
from robust_eval.store.keys import answers_key
from robust_eval.store.stored_model import NotStoredError, StoredModel

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Requests that are asked together. ``missing`` are those whose answers are not in the store."""

    name: str
    model: StoredModel
    requests: int
    missing: Sequence[Request]
    at_most: bool
    """Whether there may be fewer requests: they follow from answers that are not there yet."""
    undecided: bool | None = None
    """Whether it asks no more than breaking temperatures need; False: it could."""
    times: Sequence[int] | None = None
    """How many requests each of the missing ones stands for; None: itself."""

    def workload(self) -> Workload:
        """Return what it takes to answer the missing requests."""
        return self.model.config.terms().workload(self.missing, repeat(1) if self.times is None else self.times)


def stages_of(config: Config) -> list[Stage]:
    """Return what a run with this configuration would ask, stage by stage; nothing is asked."""
    with config.store.open() as entries:
        models = Models(config, entries, Stopwatch())
        config = models.judging(config, closed=True)
        source = answering(config, models.measured.closed())
        with _quiet():
            questions = load(config).questions
            if isinstance(source, Recorded):  # it reads answers that are there
                return _asked_of_recorded(source, config, questions)
        return plan(config, questions, models.writer.closed(), source)


def check_plan(
    config: Config, questions: Sequence[Question], writer: StoredModel, source: Asked | Recorded, watch: Stopwatch
) -> None:
    """Refuse what cannot be asked before anything is; of a model behind a server, say how much will be asked.

    Raises UserError for a question that the prompt answers, and where the server cannot answer what it will be asked.
    """
    if isinstance(source, Recorded):
        return
    source.asked(questions)
    judge = source.judge.grader.judge
    if writer.config.remote or source.model.config.remote or (judge is not None and judge.config.remote):
        with watch.stage("planning"):
            stages = plan(config, questions, writer, source)
            check(stages)
        log.info("to be asked: %s", in_words(stages))
        for sentence in asking_less(stages):
            log.info(sentence)


def plan(config: Config, questions: Sequence[Question], writer: StoredModel, collection: Asked) -> list[Stage]:
    """Return the stages of a run in their order; nothing is asked.

    Where a stage depends on answers that are not in the store, the most is counted: all rewrites of each question, and
    a right greedy answer to each. It may be fewer questions where the run ends once figures are known (``until``).
    """
    stages: list[Stage] = []
    uncertain = bool(config.until)
    model = collection.model
    judge = collection.judge.cached_only()
    collection = replace(collection, model=model.closed(), judge=judge)
    comparing = asking_judge(config, collection.conditions())
    verdicts: list[Request] = []
    compared: list[tuple[Request, int]] = []
    with _quiet():
        try:
            rewriter = config.rewriter.within(writer.temperatures)
            questions = rewriter.rewrite(questions, writer.closed(), config.seed).questions
        except NotStoredError as lacking:
            stages.append(Stage(lacking.stage, writer, lacking.requests, lacking.missing, uncertain))
            questions, uncertain = rewriter.expected(questions), True
        kept = candidates = collection.candidates(collection.asked(questions))
        baseline = graded = None
        try:
            baseline = collection.baseline(candidates)
            graded = judge.grade(candidates, baseline)
            kept = collection.select(candidates, graded)
        except NotStoredError as lacking:
            if baseline is None:
                stages.append(Stage(lacking.stage, model, lacking.requests, lacking.missing, uncertain))
                verdicts += [each for question in candidates for each in judge.grader.expected_requests(question, 1)]
            else:
                verdicts += lacking.missing
            kept = collection.at_most(kept)
            uncertain |= any(sampler.selects for sampler in collection.samplers.values())
        for name in collection.samplers:
            number, missing = collection.missing(name, kept, graded)
            if not number:
                continue
            at_most = uncertain or name in collection.undecided or collection.samplers[name].axis in (TURN, THOUGHT)
            undecided = True if name in collection.undecided else False if name in collection.could_ask_less else None
            stages.append(Stage(collection.stage(name), model, number, missing, at_most, undecided))
            if judge.grader.uses_model:
                verdicts += _verdicts_on(collection, name, kept, missing, graded)
            if name in comparing:
                requests = collection.requests(name, kept)
                there = None if missing else _there(collection, name, kept, graded)
                compared += most_compared(comparing[name], judge, kept, requests, there)
    return stages + _of_judge(judge.grader.judge, verdicts, compared)


def _there(collection: Asked, name: str, kept: Sequence[Question], baseline: pa.Table | None) -> pa.Table:
    """Return the answers of a sampler, which are all in the store."""
    greedy = SCHEMA.empty_table() if baseline is None else baseline
    return collection.all_answers(name, collection.requests(name, kept), kept, greedy).table


def _verdicts_on(
    collection: Asked, name: str, kept: Sequence[Question], missing: Sequence[Request], baseline: pa.Table | None
) -> list[Request]:
    """Return the verdicts that are not there on the answers of a sampler: at most one an answer, if not all are."""
    if not missing:
        return _lacking(collection.judge, kept, _there(collection, name, kept, baseline))
    by_id = {question.id: question for question in kept}
    return [
        each
        for request in collection.requests(name, kept)
        for each in collection.judge.grader.expected_requests(by_id[request.question_id], request.answers)
    ]


def _asked_of_recorded(source: Recorded, config: Config, questions: Sequence[Question]) -> list[Stage]:
    """Return what a judge would be asked of recorded answers; nothing where no model judges."""
    judge = config.judge.cached_only()
    if judge.grader.judge is None:
        return []
    asked = source.asked(questions)
    answers = {name: each.table for name, each in source.answers(asked, source.baseline(asked)).items()}
    tables = [source.baseline(asked), *answers.values()]
    missing = [request for table in tables for request in _lacking(judge, asked, table)]
    compared = [
        each
        for name, aggregator in asking_judge(config, source.conditions()).items()
        for each in most_compared(aggregator, judge, asked, [], answers[name])
    ]
    return _of_judge(judge.grader.judge, missing, compared)


def _of_judge(
    judge: StoredModel | None, verdicts: Sequence[Request], compared: Sequence[tuple[Request, int]]
) -> list[Stage]:
    """Return what a judge is asked as stages: for verdicts, and whether answers mean the same; none without a judge."""
    if judge is None:
        return []
    stages = [Stage("verdicts", judge, len(verdicts), verdicts, False, bool(verdicts))]
    if compared:
        first, times = zip(*compared, strict=True)
        stages.append(Stage("answers compared", judge, len(first), first, False, True, times=times))
    return stages


def _lacking(judge: Judge, questions: Sequence[Question], answers: pa.Table) -> list[Request]:
    try:
        judge.grade(questions, answers)
    except NotStoredError as lacking:
        return lacking.missing
    return []


def unplanned(stages: Sequence[Stage], planned: dict[bytes, set[tuple[float, int]]]) -> list[Stage]:
    """Return the stages without the answers that other runs with the same store have ``planned`` to ask for.

    ``planned`` maps keys of the store to the temperature and trial of answers; those of these stages are added to it.
    """
    left = []
    for stage in stages:
        missing, times = [], []
        for request, number in zip(stage.missing, stage.times or repeat(1), strict=False):
            before = planned.setdefault(answers_key(stage.model.identity, request), set())
            wanted = {(t, trial) for t in request.temperatures for trial in range(max(1, request.trials))}
            if wanted - request.cached - before:
                known = request.cached | before if stage.model.config.remote else request.cached
                missing.append(replace(request, cached=known))
                times.append(number)
            before |= wanted
        left.append(replace(stage, requests=len(missing), missing=missing, times=stage.times and times))
    return left


def check(stages: Sequence[Stage]) -> None:
    """Raise UserError where a model behind a server cannot answer what it will be asked, and say what would work."""
    for model in {id(stage.model): stage.model for stage in stages}.values():
        own = [stage for stage in stages if stage.model is model]
        model.check([request for stage in own for request in stage.missing])


def in_words(stages: Sequence[Stage]) -> str:
    """Format what the stages ask together, in one line."""
    whole = total(stages)
    if not whole.answers:
        return "nothing, every answer is there"
    most = "at most " if any(stage.at_most for stage in stages) else ""
    cost = "" if whole.cost is None else f", a cost of at most {whole.cost:,.2f}"
    thought = f" ({whole.reasoning_tokens:,} of them for reasoning)" if whole.reasoning_tokens else ""
    time = f", {duration(whole.seconds)} at least" if whole.seconds else ""
    return (
        f"{most}{whole.answers:,} answers in {whole.requests:,} requests, about {whole.prompt_tokens:,} prompt tokens, "
        f"at most {whole.completion_tokens:,} completion tokens{thought}{cost}{time}"
    )


def asking_less(stages: Sequence[Stage]) -> list[str]:
    """Return what is expected of the stages that ask no more than breaking temperatures need, and what those would save
    and leave out that could, of a model behind a server.
    """
    said = []
    for stage in stages:
        answers = stage.workload().answers
        share, reason = expected_share(stage.model.identity)
        about = f"about {math.ceil(share * answers):,} of {answers:,} {stage.name} ({reason})"
        if stage.undecided and answers:
            said.append(f"sampler.ask=undecided: {about} are expected")
        elif stage.undecided is False and answers and stage.model.config.remote:
            said.append(
                f"sampler.ask=undecided would ask for {about} and give the same breaking temperatures and FRS, without "
                "the accuracy at each temperature and the certainty of replies"
            )
    return said


def total(stages: Iterable[Stage]) -> Workload:
    """Return the sum of what the stages take."""
    return sum((stage.workload() for stage in stages), start=Workload())


def duration(seconds: float) -> str:
    """Format a time, rounded up.

    >>> duration(30), duration(5400), duration(200_000)
    ('30 s', '1 h 30 min', '55 h 34 min')
    """
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log: the run itself will say it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)

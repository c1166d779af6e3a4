"""Plan of a run: its answers, requests and tokens, and their cost."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.aggregator.base import Aggregator
from robust_eval.answer import SAMPLER, Answers, at_temperature
from robust_eval.config.config import Config
from robust_eval.error import UserError
from robust_eval.experiment.answer_source import UNANSWERABLE_STAGE, AnswerSource, SampledSource, answer_source
from robust_eval.experiment.load import load
from robust_eval.experiment.models import Models
from robust_eval.experiment.scoring import Scoring
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.metric.metric_spec import at_words, nearest_to_one
from robust_eval.metric.sampler_choice import choose_samplers
from robust_eval.metric.variance_metric import AnswerVariance, VarianceDecomposition, answer_variance
from robust_eval.model.base import Request
from robust_eval.model.workload import Workload
from robust_eval.question import Question
from robust_eval.rewriter.base import Rewriter
from robust_eval.runs.finished_runs import KEY, FinishedRun, read_run
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.runtime.process import Stopwatch
from robust_eval.runtime.text import cost_bound, duration
from robust_eval.sampler.base import REASONING, TURN, NothingKeptError
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.store.base import NoStore
from robust_eval.store.stored_model import NotStoredError, StoredModel
from robust_eval.tracking.flat_settings import read_settings
from robust_eval.tracking.run_folder import CONFIG, GRADED, SUMMARY

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Stage of a plan: requests that are sent together. ``missing`` are those without an answer in the store."""

    name: str
    model: StoredModel
    requests: int
    missing: Sequence[Request]
    is_upper_bound: bool
    """True for an upper bound, because later requests depend on answers that are not sampled yet."""
    times: Sequence[int] | None = None
    """Number of requests for which each missing one stands; None: one each."""

    def workload(self) -> Workload:
        """Return the workload of the stage's missing requests."""
        return self.model.config.service_limits().workload(
            self.missing, repeat(1) if self.times is None else self.times
        )


def stages_of(config: Config) -> list[Stage]:
    """Return the plan of a run with this configuration, stage by stage; no request is sent."""
    store = config.store if config.store.exists() else NoStore()  # open() creates one
    with store.open() as entries:
        models = Models(config, entries, Stopwatch())
        reply_grader, aggregator = models.with_judge(cached_only=True)
        model = models.measured.cached_only()
        source, metrics = answer_source(config, model, reply_grader)
        aggregators = Scoring.of(metrics, source, config.seed).aggregators(aggregator)
        with _quiet():
            questions = load(config.dataset, config.grader, config.question_types).questions
            if not isinstance(source, SampledSource):
                source.check_questions(questions)
                return _judge_stages_of_recorded(source, reply_grader, questions, aggregators)
        writer, may_end_early = models.writer.cached_only(), bool(config.target_half_width)
        return plan(questions, config.rewriter, writer, source, aggregators, may_end_early)


def check_plan(
    questions: Sequence[Question],
    rewriter: Rewriter,
    writer: StoredModel,
    source: AnswerSource,
    aggregators: Mapping[str, Aggregator],
    may_end_early: bool,
    watch: Stopwatch,
) -> None:
    """Check the plan: refuse unanswerable requests before the first is sent; log it for a model behind a server.

    Raises UserError for a question that is an exemplar of the prompt, for requests beyond a server's capabilities, and
    for recorded answers to unknown questions.
    """
    source.check_questions(questions)
    if not isinstance(source, SampledSource):
        return
    judge = source.reply_grader.grader.judge
    if writer.config.remote or source.model.config.remote or (judge is not None and judge.config.remote):
        with watch.stage("planning"):
            stages = plan(questions, rewriter, writer, source, aggregators, may_end_early)
            check(stages)
        log.info("to request: %s", in_words(stages))
        for sentence in server_warnings(stages):
            log.info(sentence)


def plan(
    questions: Sequence[Question],
    rewriter: Rewriter,
    writer: StoredModel,
    source: SampledSource,
    aggregators: Mapping[str, Aggregator],
    may_end_early: bool,
) -> list[Stage]:
    """Plan a run: return its stages in their order; no request is sent.

    If a stage depends on answers that are not in the store, the maximum is counted: all rewrites of each question, and
    a right greedy answer to each. No stage follows stored baseline answers by which no question is kept.
    ``aggregators`` has the aggregators of samplers, of which some ask the judge. ``may_end_early`` is True for a run
    that ends once its metrics are precise enough.
    """
    stages: list[Stage] = []
    uncertain = may_end_early
    model = source.model
    reply_grader = source.reply_grader.cached_only()
    source = replace(source, model=model.cached_only(), reply_grader=reply_grader)
    verdicts: list[Request] = []
    compared: list[tuple[Request, int]] = []
    with _quiet():
        rewriter = rewriter.within(writer.temperatures)
        try:
            questions = rewriter.rewrite(questions, writer.cached_only(), source.seed).questions
        except NotStoredError as lacking:
            stages.append(Stage(lacking.stage, writer, lacking.requests, lacking.missing, uncertain))
            questions, uncertain = rewriter.expected(questions), True
        selected = candidates = source.candidates(source.usable_questions(questions))
        baseline = graded = None
        try:
            baseline = source.baseline(candidates)
            graded = reply_grader.grade(candidates, baseline)
            selected = source.select(candidates, graded)
        except NothingKeptError:  # the run raises it, after writing the verdicts on these answers
            return stages
        except NotStoredError as lacking:
            if baseline is None:
                stages.append(Stage(lacking.stage, model, lacking.requests, lacking.missing, uncertain))
                verdicts += [
                    each for question in candidates for each in reply_grader.grader.expected_requests(question, 1)
                ]
            else:
                verdicts += lacking.missing
            selected = selected[: source.max_questions]
            uncertain |= source.selects_by_baseline
        parts = [(name, source.stage(name), selected) for name in source.samplers]
        if source.unanswerable is not None:
            parts.append((source.unanswerable.sampler, UNANSWERABLE_STAGE, [*source.unanswerable.questions]))
        for name, stage, selected in parts:
            requests = source.requests(name, selected)
            if not requests:
                continue
            missing, stored = source.missing(name, selected, graded)
            may_be_fewer = name in source.early_stopping or source.samplers[name].axis in (TURN, REASONING)
            stages.append(Stage(stage, model, len(requests), missing, uncertain or may_be_fewer))
            if reply_grader.grader.uses_judge:
                verdicts += _verdicts_on(reply_grader, selected, requests, stored)
            if stage != UNANSWERABLE_STAGE and name in aggregators and aggregators[name].uses_judge:
                compared += max_judge_comparisons(
                    aggregators[name], reply_grader, selected, requests, stored and stored.table
                )
    return stages + _judge_stages(reply_grader.grader.judge, verdicts, compared)


def _verdicts_on(
    reply_grader: ReplyGrader, questions: Sequence[Question], requests: Sequence[Request], stored: Answers | None
) -> list[Request]:
    """Return the requests for missing verdicts on a sampler's answers; one per answer, if answers are missing."""
    if stored is not None:
        return _missing_verdicts(reply_grader, questions, stored.table)
    by_id = {question.id: question for question in questions}
    return [
        each
        for request in requests
        for each in reply_grader.grader.expected_requests(by_id[request.question_id], request.max_answers)
    ]


def _judge_stages_of_recorded(
    source: RecordedAnswers,
    reply_grader: ReplyGrader,
    questions: Sequence[Question],
    aggregators: Mapping[str, Aggregator],
) -> list[Stage]:
    """Return the plan's requests to a judge of recorded answers as stages; none without a judge."""
    reply_grader = reply_grader.cached_only()
    if reply_grader.grader.judge is None:
        return []
    answered = source.usable_questions(questions)
    baseline = source.baseline(answered)
    answers = {name: each.table for name, each in source.answers(answered, baseline).items()}
    tables = [baseline, *answers.values()]
    missing = [request for table in tables for request in _missing_verdicts(reply_grader, answered, table)]
    compared = [
        each
        for name, aggregator in aggregators.items()
        if aggregator.uses_judge
        for each in max_judge_comparisons(aggregator, reply_grader, answered, [], answers[name])
    ]
    return _judge_stages(reply_grader.grader.judge, missing, compared)


def _judge_stages(
    judge: StoredModel | None, verdicts: Sequence[Request], compared: Sequence[tuple[Request, int]]
) -> list[Stage]:
    """Return the plan's stages of a judge: verdicts, and comparisons of answers; none without a judge."""
    if judge is None:
        return []
    stages = [Stage("verdicts", judge, len(verdicts), verdicts, is_upper_bound=bool(verdicts))]
    if compared:
        first, times = zip(*compared, strict=True)
        stages.append(Stage("answers compared", judge, len(first), first, is_upper_bound=True, times=times))
    return stages


def _missing_verdicts(reply_grader: ReplyGrader, questions: Sequence[Question], answers: pa.Table) -> list[Request]:
    try:
        reply_grader.grade(questions, answers)
    except NotStoredError as lacking:
        return lacking.missing
    return []


def max_judge_comparisons(
    aggregator: Aggregator,
    reply_grader: ReplyGrader,
    questions: Sequence[Question],
    requests: Sequence[Request],
    answers: pa.Table | None,
) -> list[tuple[Request, int]]:
    """Return the possible requests to a cache-only judge about ``answers`` (Aggregator.max_comparisons).

    Missing answers (None) to the ``requests`` count as all different.
    """
    grader = reply_grader.grader  # labels of free text depend on two of its settings, and on the judge of abstentions
    abstention = "none" if grader.abstention == "judge" else grader.abstention
    by_form = Matching(abstention=abstention, accents=grader.accents)
    if answers is None:
        labelled = _all_different(questions, requests)
    else:
        labelled = replace(reply_grader, grader=by_form).grade(questions, answers)
    return aggregator.with_judge(grader).max_comparisons(questions, labelled)


def _all_different(questions: Sequence[Question], requests: Sequence[Request]) -> pa.Table:
    """Return labelled answers to free-text questions, all different, each as long as the longest accepted answer."""
    longest = {each.id: max(each.answers, key=len) for each in questions if each.answers and not each.choices}
    numbers: Counter[str] = Counter()
    for request in requests:
        numbers[request.question_id] += request.max_answers
    pairs = [
        (question_id, f"{text} {number}")
        for question_id, text in longest.items()
        for number in range(numbers[question_id])
    ]
    ids, texts = [each[0] for each in pairs], [each[1] for each in pairs]
    return pa.table({"question_id": ids, "label": texts, "text": texts, "answer": texts})


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log while planning; the run repeats it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def deduplicated(stages: Sequence[Stage], planned: dict[bytes, set[tuple[float, int]]]) -> list[Stage]:
    """Return a plan's stages without the answers that other runs with the same store have ``planned``.

    ``planned`` maps keys of the store to the temperature and trial of answers; those of these stages are added to it.
    """
    left = []
    for stage in stages:
        missing, times = [], []
        for request, number in zip(stage.missing, stage.times or repeat(1), strict=False):
            before = planned.setdefault(stage.model.key(request), set())
            conditions = {(t, trial) for t in request.temperatures for trial in range(max(1, request.trials))}
            if conditions - request.cached - before:
                cached = request.cached if stage.model.config.uses_torch else request.cached | before
                missing.append(replace(request, cached=cached))
                times.append(number)
            before |= conditions
        requests = stage.requests - len(stage.missing) + len(missing)
        left.append(replace(stage, requests=requests, missing=missing, times=stage.times and times))
    return left


def check(stages: Sequence[Stage]) -> None:
    """Raise UserError, with settings that would work, for planned requests that a served model does not support."""
    for model in {id(stage.model): stage.model for stage in stages}.values():
        of_model = [stage for stage in stages if stage.model is model]
        model.check([request for stage in of_model for request in stage.missing])


def total(stages: Iterable[Stage]) -> Workload:
    """Return the total workload of the plan's stages."""
    return sum((stage.workload() for stage in stages), start=Workload())


def in_words(stages: Sequence[Stage], is_counted_elsewhere: bool = False) -> str:
    """Format the total of the plan's stages in one line.

    ``is_counted_elsewhere`` is True if answers that other jobs request as well are only counted there
    (:func:`deduplicated`).
    """
    whole = total(stages)
    if not whole.answers:
        return f"nothing: all answers are in the store{', or counted for another job' * is_counted_elsewhere}"
    bound = "at most " if any(stage.is_upper_bound for stage in stages) else ""
    cost = "" if whole.cost is None else f", a cost of at most {cost_bound(whole.cost)} USD"
    reasoning = f" ({whole.reasoning_tokens:,} of them for reasoning)" if whole.reasoning_tokens else ""
    time = f", at least {duration(whole.seconds)}" if whole.seconds else ""
    return (
        f"{bound}{whole.answers:,} answers in {whole.requests:,} requests, about "
        f"{whole.prompt_tokens:,} prompt tokens, "
        f"at most {whole.completion_tokens:,} completion tokens{reasoning}{cost}{time}"
    )


SILENT_BUDGETS = (
    "a server or router may silently ignore a reasoning budget: the run compares the tokens of the largest and the "
    "smallest budget, so begin with dataset.limit=10"
)


RESTRICTED = "sampler.structured=true: the server restricts replies to letters, unlike the protocols of the papers"


def server_warnings(stages: Sequence[Stage]) -> list[str]:
    """Return the plan's warnings: a sentence if a server gets reasoning budgets, which it may ignore without an error,
    and one if it restricts replies.
    """
    served = [request for stage in stages if stage.model.config.remote for request in stage.missing]
    budgets = {request.reasoning.most for request in served if request.reasoning is not None} - {None}
    restricted = any(request.signs for request in served)
    return [SILENT_BUDGETS] * (len(budgets) > 1) + [RESTRICTED] * restricted


MAX_RUNS = 100
"""Maximum number of earlier runs, the latest first, among which a plan looks for one with the same data."""


def expected_interval(config: Config) -> str:
    """Return the plan's sentences on the interval of the mean accuracy with more questions, trials and rewrites, by the
    latest finished run with the model, the questions (or some of them, or more) and the temperature of this
    configuration; empty without one.
    """
    try:
        name = choose_samplers({"variance": VarianceDecomposition()}, config.sampler)["variance"]
    except UserError:  # one answer each
        return ""
    t, planned = nearest_to_one(config.sampler[name].temperatures), set[tuple[str, str, str]]()
    for folder in _latest_runs(Path(config.paths.mlruns)):
        with suppress(UserError, OSError, ValueError, KeyError):  # of a damaged run
            settings = read_settings(folder / CONFIG)
            if (
                settings["model.name"] != config.model.name
                or settings.get(f"sampler.{name}.early_stop")
                or t not in settings[f"sampler.{name}.temperatures"]
            ):
                continue
            run = read_run(folder)
            asked = {(*each, key) for each, key in zip(run.keys(), run.questions[KEY].to_pylist(), strict=True)}
            with _quiet():
                planned = planned or {(question.id, question.title, question.key) for question in config.dataset.load()}
            if asked <= planned or planned <= asked:
                words = _variance_of(run, folder, name, t).interval_words
                return f"In the run {folder}, the interval of the mean accuracy {at_words(t)} is {words}"
    return ""


def _latest_runs(mlruns: Path) -> list[Path]:
    """Return the folders of the latest finished runs and jobs of sweeps, the latest first."""
    files = [*(mlruns / "runs").glob(f"*/*/{SUMMARY}"), *(mlruns / "sweeps").glob(f"*/*/*/{SUMMARY}")]
    latest = sorted(files, key=lambda file: file.relative_to(mlruns).parts[1:], reverse=True)
    return [file.parent for file in latest[:MAX_RUNS]]


def _variance_of(run: FinishedRun, folder: Path, sampler: str, temperature: float) -> AnswerVariance:
    """Return the variance of a sampler's answers in the folder of a run; ValueError if it has no component."""
    columns = ["question_id", "rewrite", "temperature", "correct", "outcome", SAMPLER]
    graded = read_parquet(folder / GRADED, columns)
    answers = at_temperature(graded.filter(pc.equal(graded[SAMPLER], sampler)), temperature)
    variance = answer_variance(answers, run.groups_by_id())
    if math.isnan(variance.standard_error()):
        raise ValueError(f"{folder} has too few answers")
    return variance

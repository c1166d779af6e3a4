"""Run record: all writes of a run into its folder and its tracker, in their order, and comparison of a repeated run."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import Timeout
from omegaconf import DictConfig

from robust_eval.answer import (
    GREEDY,
    SAMPLER,
    Answers,
    SamplingMetadata,
    concat_by_sampler,
    read_answers,
    rows,
    temperature_name,
    with_sampling_metadata,
)
from robust_eval.config.schema import repeatable
from robust_eval.error import OtherRunError
from robust_eval.grader.base import Grader
from robust_eval.metric.metric_spec import as_json
from robust_eval.metric.score import Score
from robust_eval.plot.figure_files import save_figures
from robust_eval.question import Question
from robust_eval.report.mlflow_tables import run_note, run_tables
from robust_eval.report.page import write_page
from robust_eval.report.traced_answers import traced_answers
from robust_eval.rewriter.base import Rewritten
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.runtime.process import process_lock
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.runtime.versions import environment
from robust_eval.tracking.base import Run
from robust_eval.tracking.flat_settings import decided, effective
from robust_eval.tracking.result import Result, by_question
from robust_eval.tracking.run_folder import (
    ANSWERS,
    CONFIG,
    CURVES_FILE,
    ERROR,
    GRADED,
    LOADED,
    LOG,
    METRICS,
    QUESTIONS,
    REPORT,
    REWRITES,
    SUMMARY,
    TRACKED,
    VERDICTS,
)


class DeferredRun:
    """Deferred run: it starts with the first request, or the first cache hit.

    Until then it has nothing in the tracker and nothing in its folder; later writes wait. Its ``labels`` for searches
    may change until then.
    """

    def __init__(self, open_record: Callable[[Mapping[str, object]], Run], labels: Mapping[str, object]) -> None:
        self._open_record = open_record
        self.labels = {**labels}
        self._record: Run | None = None
        self._waiting: list[Callable[[Run], object]] = []

    def start(self) -> None:
        """Start the run's record, unless it has started, and make the waiting writes."""
        if self._record is None:
            self._record = self._open_record(self.labels)
            for write in self._waiting:
                write(self._record)
            self._waiting.clear()

    @property
    def record(self) -> Run:
        """Record of the deferred run, which has started."""
        assert self._record is not None
        return self._record

    def then(self, write: Callable[[Run], object]) -> None:
        """Call ``write`` with the record as soon as the deferred run has started."""
        if self._record is None:
            self._waiting.append(write)
        else:
            write(self._record)


@contextmanager
def locked(folder: Path, composed: DictConfig) -> Iterator[None]:
    """Lock the folder of a run while it is recorded.

    A folder with nothing but the log is removed afterwards, with the folder of its day if that is empty. Raises
    OtherRunError for a folder in use, or with a run of another configuration.
    """
    lock = process_lock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as problem:
        raise OtherRunError(f"another run is using {folder}: choose another folder (hydra.run.dir)") from problem
    try:
        file = folder / CONFIG
        if file.is_file() and file.read_text(encoding="utf-8") != repeatable(composed):
            raise OtherRunError(f"{folder} contains a run with other settings: choose another folder (hydra.run.dir)")
        yield
    finally:
        if {path.name for path in folder.iterdir()} <= {LOG}:
            (folder / LOG).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        if not folder.exists() and folder.parent.parent == Path(composed.paths.mlruns) / "runs":
            with suppress(OSError):  # of a folder with other runs
                folder.parent.rmdir()


COUNTED = (
    *("questions.asked", "questions.kept", "prompts.asked", "prompts.cached"),
    *("replies.received", "replies.truncated", "replies.uncertain"),
)
"""Counts among the metrics of a tracked run, for searches."""


def run_name(labels: Mapping[str, object], swept: str | None) -> str:
    """Return the name of a run in a tracker: the method, the model, the data set, and the swept settings."""
    return ", ".join(filter(None, (*(str(labels[name]) for name in ("method", "model", "dataset")), swept)))


def record_start(
    settings: Mapping[str, Any], labels: Mapping[str, object], composed: DictConfig, folder: Path, record: Run
) -> None:
    """Record the start of a run: write configuration and environment into the folder and the tracker."""
    versions = environment()
    for name in (ERROR, SUMMARY, QUESTIONS):  # of an earlier attempt at the same run
        (folder / name).unlink(missing_ok=True)
    (folder / CONFIG).write_text(repeatable(composed), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    record.write_id(folder / TRACKED)
    record.parameters({**decided(settings), **labels})
    record.tags(versions)


def run_labels(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings for searches of runs, under their common names."""
    chosen = {
        group: "+".join(dict.fromkeys(name.split(".")[1] for name in settings if name.startswith(f"{group}.")))
        for group in COMBINABLE_GROUPS
    }
    labels: dict[str, object] = {"method": chosen["metric"], "sampler": chosen["sampler"]}
    labels |= {name: settings.get(f"{name}.name") for name in ("model", "dataset")}
    return labels | ({"d": settings["metric.frs.d"]} if "metric.frs.d" in settings else {})


def write_rewrites(rewritten: Rewritten, folder: Path) -> None:
    """Record the replies to requests for rewrites, and the fate of each rewrite, if any."""
    if rewritten.replies.num_rows:
        write_parquet(rewritten.replies, folder / "rewriting.parquet")
        write_parquet(rewritten.model_rewrites, folder / REWRITES)


def write_answers(greedy: pa.Table, answers: Mapping[str, Answers], metadata: SamplingMetadata, folder: Path) -> None:
    """Record the answers of all samplers with their sampling metadata, and the accuracy curves, if any."""
    table = concat_by_sampler({GREEDY: greedy, **{name: each.table for name, each in answers.items()}})
    write_parquet(with_sampling_metadata(table, metadata), folder / ANSWERS)
    if curves := exact_curves_of(answers):
        write_parquet(concat_by_sampler(curves), folder / CURVES_FILE)


def write_graded(graded: Mapping[str, pa.Table], folder: Path) -> None:
    """Record the graded answers of all samplers."""
    write_parquet(concat_by_sampler(graded), folder / GRADED)


def write_verdicts(grader: Grader, folder: Path) -> None:
    """Record the verdicts of a judge, if there is one."""
    if grader.uses_judge:
        write_parquet(grader.verdict_table(), folder / VERDICTS)


def exact_curves_of(answers: Mapping[str, Answers]) -> dict[str, pa.Table]:
    """Return the accuracy curves of the samplers that have some."""
    return {name: each.exact_curves for name, each in answers.items() if each.exact_curves.num_rows}


def write_question_status(
    questions: Sequence[Question], scores: Mapping[str, Score], folder: Path, record: Run
) -> None:
    """Record the verdicts on greedy answers to questions of which none is kept, for a gate
    (:mod:`robust_eval.gate.measured_run`); the unfinished run has no summary.
    """
    write_parquet(by_question(questions, [], scores), folder / QUESTIONS)
    record.folder(folder)


def record_result(result: Result, folder: Path, record: Run) -> None:
    """Record the result: write tables, figures, summary and report into the folder, and all into the tracker."""
    with result.watch.stage("report"):
        for score in result.scores.values():
            for name, table in score.tables.items():
                write_parquet(table, folder / f"{name}.parquet")
        write_parquet(result.by_question(), folder / QUESTIONS)
        figures = save_figures(result, folder / "figures")
        write_page(result, figures, folder / REPORT)
    identity = effective(result.description)
    specs = [spec for score in result.scores.values() for spec in score.specs]
    for name, content in ((LOADED, identity), (METRICS, as_json(specs)), (SUMMARY, result.summary())):
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=name == LOADED) + "\n", encoding="utf-8")
    model = {name: value for name, value in identity.items() if name.startswith("model.")}
    record.model(str(result.description["model.name"]), model)
    counts = result.counts()
    record.scores(list(result.scores.values()), {name: counts[name] for name in COUNTED})
    record.folder(folder)
    record.note(run_note(result))
    record.tables(run_tables(result))
    record.answers(traced_answers(result, record.traces, folder / VERDICTS))
    record.best_of_sweep(specs)


MAX_EXAMPLES = 3
"""Maximum number of differing answers in the sentence."""
_KEY = ("question_id", "rewrite", "temperature", "trial", SAMPLER)
_MISSING = (None, None, None)


def answer_differences(before: Path, after: Path) -> str:
    """Return how a repeated run's answers in two files differ, as one sentence. Raises UserError if one holds none."""
    tables = [read_answers(file) for file in (before, after)]
    columns = ("text", "token_ids", "token_logprobs")
    first, second = (dict(zip(rows(table, *_KEY), rows(table, *columns), strict=True)) for table in tables)
    pairs = {each: (first.get(each, _MISSING), second.get(each, _MISSING)) for each in first.keys() | second.keys()}
    differing = sorted(each for each, (one, other) in pairs.items() if one[:2] != other[:2])
    same = [(one[2], other[2]) for one, other in pairs.values() if one[:2] == other[:2]]
    largest = max((_largest_difference(one, other) for one, other in same), default=0.0)
    logprobs = "equal log-probabilities" if largest == 0 else f"log-probabilities that differ by at most {largest:.1g}"
    if not differing:
        return f"all {len(pairs):,} answers are the same, with {logprobs}"
    examples = []
    for question, rewrite, temperature, trial, sampler in differing[:MAX_EXAMPLES]:
        texts = [text for text, *_ in pairs[question, rewrite, temperature, trial, sampler]]
        change = " → ".join("missing" if text is None else repr(text) for text in texts)
        change = change if texts[0] != texts[1] else f"{texts[0]!r} (same text, different tokens)"
        wording = f", rewrite {rewrite}," if rewrite else ""
        condition = f"at t = {temperature_name(temperature)}, trial {trial}{f' ({sampler})' if sampler else ''}"
        examples.append(f"question {question}{wording} {condition}: {change}")
    counts = f"{len(differing):,} of {len(pairs):,} answers differ{'s' if len(differing) == 1 else ''}"
    return f"{counts}, for example {'; '.join(examples)}; the others have {logprobs}"


def _largest_difference(one: list[float] | None, other: list[float] | None) -> float:
    if one is None or other is None or len(one) != len(other):
        return 0.0 if one == other else float("inf")
    with np.errstate(invalid="ignore"):  # −inf on both sides is no difference
        difference = np.abs(np.subtract(one, other))
    return float(np.nan_to_num(difference).max(initial=0.0))

"""Finished runs, read from their folders, with distinguishing labels."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robust_eval.answer import GREEDY, SAMPLER, at_temperature, rows, temperatures_of
from robust_eval.error import UserError
from robust_eval.metric import (
    agreement_metric,
    certainty_metric,
    challenge_metric,
    frs_specs,
    greedy,
    order_metric,
    profile_metric,
    reliability_metric,
    thinking_metric,
    uncertainty_metric,
    variance_metric,
)
from robust_eval.metric.metric_spec import (
    HEADLINE,
    MetricSpec,
    curve_and_temperature,
    from_json,
    headline_temperatures,
    limits_of,
    nearest_to_one,
    point,
    spec_of,
)
from robust_eval.question import Question
from robust_eval.runs.question_status import verdict
from robust_eval.runtime.json_files import OF_RUN, read_json
from robust_eval.runtime.parquet_files import ANSWERS, read_parquet, refuse_bomb
from robust_eval.runtime.parquet_files import QUESTIONS as TABLE_OF_QUESTIONS
from robust_eval.runtime.text import printable
from robust_eval.sampler.recorded_answers import RecordedConditions
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats, Limits
from robust_eval.tracking.flat_settings import AUTO, read_settings, setting_value, settings_that_count
from robust_eval.tracking.run_folder import (
    CONFIG,
    ERROR,
    GRADED,
    LOADED,
    METRICS,
    QUESTIONS,
    REPLY_CERTAINTY,
    REPORT,
    REWRITES,
    SUMMARY,
)

KNOWN_SPECS: tuple[MetricSpec, ...] = (
    *frs_specs.SPECS,
    *agreement_metric.SPECS,
    *certainty_metric.SPECS,
    *order_metric.SPECS,
    *challenge_metric.SPECS,
    *thinking_metric.SPECS,
    *uncertainty_metric.SPECS,
    *reliability_metric.SPECS,
    *variance_metric.SPECS,
    *profile_metric.SPECS,
    profile_metric.ANSWERS_UNANSWERABLE,
    *greedy.SPECS,
)
"""Specs of the metrics that come with the package."""
KEY = "key"
"""Column with the accepted answers (:attr:`robust_eval.question.Question.key`)."""
DESCRIBING = ("question_id", "question", "scenario", "type", "category", "group", "kept", KEY)
"""Columns of the questions other than metrics."""


class GreedyAnswer(NamedTuple):
    """Greedy answer of a finished run: text, and verdict (:data:`robust_eval.runs.question_status.VERDICTS`)."""

    text: str
    verdict: str


@dataclass(frozen=True)
class FinishedRun:
    """Results of a finished run.

    ``settings`` are flat, with ``auto`` resolved, ``metrics`` the summary under its MLflow names, ``questions`` the
    table of all questions asked with the metrics of each, ``specs`` the metric specs. Optional are ``greedy``, the
    greedy answers by question id, the report ``page``, the file of ``graded`` answers, ``reply_certainty``, the numbers
    of right and wrong replies by temperature and certainty, and ``of_questions``, the numbers of questions of metrics
    (:meth:`n`).
    """

    settings: Mapping[str, Any]
    metrics: Mapping[str, Estimate]
    questions: pa.Table
    greedy: Mapping[str, GreedyAnswer] = field(default_factory=dict)
    of_questions: Mapping[str, int] = field(default_factory=dict)
    specs: Sequence[MetricSpec] = KNOWN_SPECS
    page: Path | None = None
    reply_certainty: pa.Table | None = None
    graded: Path | None = None

    def spec(self, metric: str) -> MetricSpec | None:
        """Return the finished run's spec of a metric; None without one."""
        return spec_of(metric, self.specs)

    @property
    def question_metrics(self) -> list[str]:
        """Names of the finished run's metrics that are means over questions."""
        return [name for name in self.questions.column_names if name not in DESCRIBING]

    @cached_property
    def headline_metrics(self) -> list[str]:
        """Names of the finished run's headline metrics."""
        points = {point(name, t) for name, curve in self.curves.items() for t in headline_temperatures(curve)}
        names = [name for name in self.metrics if (spec := self.spec(name)) and spec.shown == HEADLINE]
        return [name for name in names if name in points or not curve_and_temperature(name)]

    @property
    def headline_means(self) -> list[str]:
        """Names of the finished run's headline metrics that are means over questions."""
        headline = set(self.headline_metrics)
        return [name for name in self.question_metrics if name in headline]

    @property
    def asked(self) -> int:
        """Number of questions that the finished run asked, from which the kept ones were selected."""
        count = self.metrics.get("questions.asked")
        return self.questions.num_rows if count is None else int(count.value)

    @property
    def title(self) -> str:
        """Title of a finished run: model, data set, and number of questions kept."""
        kept, subject = int(self.kept().sum()), f"{self.settings['model.name']} on {self.settings['dataset.name']}"
        return f"{subject}: {kept} of {self.asked} questions kept"

    def n(self, metric: str) -> int | None:
        """Return the number of questions of a finished run's metric; None without one."""
        if metric in self.question_metrics:
            return int(np.count_nonzero(~np.isnan(self.values(metric))))
        return self.of_questions.get(metric)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Tidy frame of a finished run: a row for each ``metric`` with ``value``, ``low``, ``high``, the number ``n``
        of questions (NA without one), and ``headline``, true for headline metrics.
        """
        headline = set(self.headline_metrics)
        rows = [(name, *each, self.n(name), name in headline) for name, each in self.metrics.items()]
        return pd.DataFrame(rows, columns=["metric", *Estimate._fields, "n", "headline"]).astype({"n": "Int64"})

    def values(self, metric: str) -> Floats:
        """Return (n,) the run's values of a metric, one for every question asked; NaN where undefined."""
        return np.asarray(self.questions[metric].to_numpy(), dtype=float)

    def keys(self) -> list[tuple[str, str]]:
        """Return (n,) id and text of every question: another data set may use the same ids for other questions."""
        return list(zip(self.questions["question_id"].to_pylist(), self.questions["question"].to_pylist(), strict=True))

    def limits(self, metric: str) -> Limits:
        """Return the lowest and the highest value that a run's metric can have on one question; infinite if unknown."""
        return limits_of(self.questions, metric)

    def kept(self) -> NDArray[np.bool_]:
        """Return (n,) booleans, true for questions that the run kept."""
        return np.asarray(self.questions["kept"].to_pylist(), dtype=bool)

    def breaking_temperatures(self) -> tuple[list[float], Floats]:
        """Return the finished run's grid, and (n,) the point at which each question breaks; inf if unbroken, NaN if
        unknown or not kept.

        Of a run without breaking temperatures it is the grid of another perturbation, such as turns of pushback.
        """
        grid, holding = self.holding()
        breaking = np.full(self.questions.num_rows, np.inf if grid else np.nan)
        for t, holds in reversed(list(zip(grid, holding.T, strict=True))):
            breaking = np.where(np.isnan(holds), np.nan, np.where(holds == 0, t, breaking))
        return grid, breaking

    def holding(self) -> tuple[list[float], Floats]:
        """Return the run's grid of :meth:`breaking_temperatures`, and (n, T) 1 as long as a question holds, 0 from its
        break on, NaN from the point on at which it is censored.
        """
        specs = [spec for spec in self.specs if spec.is_survival]
        curves = {parsed[0] for name in self.question_metrics if (parsed := curve_and_temperature(name))}
        by_temperature = next((spec.name for spec in specs if spec.name in curves), None)
        if by_temperature is not None:
            names = {t: point(by_temperature, t) for t in self.curve(by_temperature)}
        else:  # another perturbation: by the number in the name, at the temperature nearest 1
            names = next(filter(None, (self.by_number(spec) for spec in specs if spec.numbered)), {})
        grid = sorted(names)
        return grid, np.array([self.values(names[t]) for t in grid]).reshape(len(grid), self.questions.num_rows).T

    def by_number(self, spec: MetricSpec) -> dict[float, str]:
        """Return the run's names of a metric with a number in its name by that number, in the run's order; of curves
        the names of their points at the temperature nearest 1.
        """
        names = self.question_metrics if spec.mean else list(self.metrics)
        curves = dict.fromkeys(parsed[0] for name in names if (parsed := curve_and_temperature(name)))
        families = spec.among(curves)
        points = {number: point(curve, nearest_to_one(self.curve(curve))) for number, curve in families.items()}
        return spec.among(names) or points

    def groups(self) -> list[str] | None:
        """Return (n,) the finished run's groups of dependent questions; None without any."""
        groups = self.questions["group"].to_pylist()
        if not any(groups):
            return None
        return [f"group {group}" if group else f"question {row}" for row, group in enumerate(groups)]

    def groups_by_id(self) -> dict[str, str] | None:
        """Return the finished run's groups of dependent questions by id; None without any."""
        groups = self.groups()
        return None if groups is None else dict(zip(self.questions["question_id"].to_pylist(), groups, strict=True))

    def trials(self) -> dict[str, pa.Table]:
        """Return the finished run's answers of :func:`trials_by_sampler`, without those of samplers with early
        stopping, which asks more where answers are uncertain; empty without their file.
        """
        file = self.graded
        if file is None:
            return {}
        columns = ["question_id", "rewrite", "temperature", "trial", "correct", "outcome", "form", "weight", SAMPLER]
        graded = _checked(str(file.parent), GRADED, lambda: read_parquet(file, columns))
        by_sampler = trials_by_sampler(graded)
        return {name: by_sampler[name] for name in by_sampler if not self.settings.get(f"sampler.{name}.early_stop")}

    def rewrites(self, question_ids: Sequence[str]) -> object:
        """Return the texts of the run's rewrites by a model, else the settings of recorded rewrites."""
        assert self.graded is not None
        file = self.graded.with_name(REWRITES)
        if not file.is_file():
            return {name: value for name, value in self.settings.items() if name.partition(".")[0] == "rewriter"}
        columns = ["question_id", "text", "fate"]
        table = _checked(str(file.parent), REWRITES, lambda: read_parquet(file, columns))
        kept = pc.and_(pc.equal(table["fate"], "kept"), pc.is_in(table["question_id"], pa.array(question_ids)))
        return sorted(rows(table.filter(kept), "question_id", "text"), key=lambda row: row[0])  # in their order

    @cached_property
    def curves(self) -> dict[str, dict[float, Estimate]]:
        """Curves of the finished run: estimates by temperature, by the name of the metric."""
        curves: dict[str, dict[float, Estimate]] = {}
        for metric, estimate in self.metrics.items():
            if place := curve_and_temperature(metric):
                curves.setdefault(place[0], {})[place[1]] = estimate
        return curves

    def curve(self, name: str) -> dict[float, Estimate]:
        """Return the finished run's metric by temperature; empty if the run does not have it."""
        return self.curves.get(name, {})

    def by_parameter(self, spec: MetricSpec) -> dict[float, Estimate]:
        """Return the run's metric by temperature or, with a number in its name, by that number; empty if missing."""
        if not spec.numbered:
            return self.curve(spec.name)
        return {number: self.metrics[name] for number, name in self.by_number(spec).items()}

    @cached_property
    def leading_score(self) -> MetricSpec | None:
        """The run's primary metric with a number in its name, such as FRS for each d; None without one."""
        leading = (spec for spec in self.specs if spec.primary and spec.mean and spec.numbered)
        return next(filter(self.by_number, leading), None)

    def scores(self) -> dict[float, Estimate]:
        """Return the run's means of :attr:`leading_score` by number: FRS for each d."""
        return self.by_parameter(self.leading_score) if self.leading_score else {}


def trials_by_sampler(graded: pa.Table) -> dict[str, pa.Table]:
    """Return the finished run's trials of each sampler at the temperature nearest to 1, without other forms of choices,
    pushback and reasoning.
    """
    plain = graded.filter(pc.and_(pc.not_equal(graded[SAMPLER], GREEDY), pc.is_null(graded["form"])))
    tables = {name: plain.filter(pc.equal(plain[SAMPLER], name)) for name in plain[SAMPLER].unique().to_pylist()}
    return {
        name: at_temperature(answers, nearest_to_one(temperatures_of(answers)))
        for name, answers in tables.items()
        if RecordedConditions(name, answers).estimator == "trials"
    }


def kept_nothing(folder: Path) -> bool:
    """Return True if the run in a folder ended because it kept no question: it has a table of questions, but no
    summary.
    """
    file = folder / QUESTIONS
    if (folder / SUMMARY).is_file() or not file.is_file():
        return False
    column = _checked(str(folder), QUESTIONS, lambda: read_parquet(file, ["kept"], TABLE_OF_QUESTIONS))
    return not any(column["kept"].to_pylist())


def failure_reason(folder: Path) -> str:
    """Return the reason that a failed run recorded, after a colon; empty if there is none."""
    file = folder / ERROR
    if not file.is_file():
        return ""
    sentence, _, _ = file.read_text(encoding="utf-8", errors="replace").partition("\n")
    return f": {printable(sentence)[:500]}"


def read_run(folder: Path, name: str | None = None, without_summary: bool = False) -> FinishedRun:
    """Return the finished run in a folder, called ``name`` in messages; ``without_summary``, with question metrics
    alone.

    Raises UserError if it has not finished, or a file of it is damaged.
    """
    label = name or str(folder)
    needed = [CONFIG, *([] if without_summary else [SUMMARY, METRICS, LOADED]), QUESTIONS]
    missing = [file for file in needed if not (folder / file).is_file()]
    if missing:
        if name is None and not folder.is_dir():
            raise UserError(f"there is no folder {folder}; name the folder of a finished run (mlruns/runs/DATE/TIME)")
        raise UserError(f"{label} is not a finished run{failure_reason(folder) or f': it has no {missing[0]}'}")

    def checked(file: str, read: Callable[[Path], Any], default: Any) -> Any:
        """Read a run's file, or return the default without it: a run that kept no question does not have all."""
        return _checked(label, file, lambda: read(folder / file)) if (folder / file).is_file() else default

    settings = checked(CONFIG, read_settings, {})
    loaded = checked(LOADED, lambda file: dict(read_json(file, OF_RUN)), {})
    settings |= {name: value for name, value in loaded.items() if settings.get(name) == AUTO}
    numbers: dict[str, float] = {} if without_summary else checked(SUMMARY, _numbers, {})
    of_questions = _checked(label, SUMMARY, lambda: _of_questions(numbers))
    questions = checked(QUESTIONS, lambda file: read_parquet(file, None, TABLE_OF_QUESTIONS), None)
    for setting in ("model.name", "dataset.name", "seed"):
        if setting not in settings:
            raise UserError(f"{label} cannot be read: {CONFIG} has no {setting}")
    for column in DESCRIBING:
        if column not in questions.column_names:
            raise UserError(f"{label} cannot be read: {QUESTIONS} has no column {column}")
    greedy = checked(GRADED, _greedy, {})
    declarations = checked(METRICS, lambda file: from_json(read_json(file, OF_RUN)), KNOWN_SPECS)
    metrics = _metrics(numbers, declarations)
    columns = ["temperature", "certainty_from", "right", "wrong"]
    reply_certainty = checked(REPLY_CERTAINTY, lambda file: read_parquet(file, columns), None)
    page = (folder / REPORT).resolve() if (folder / REPORT).is_file() else None
    graded = folder / GRADED if (folder / GRADED).is_file() else None
    run = FinishedRun(settings, metrics, questions, greedy, of_questions, declarations, page, reply_certainty, graded)
    for metric in run.question_metrics:
        if not (without_summary or metric in metrics) or not pa.types.is_floating(questions.schema.field(metric).type):
            raise UserError(f"{label} cannot be read: {metric} is not a metric in both {SUMMARY} and {QUESTIONS}")
    return run


def _checked(label: str, file: str, read: Callable[[], Any]) -> Any:
    """Call ``read``, and turn its exceptions into UserError on the run."""
    try:
        return read()
    except UserError as problem:
        raise UserError(f"{label} cannot be read: {problem}") from problem
    except (OSError, ArithmeticError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as problem:
        raise UserError(f"{label} cannot be read: its {file} is damaged") from problem


def _numbers(file: Path) -> dict[str, float]:
    """Return the numbers of a run's summary, NaN for null."""
    return {name: math.nan if each is None else float(each) for name, each in read_json(file, OF_RUN).items()}


def _metrics(numbers: Mapping[str, float], specs: Sequence[MetricSpec]) -> dict[str, Estimate]:
    """Return the metrics of a run's summary, each with its interval; the summary has no number for infinite ones:
    bounds of an interval, and medians of breaks where half of the facts are unbroken.
    """
    metrics = {}
    for name, value in numbers.items():
        if not name.endswith((".low", ".high", ".n")):
            low, high = (numbers.get(name + suffix, math.nan) for suffix in (".low", ".high"))
            is_open = math.isnan(high) and not math.isnan(low)
            is_infinite = math.isnan(value) and (is_open or _is_unbroken_median(name, numbers, specs))
            metrics[name] = Estimate(math.inf if is_infinite else value, low, math.inf if is_open else high)
    return metrics


def _is_unbroken_median(name: str, numbers: Mapping[str, float], specs: Sequence[MetricSpec]) -> bool:
    """Return True if a metric without a number is the median of at least one break, of which a later one is better."""
    curve, *_ = curve_and_temperature(name) or (name,)
    has_breaks = numbers.get(f"{name}.n", ".corrected." in name)  # corrected ones are there only if defined
    if not (has_breaks and curve.endswith(".median")):
        return False
    spec = spec_of(name, specs)
    return spec is not None and spec.more_is_better is True


def _of_questions(numbers: Mapping[str, float]) -> dict[str, int]:
    """Return the numbers of questions of the metrics in a run's summary."""
    return {name.removesuffix(".n"): int(number) for name, number in numbers.items() if name.endswith(".n")}


def _greedy(file: Path) -> dict[str, GreedyAnswer]:
    """Return the greedy answers in a run's file of graded answers, by question id."""
    columns = ["question_id", "text", "correct", "outcome"]
    refuse_bomb(file, [*columns, SAMPLER], ANSWERS)
    table = pq.read_table(file, columns=columns, filters=[(SAMPLER, "==", GREEDY)])
    return {
        question_id: GreedyAnswer(text, verdict(correct, outcome))
        for question_id, text, correct, outcome in rows(table, *columns)
    }


class Labels:
    """Shortest labels that distinguish runs.

    ``subjects`` labels the model and settings of each run, ``datasets`` its data set, ``full`` both.
    """

    def __init__(self, runs: Sequence[FinishedRun], ignored: Sequence[str] = ()) -> None:
        settings = [
            {n: value for n, value in settings_that_count(run.settings).items() if n not in ignored} for run in runs
        ]
        of_data, of_others = (
            [{n: value for n, value in each.items() if n.startswith("dataset.") == is_data} for each in settings]
            for is_data in (True, False)
        )
        self.datasets = _labels(of_data, "dataset.name", always=True)
        subjects = _labels(_without_files(of_others), "model.name", always=False)
        pairs = list(zip(subjects, self.datasets, strict=True))
        self.subjects = [  # equal settings with other values: another version of the program, or another machine
            pair[0] if pairs.count(pair) == 1 else f"{pair[0]} ({pairs[:number].count(pair)})"
            for number, pair in enumerate(pairs, start=1)
        ]
        several = len(set(self.datasets)) > 1
        labelled = zip(self.subjects, self.datasets, strict=True)
        self.full = [f"{subject} on {dataset}" if several else subject for subject, dataset in labelled]


def _without_files(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs' settings without files of answers, or with short paths if runs differ in nothing else."""
    names = list(dict.fromkeys(name for each in settings for name in each))
    others = [{name: value for name, value in each.items() if not name.endswith(".file")} for each in settings]
    if _count_distinct(others, names) == _count_distinct(settings, names):
        return others
    paths = [value for each in settings for name, value in each.items() if name.endswith(".file") and value]
    return [
        {name: _short(value, paths, "/") if value in paths else value for name, value in each.items()}
        for each in settings
    ]


def _labels(settings: Sequence[Mapping[str, Any]], lead: str, always: bool) -> list[str]:
    """Return a label for each run from the settings that differ, the first of correlated ones: "small (top_k=5)".
    Labels begin with ``lead`` if it or nothing differs, or ``always``.
    """
    names = list(dict.fromkeys(name for each in settings for name in each))
    group_names = [name for name in names if name.partition(".")[0] == lead.partition(".")[0]]
    chosen = _distinguishing(settings, [lead], group_names) + _distinguishing(
        settings, [], [name for name in names if name not in group_names]
    )
    lead_names = [lead] if always or not chosen or _count_distinct(settings, [lead]) > 1 else []
    short = {name: "" if name == lead else _short(name, names) for name in [*lead_names, *chosen]}
    texts = [
        [_setting_label(name, word, each[name]) for name, word in short.items() if name in each] for each in settings
    ]
    return [f"{each[0]} ({', '.join(each[1:])})" if lead_names and len(each) > 1 else ", ".join(each) for each in texts]


def _setting_label(name: str, word: str, value: Any) -> str:
    """Return a setting as a part of a run's label: "facts", "limit 100" and "all", "top_k=50"."""
    text = setting_value(name, value)
    if name.endswith(".limit"):
        return text if value is None else f"{word} {text}"
    return f"{word}={text}" if word else text


def _short(name: str, names: Sequence[str], separator: str = ".") -> str:
    """Return the shortest suffix of a setting's name, or of a path, that no other has, for labels of runs."""
    words = name.split(separator)
    ends = [separator.join(words[start:]) for start in range(len(words) - 1, -1, -1)]
    longer = [f"{separator}{other}" for other in dict.fromkeys(names)]
    return next(end for end in ends if sum(each.endswith(f"{separator}{end}") for each in longer) == 1 or end == name)


def _distinguishing(settings: Sequence[Mapping[str, Any]], fixed: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return those of ``names`` that distinguish runs which ``fixed`` and the names before them do not."""
    chosen: list[str] = []
    for name in names:
        if _count_distinct(settings, [*fixed, *chosen, name]) > _count_distinct(settings, [*fixed, *chosen]):
            chosen.append(name)
    return chosen


def _count_distinct(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({str([each.get(name) for name in names]) for each in settings})


def read_questions(run: FinishedRun) -> list[Question]:
    """Return all questions of a run, in its order, with their keys, without contexts and rewrites.

    Raises UserError for damaged keys.
    """
    return [_question(row) for row in run.questions.to_pylist()]


def _question(row: dict[str, Any]) -> Question:
    try:
        key = json.loads(row[KEY])
        return Question(
            row["question_id"],
            row["question"],
            answers=tuple(map(str, key.get("answers", ()))),
            choices=tuple(map(str, key.get("choices", ()))),
            correct=key.get("correct"),
            incorrect=tuple(map(str, key.get("incorrect", ()))),
            type=row["type"] or "",
            category=row["category"] or "",
            group=row["group"] or "",
        )
    except (ValueError, TypeError, AttributeError) as problem:
        raise UserError(
            f"the accepted answers to question {row['question_id']} in questions.parquet are damaged"
        ) from problem

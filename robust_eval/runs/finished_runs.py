"""Runs that have finished, read from their folders, and what tells them apart."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robust_eval.answer import GREEDY, SAMPLER, rows
from robust_eval.error import UserError
from robust_eval.metric.known_figures import KNOWN_FIGURES
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
from robust_eval.runtime.files import ANSWERS, OF_RUN, read_json, read_parquet, refuse_bomb
from robust_eval.runtime.files import QUESTIONS as TABLE_OF_QUESTIONS
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import Floats, Limits
from robust_eval.tracking.run_folder import CONFIG, FIGURES, GRADED, LOADED, QUESTIONS, REPLY_CERTAINTY, REPORT, SUMMARY
from robust_eval.tracking.settings import AUTO, SEVERAL, read_settings

KEY = "key"
"""The column with the accepted answers (:attr:`robust_eval.question.Question.key`)."""
DESCRIBING = ("question_id", "question", "scenario", "type", "category", "group", "kept", KEY)
"""Columns of the questions that are no figures."""
_ELSEWHERE = ("paths.", "store.", "tracking.")
"""Settings that say where things lie, and change no result."""


class GreedyAnswer(NamedTuple):
    """The text of a greedy answer, and the verdict on it (:data:`robust_eval.runs.question_status.VERDICTS`)."""

    text: str
    verdict: str


@dataclass(frozen=True)
class FinishedRun:
    """Results of a finished run.

    ``settings`` are flat, with what was found in place of ``auto``, ``figures`` the summary under its MLflow names,
    ``questions`` the table of all questions asked with the figures of each, ``declared`` what the metrics say of their
    figures. ``greedy`` are the greedy answers by question id and ``page`` is the report, where they are at hand.
    ``reply_certainty`` counts right and wrong replies by temperature and certainty, where that is at hand.
    ``of_questions`` holds the numbers of questions that figures rest on, where they are told (:meth:`n`).
    """

    settings: Mapping[str, Any]
    figures: Mapping[str, Estimate]
    questions: pa.Table
    greedy: Mapping[str, GreedyAnswer] = field(default_factory=dict)
    of_questions: Mapping[str, int] = field(default_factory=dict)
    declared: Sequence[MetricSpec] = KNOWN_FIGURES
    page: Path | None = None
    reply_certainty: pa.Table | None = None

    def about(self, figure: str) -> MetricSpec | None:
        """Return what is declared of the figure of this name; None where nothing is."""
        return spec_of(figure, self.declared)

    @property
    def question_metrics(self) -> list[str]:
        """The figures that are means over questions."""
        return [name for name in self.questions.column_names if name not in DESCRIBING]

    @cached_property
    def headline(self) -> list[str]:
        """The figures that a person wants first."""
        left = {point(name, t) for name, curve in self.curves.items() for t in headline_temperatures(curve)}
        named = [name for name in self.figures if (about := self.about(name)) and about.shown == HEADLINE]
        return [name for name in named if name in left or not curve_and_temperature(name)]

    @property
    def headline_means(self) -> list[str]:
        """Those of them that are means over questions."""
        headline = set(self.headline)
        return [name for name in self.question_metrics if name in headline]

    @property
    def asked(self) -> int:
        """The number of questions of which those kept were chosen."""
        told = self.figures.get("questions.asked")
        return self.questions.num_rows if told is None else int(told.value)

    def n(self, figure: str) -> int | None:
        """Return how many questions a figure rests on; None where it rests on none."""
        if figure in self.question_metrics:
            return int(np.count_nonzero(~np.isnan(self.values(figure))))
        return self.of_questions.get(figure)

    def values(self, figure: str) -> Floats:
        """Return (n,) one figure of every question asked; NaN where undefined."""
        return np.asarray(self.questions[figure].to_numpy(), dtype=float)

    def keys(self) -> list[tuple[str, str]]:
        """Return (n,) id and text of every question: another data set may use the same ids for other questions."""
        return list(zip(self.questions["question_id"].to_pylist(), self.questions["question"].to_pylist(), strict=True))

    def limits(self, figure: str) -> Limits:
        """Return the lowest and the highest value that a figure of one question can have; infinite where that is not
        known.
        """
        return limits_of(self.questions, figure)

    def kept(self) -> NDArray[np.bool_]:
        """Return (n,) whether each question was kept."""
        return np.asarray(self.questions["kept"].to_pylist(), dtype=bool)

    def breaking_temperatures(self) -> tuple[list[float], Floats]:
        """Return the grid, and (n,) where each question breaks on it; inf where unbroken, NaN where unknown or not
        kept. Of a run in which no temperature is said to break facts it is the grid of what is, its turns of doubt for
        instance.
        """
        holding = self._holding()
        grid = sorted(holding)
        breaking = np.full(self.questions.num_rows, np.inf if grid else np.nan)
        for t in reversed(grid):
            holds = self.values(holding[t])
            breaking = np.where(np.isnan(holds), np.nan, np.where(holds == 0, t, breaking))
        return grid, breaking

    def _holding(self) -> dict[float, str]:
        """Return the figures that say which facts hold, by temperature; without such, by the number in their names, at
        the temperature nearest 1.
        """
        said = [figure for figure in self.declared if figure.is_survival]
        curves = {found[0] for name in self.question_metrics if (found := curve_and_temperature(name))}
        by_temperature = next((figure.name for figure in said if figure.name in curves), None)
        if by_temperature is not None:
            return {t: point(by_temperature, t) for t in self.curve(by_temperature)}
        return next(filter(None, (self.by_number(figure) for figure in said if figure.numbered)), {})

    def by_number(self, figure: MetricSpec) -> dict[float, str]:
        """Return the names of a figure with a number in its name by that number, the first of the run's own list first;
        of curves those of their points at the temperature nearest 1.
        """
        names = self.question_metrics if figure.mean else list(self.figures)
        curves = dict.fromkeys(found[0] for name in names if (found := curve_and_temperature(name)))
        families = figure.among(curves)
        points = {number: point(curve, nearest_to_one(self.curve(curve))) for number, curve in families.items()}
        return figure.among(names) or points

    def groups(self) -> list[str] | None:
        """Return (n,) what makes questions dependent; None where nothing does."""
        groups = self.questions["group"].to_pylist()
        if not any(groups):
            return None
        return [f"group {group}" if group else f"question {row}" for row, group in enumerate(groups)]

    @cached_property
    def curves(self) -> dict[str, dict[float, Estimate]]:
        """The metrics by temperature, each by its name."""
        found: dict[str, dict[float, Estimate]] = {}
        for figure, estimate in self.figures.items():
            if place := curve_and_temperature(figure):
                found.setdefault(place[0], {})[place[1]] = estimate
        return found

    def curve(self, name: str) -> dict[float, Estimate]:
        """Return a metric by temperature; empty where the run has none of this name."""
        return self.curves.get(name, {})

    def by_parameter(self, figure: MetricSpec) -> dict[float, Estimate]:
        """Return a figure by temperature or, with a number in its name, by that number; empty where there is none."""
        if not figure.numbered:
            return self.curve(figure.name)
        return {number: self.figures[name] for number, name in self.by_number(figure).items()}

    @cached_property
    def leading_score(self) -> MetricSpec | None:
        """The figure that leads among those with a number in their names, such as FRS for each d; None without one."""
        leading = (figure for figure in self.declared if figure.primary and figure.mean and figure.numbered)
        return next(filter(self.by_number, leading), None)

    def scores(self) -> dict[float, Estimate]:
        """Return the means of :attr:`leading_score` by the number in their names: FRS for each d."""
        return self.by_parameter(self.leading_score) if self.leading_score else {}


def kept_nothing(folder: Path) -> bool:
    """Tell whether the run in a folder ended because it kept no question: what it knows of each is there, and no
    summary.
    """
    if (folder / SUMMARY).is_file() or not (folder / QUESTIONS).is_file():
        return False
    file = folder / QUESTIONS
    kept = _damaged(str(folder), QUESTIONS, lambda: read_parquet(file, ["kept"], TABLE_OF_QUESTIONS))
    return not any(kept["kept"].to_pylist())


def read_run(folder: Path, name: str | None = None, without_summary: bool = False) -> FinishedRun:
    """Return the run in a folder, or with this name; ``without_summary``, it has no figures but those of questions.

    Raises UserError where it has not finished, or a file of it is damaged.
    """
    called = name or str(folder)
    needed = [CONFIG, *([] if without_summary else [SUMMARY]), QUESTIONS, FIGURES, LOADED]
    missing = [file for file in needed if not (folder / file).is_file()]
    if missing:
        if name is None and not folder.is_dir():
            raise UserError(f"there is no folder {folder}; name that of a finished run (mlruns/runs/DATE/TIME)")
        raise UserError(f"{called} is no finished run that can be compared: there is no {missing[0]}")
    settings = _damaged(called, CONFIG, lambda: read_settings(folder / CONFIG))
    found = _damaged(called, LOADED, lambda: dict(read_json(folder / LOADED, OF_RUN)))
    settings |= {name: value for name, value in found.items() if settings.get(name) == AUTO}
    numbers: dict[str, float] = {}
    if not without_summary:
        numbers = _damaged(called, SUMMARY, lambda: _numbers(read_json(folder / SUMMARY, OF_RUN)))
    figures, of_questions = _figures(numbers), _damaged(called, SUMMARY, lambda: _of_questions(numbers))
    questions = _damaged(called, QUESTIONS, lambda: read_parquet(folder / QUESTIONS, None, TABLE_OF_QUESTIONS))
    for setting in ("model.name", "dataset.name", "seed"):
        if setting not in settings:
            raise UserError(f"{called} cannot be read: {CONFIG} does not say {setting}")
    for column in DESCRIBING:
        if column not in questions.column_names:
            raise UserError(f"{called} cannot be read: {QUESTIONS} has no column {column}")
    greedy = _damaged(called, GRADED, lambda: _greedy(folder / GRADED)) if (folder / GRADED).is_file() else {}
    declarations = _damaged(called, FIGURES, lambda: from_json(read_json(folder / FIGURES, OF_RUN)))
    page = (folder / REPORT).resolve() if (folder / REPORT).is_file() else None
    certain = None
    if (folder / REPLY_CERTAINTY).is_file():
        columns = ["temperature", "certainty_from", "right", "wrong"]
        certain = _damaged(called, REPLY_CERTAINTY, lambda: read_parquet(folder / REPLY_CERTAINTY, columns))
    run = FinishedRun(settings, figures, questions, greedy, of_questions, declarations, page, certain)
    for figure in run.question_metrics:
        if not (without_summary or figure in figures) or not pa.types.is_floating(questions.schema.field(figure).type):
            raise UserError(f"{called} cannot be read: {figure} is no figure in both {SUMMARY} and {QUESTIONS}")
    return run


def _damaged(called: str, file: str, read: Callable[[], Any]) -> Any:
    """Return what ``read`` returns; UserError where it finds something else than such a file."""
    try:
        return read()
    except UserError as problem:
        raise UserError(f"{called} cannot be read: {problem}") from problem
    except (OSError, ArithmeticError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as problem:
        raise UserError(f"{called} cannot be read: its {file} is damaged") from problem


def _numbers(summary: dict[str, float | None]) -> dict[str, float]:
    """Return the numbers of a summary, NaN where it has none."""
    return {name: math.nan if number is None else float(number) for name, number in summary.items()}


def _figures(numbers: Mapping[str, float]) -> dict[str, Estimate]:
    """Return the figures of a summary, each with its interval; a missing end is infinite."""
    found = {}
    for name in numbers:
        if not name.endswith((".low", ".high", ".n")):
            ends = Estimate(*(numbers.get(name + end, math.nan) for end in ("", ".low", ".high")))
            open_ended = math.isnan(ends.high) and not math.isnan(ends.low)
            found[name] = Estimate(*(math.inf if open_ended and math.isnan(end) else end for end in ends))
    return found


def _of_questions(numbers: Mapping[str, float]) -> dict[str, int]:
    """Return how many questions the figures of a summary rest on."""
    return {name.removesuffix(".n"): int(number) for name, number in numbers.items() if name.endswith(".n")}


def _greedy(file: Path) -> dict[str, GreedyAnswer]:
    """Return the greedy answers among graded ones, by question id."""
    columns = ["question_id", "text", "correct", "outcome"]
    refuse_bomb(file, [*columns, SAMPLER], ANSWERS)
    table = pq.read_table(file, columns=columns, filters=[(SAMPLER, "==", GREEDY)])
    return {
        question_id: GreedyAnswer(text, verdict(correct, outcome))
        for question_id, text, correct, outcome in rows(table, *columns)
    }


def without_repetitions(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return the runs without those that have the settings and the values of an earlier one."""
    kept: list[FinishedRun] = []
    for run in runs:
        names = run.questions.column_names
        if not any(
            _key(run) == _key(other)
            and names == other.questions.column_names
            and _equal(run.questions, other.questions, names)
            for other in kept
        ):
            kept.append(run)
    return kept


def merged(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return runs that differ in :func:`scoring_settings` alone (FRS: in d) as one that has the scores of all: they
    scored the same answers.
    """
    settings = scoring_settings(runs)
    kept: list[FinishedRun] = []
    for run in runs:
        key = _key(run, without=settings)
        for place, other in enumerate(kept):
            shared = [name for name in other.questions.column_names if name in run.questions.column_names]
            if _key(other, without=settings) == key and _equal(run.questions, other.questions, shared):
                kept[place] = _union(other, run)
                break
        else:
            kept.append(run)
    return kept


def scoring_settings(runs: Sequence[FinishedRun]) -> list[str]:
    """Return the settings that runs over the same answers may differ in: those of the numbers in names of figures."""
    return list(dict.fromkeys(figure.setting for run in runs for figure in run.declared if figure.setting))


def _key(run: FinishedRun, without: Collection[str] = ()) -> dict[str, str]:
    return {name: str(value) for name, value in settings_that_count(run).items() if name not in without}


def settings_that_count(run: FinishedRun) -> dict[str, Any]:
    """Return what results depend on: which samplers and metrics were chosen, and every setting."""
    chosen = {
        group: "+".join(dict.fromkeys(name.split(".")[1] for name in run.settings if name.startswith(f"{group}.")))
        for group in SEVERAL
    }
    counting = {name: value for name, value in run.settings.items() if not name.startswith(_ELSEWHERE)}
    return chosen | counting


def _equal(one: pa.Table, other: pa.Table, columns: Sequence[str]) -> bool:
    """Tell whether tables agree in these columns; undefined values are equal."""
    if one.num_rows != other.num_rows:
        return False
    pairs = [(one[name].to_numpy(zero_copy_only=False), other[name].to_numpy(zero_copy_only=False)) for name in columns]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _union(one: FinishedRun, other: FinishedRun) -> FinishedRun:
    questions = one.questions
    for name in other.question_metrics:
        if name not in questions.column_names:
            questions = questions.append_column(other.questions.schema.field(name), other.questions[name])
    of_questions = {**other.of_questions, **one.of_questions}
    figures, declarations = {**other.figures, **one.figures}, [*one.declared, *other.declared]
    return FinishedRun(
        one.settings, figures, questions, one.greedy, of_questions, declarations, one.page, one.reply_certainty
    )


class Labels:
    """Shortest labels that distinguish runs.

    ``subjects`` says for each run what was measured and how (the model first), ``datasets`` on what, ``whole`` both.
    """

    def __init__(self, runs: Sequence[FinishedRun], ignored: Sequence[str] = ()) -> None:
        settings = [
            {name: value for name, value in settings_that_count(run).items() if name not in ignored} for run in runs
        ]
        on = [{name: value for name, value in each.items() if name.startswith("dataset.")} for each in settings]
        of = _without_files(
            [{name: value for name, value in each.items() if not name.startswith("dataset.")} for each in settings]
        )
        self.datasets = _labels(on, "dataset.name", named=True)
        subjects = _labels(of, "model.name", named=False)
        pairs = list(zip(subjects, self.datasets, strict=True))
        self.subjects = [  # the same settings, and yet other values: another version of the program, or another machine
            subject if pairs.count(pair) == 1 else f"{subject} ({pairs[: place + 1].count(pair)})"
            for place, (pair, subject) in enumerate(zip(pairs, subjects, strict=True))
        ]
        several = len(set(self.datasets)) > 1
        self.whole = [
            f"{subject} on {dataset}" if several else subject
            for subject, dataset in zip(self.subjects, self.datasets, strict=True)
        ]


def _without_files(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave out where answers came from, unless runs differ in nothing else."""
    names = dict.fromkeys(name for each in settings for name in each)
    left = [{name: value for name, value in each.items() if not name.endswith(".file")} for each in settings]
    same = _kinds(left, list(names)) == _kinds(settings, list(names))
    return left if same else [dict(each) for each in settings]


def _labels(settings: Sequence[Mapping[str, Any]], lead: str, named: bool) -> list[str]:
    """Return what differs, of settings that go together the first; first the setting ``lead`` where it or nothing
    differs, or always (``named``).
    """
    names = list(dict.fromkeys(name for each in settings for name in each))
    own = [name for name in names if name.partition(".")[0] == lead.partition(".")[0]]
    chosen = _refining(settings, [lead], own) + _refining(settings, [], [name for name in names if name not in own])
    shown = [lead] if named or not chosen or _kinds(settings, [lead]) > 1 else []
    words = {name: "" if name == lead else f"{_short(name, names)}=" for name in [*shown, *chosen]}
    return [", ".join(f"{word}{each[name]}" for name, word in words.items() if name in each) for each in settings]


def _short(name: str, names: Sequence[str]) -> str:
    """Return the end of a setting's name that no other one has."""
    parts = name.split(".")
    ends = [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]
    return next(end for end in ends if sum(f".{other}".endswith(f".{end}") for other in names) == 1 or end == name)


def _refining(settings: Sequence[Mapping[str, Any]], known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return those of ``names`` that tell apart, in turn, what ``known`` and the ones before them do not."""
    chosen: list[str] = []
    for name in names:
        if _kinds(settings, [*known, *chosen, name]) > _kinds(settings, [*known, *chosen]):
            chosen.append(name)
    return chosen


def _kinds(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int:
    return len({str([each.get(name) for name in names]) for each in settings})


def read_questions(run: FinishedRun) -> list[Question]:
    """Return all questions that a run asked, in its order, with what is right; passages and rewrites are not in it.

    Raises UserError for a run of an earlier version, which does not say what is right, and where that is damaged.
    """
    if KEY not in run.questions.column_names:
        raise UserError("the run does not say what is right (questions.parquet has no column key): measure it again")
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
        raise UserError(f"the key of question {row['question_id']} in questions.parquet is damaged") from problem

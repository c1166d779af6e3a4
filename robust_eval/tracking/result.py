"""Result of a run: the content of all reports."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import GREEDY, NO_REPLY, OUTCOMES, SCHEMA, SERVED, has_greedy, rows, served_as
from robust_eval.metric.metric_spec import with_limits
from robust_eval.metric.score import Score, counted_answers
from robust_eval.question import Question
from robust_eval.rewriter.base import FATES, Rewritten
from robust_eval.runtime.process import Stopwatch

MIN_REPEATED_TEMPERATURE = 1.0
"""Minimum temperature at which identical replies are reported; below, a model may be that certain."""
MIN_REPEATED = 20
"""Minimum number of consecutive questions with identical replies for a report."""


@dataclass(frozen=True)
class Result:
    """Result of a finished run.

    ``description`` are its settings and metadata, flat. ``questions`` are those of the data set, ``rewritten`` their
    paraphrases, ``kept`` the selected ones. ``graded_baseline`` holds the graded baseline answers,
    ``graded_by_sampler`` the graded answers of each sampler to the selected questions, ``exact_curves`` the accuracy
    curves of samplers that enumerate answers (:data:`robust_eval.answer.EXACT_CURVES`). ``sampler_of`` maps metrics to
    the samplers of their answers, ``scores`` to their scores; the score ``greedy`` is the accuracy of the baseline, if
    there is one. ``tokenizer`` is the file of the model's tokenizer, if there is one. ``prompts_asked`` counts the
    prompts sent to models in this run, ``cache_hits`` those answered from the store. ``unasked`` counts the questions
    skipped because of a setting, which ``unasked_reason`` has with the remedy. ``estimator_of`` maps samplers to the
    estimators of their answers, by default ``trials`` (:class:`~robust_eval.metric.score.Measured`). ``origin`` has the
    command, time, environment and id of the run. ``served_names`` are the services' names of models and builds
    (:data:`robust_eval.answer.SERVED`), by the prefix of the model's settings and by column.
    """

    name: str
    description: Mapping[str, object]
    questions: Sequence[Question]
    kept: Sequence[Question]
    rewritten: Rewritten
    graded_baseline: pa.Table
    graded_by_sampler: Mapping[str, pa.Table]
    exact_curves: Mapping[str, pa.Table]
    sampler_of: Mapping[str, str]
    scores: Mapping[str, Score]
    tokenizer: Path | None
    prompts_asked: int
    cache_hits: int
    watch: Stopwatch
    unasked: int = 0
    unasked_reason: tuple[str, str] = ("", "")
    estimator_of: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    served_names: dict[str, Mapping[str, set[str]]] = field(default_factory=dict)
    graded_unanswerable: pa.Table = field(default_factory=SCHEMA.empty_table)
    """Graded answers to the questions without an answer that a profile asks besides those of the data set."""

    @property
    def all_graded(self) -> dict[str, pa.Table]:
        """All graded answers of a result by sampler, those of the baseline under :data:`~robust_eval.answer.GREEDY`."""
        return {GREEDY: self.graded_baseline, **self.graded_by_sampler}

    @cached_property
    def counted(self) -> dict[str, pa.Table]:
        """All graded answers of a result by sampler, with the weights of :func:`counted_answers`."""
        tables = self.all_graded.items()
        return {name: counted_answers(table, self.estimator_of.get(name, "trials")) for name, table in tables}

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """Tables of all scores of a result, by name."""
        return {name: table for score in self.scores.values() for name, table in score.tables.items()}

    def metric_of(self, table: str) -> str | None:
        """Return the name of the result's metric with this table; None without one."""
        return next((name for name, score in self.scores.items() if table in score.tables), None)

    def candidates(self) -> list[Question]:
        """Return the questions that could be selected: those with a greedy answer, or all if none has one.

        Recorded answers may keep questions without one.
        """
        if not self.graded_baseline.num_rows:
            return list(self.questions)
        answered_ids = {*self.graded_baseline["question_id"].to_pylist(), *(question.id for question in self.kept)}
        return [question for question in self.questions if question.id in answered_ids]

    def counts(self) -> dict[str, float]:
        """Return the result's counts by MLflow name: questions, prompts, replies, outcomes, rewrites, tokens, seconds.

        Outcomes are counted for rewriting, greedy answers, sampled answers and those to unanswerable questions;
        ``replies.truncated`` are sampled ones truncated by the length limit, ``replies.uncertain`` greedy and sampled
        ones. ``questions.equal_in_a_row`` is
        present if it is remarkable, ``replies.served_models`` and ``replies.system_fingerprints`` if there are several,
        and those of the rewriter's model (``rewriting.*``) and the judge's (``verdicts.*``).
        Enumerated answers count by their probability. Tokens are counted as a service bills them: each answer with its
        whole prompt.
        """
        replies = self.rewritten.replies
        counts: dict[str, float] = {"questions.loaded": len(self.questions) + self.unasked}
        counts |= {"questions.unasked": self.unasked} if self.unasked else {}
        counts["questions.asked"] = len(self.candidates())
        counts |= {"questions.kept": len(self.kept), "replies.received": self.replies_received()}
        counts |= {"prompts.asked": self.prompts_asked, "prompts.cached": self.cache_hits}
        sampled = [self.counted[name] for name in self.graded_by_sampler]
        by_sampler = [_outcomes(table) for table in sampled]
        counts |= {f"outcomes.{outcome}": sum(each[outcome] for each in by_sampler) for outcome in OUTCOMES}
        counts["replies.truncated"] = sum(map(_truncated, sampled))
        counts["replies.uncertain"] = sum(map(_uncertain, self.counted.values()))
        counts |= {"questions.equal_in_a_row": self.equal_replies_in_a_row} if self.equal_replies_in_a_row else {}
        for prefix, served in self.served.items():
            stage = {"rewriter.": "rewriting", "grader.": "verdicts"}.get(prefix, "replies")
            counts |= {f"{stage}.{column}s": len(names) for column, names in served.items() if len(names) > 1}
        if self.graded_baseline.num_rows:
            of_baseline = _outcomes(self.counted[GREEDY])
            counts |= {f"greedy.outcomes.{outcome}": count for outcome, count in of_baseline.items()}
        if replies.num_rows:
            fates = Counter(self.rewritten.model_rewrites["fate"].to_pylist())
            counts |= {f"rewriting.{fate}": fates[fate] for fate in FATES}
            counts["rewriting.kept_drifted"] = len(self.drifted())
            counts |= {f"rewriting.outcomes.{outcome}": count for outcome, count in _outcomes(replies).items()}
        unanswerable = counted_answers(self.graded_unanswerable)
        if unanswerable.num_rows:
            counts |= {f"unanswerable.outcomes.{outcome}": count for outcome, count in _outcomes(unanswerable).items()}
        unread = Counter[str]()
        for table in self.counted.values():
            invalid = pc.and_(pc.is_valid(table["reason"]), pc.not_equal(table["outcome"], "refused"))
            for reason, weight in rows(table.filter(invalid), "reason", "weight"):  # a refusal is an outcome of its own
                unread[reason] += weight
        counts |= {f"invalid.{reason.replace(' ', '_')}": number for reason, number in sorted(unread.items())}
        stages = {"rewriting": [replies], "answering": [*self.counted.values(), unanswerable]}
        for stage, tables in stages.items():
            for kind in ("prompt", "completion", "reasoning", "cached"):
                counts[f"tokens.{stage}.{kind}"] = sum(_sum(table, f"{kind}_tokens") for table in tables)
        return counts | {f"seconds.{stage}": seconds for stage, seconds in self.watch.seconds.items()}

    @property
    def baseline_words(self) -> str:
        """Name of a baseline answer: "greedy answer", or "most frequent answer" of a model without temperature 0."""
        is_voted = self.graded_baseline.num_rows and not has_greedy(self.graded_baseline)
        return "most frequent answer" if is_voted else "greedy answer"

    @cached_property
    def equal_replies_in_a_row(self) -> int:
        """Number of consecutive questions with identical replies of a server at the highest temperature; 0 if small."""
        served = "loaded.server" in self.description
        number = equal_in_a_row(self.graded_by_sampler, [question.id for question in self.kept]) if served else 0
        return number if number >= MIN_REPEATED else 0

    @cached_property
    def served(self) -> dict[str, Mapping[str, set[str]]]:
        """The result's ``served_names``, with those of recorded answers."""
        tables, measured = self.all_graded.values(), self.served_names.get("", {})
        names = {column: measured.get(column, set()) | served_as(tables, column) for column in SERVED}
        return self.served_names | {"": names}

    def replies_received(self) -> float:
        """Count the replies of all stages; enumerated answers are one for each question and temperature."""
        tables = [self.rewritten.replies, *self.counted.values(), counted_answers(self.graded_unanswerable)]
        return sum(count for table in tables for name, count in _outcomes(table).items() if name not in NO_REPLY)

    def drifted(self) -> list[dict[str, Any]]:
        """Return the accepted rewrites whose meaning may have drifted, the least similar first."""
        rows = [row for row in self.rewritten.model_rewrites.to_pylist() if row["fate"] == "kept" and row["drifted"]]
        return sorted(rows, key=lambda row: float(row["cosine"]))

    def by_question(self) -> pa.Table:
        """Return a row for each question asked (:func:`by_question`)."""
        return by_question(self.questions, self.kept, self.scores)

    def summary(self) -> dict[str, float | None]:
        """Return the result's summary: every metric of the run under its MLflow name; None if undefined or infinite."""
        metrics = self.counts()
        for score in self.scores.values():
            metrics |= score.flat()
        return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def by_question(questions: Sequence[Question], selected: Sequence[Question], scores: Mapping[str, Score]) -> pa.Table:
    """Return a table with a row for each question: its properties, its selection, and its value of each metric that is
    a mean.

    The columns of the metrics have their MLflow names; missing values are NaN. Their field metadata hold the possible
    values, if known (:func:`robust_eval.metric.metric_spec.with_limits`).
    """
    chosen = {question.id for question in selected}
    columns: dict[str, Any] = {
        "question_id": [question.id for question in questions],
        "question": [question.title for question in questions],
        "scenario": [str(question.scenario) for question in questions],
        "type": [question.type for question in questions],
        "category": [question.category for question in questions],
        "group": [question.group for question in questions],
        "key": [question.key for question in questions],
        "kept": [question.id in chosen for question in questions],
    }
    place = {question.id: row for row, question in enumerate(questions)}
    for score in scores.values():
        rows = [place[question_id] for question_id in score.question_ids]
        for name, values in score.by_question.items():
            columns[name] = np.full(len(questions), np.nan)
            columns[name][rows] = values
    limits = {name: limits for score in scores.values() for name, limits in score.limits.items()}
    return with_limits(pa.table(columns), limits)


def _outcomes(table: pa.Table) -> dict[str, float]:
    """Count the answers of each outcome."""
    return {outcome: _weight(table, pc.equal(table["outcome"], outcome)) for outcome in OUTCOMES}


def _weight(table: pa.Table, chosen: pa.ChunkedArray) -> float:
    """Return the sum of the weights of the chosen answers."""
    return float(table["weight"].filter(chosen.fill_null(False)).to_numpy().sum())


def _truncated(table: pa.Table) -> float:
    """Count the replies truncated by the length limit; NaN without finish reasons."""
    if table["finish_reason"].null_count == table.num_rows:
        return math.nan
    return _weight(table, pc.equal(table["finish_reason"], "length"))


def _uncertain(table: pa.Table) -> float:
    """Count the replies with an uncertain verdict; NaN if uncertainty is not recorded."""
    if table.num_rows and table["uncertain"].null_count == table.num_rows:
        return math.nan
    return _weight(table, table["uncertain"])


def _sum(table: pa.Table, column: str) -> float:
    return float((table[column].fill_null(0).to_numpy() * table["weight"].to_numpy()).sum())


def equal_in_a_row(graded: Mapping[str, pa.Table], question_ids: Sequence[str]) -> int:
    """Return the length of the longest run of consecutive questions with identical replies, two or more to each
    wording, at the highest temperature of a sampler; 0 if no temperature is at least 1 or the default.
    """
    runs = (run for table in graded.values() for run in groupby(question_ids, _repeated(table).__contains__))
    return max((len(list(questions)) for is_repeated, questions in runs if is_repeated), default=0)


def _repeated(table: pa.Table) -> set[str]:
    """Return the questions whose replies at the highest temperature are identical."""
    temperatures = table["temperature"].to_numpy()
    is_default = np.isnan(temperatures)
    highest = math.nan if is_default.any() else float(temperatures.max(initial=0.0))
    if highest < MIN_REPEATED_TEMPERATURE:
        return set()
    at_highest = is_default if is_default.any() else temperatures == highest
    is_reply = pc.and_(
        pc.invert(pc.is_in(table["outcome"], pa.array(sorted(NO_REPLY)))), pc.not_equal(table["text"], "")
    )
    columns = table.select(["question_id", "rewrite", "form", "text"]).filter(pc.and_(pa.array(at_highest), is_reply))
    groups = columns.group_by(["question_id", "rewrite", "form"]).aggregate(
        [("text", "count"), ("text", "count_distinct")]
    )
    several = groups.filter(pc.greater(groups["text_count"], 1))
    different = groups.filter(pc.greater(groups["text_count_distinct"], 1))
    return set(several["question_id"].to_pylist()) - set(different["question_id"].to_pylist())

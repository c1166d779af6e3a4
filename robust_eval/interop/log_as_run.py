"""Two logs of other harnesses, or two tables of verdicts, as runs that a gate compares; no model is queried."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robust_eval.answer import EXACT_CURVES, SAMPLER, temperature_name, temperatures_of, with_columns
from robust_eval.dataset.answer_file import AnswerFile
from robust_eval.dataset.file_formats import read_records
from robust_eval.error import UserError
from robust_eval.gate.measured_run import MeasuredRun
from robust_eval.grader.matching import Matching
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.interop.harness_logs import SCORE, Collected, collect, collected_answers
from robust_eval.interop.log_as_answers import logs, ungraded_sentences
from robust_eval.interop.logged_answer import LoggedAnswer, temperature_of
from robust_eval.question import Question
from robust_eval.reader.reply import FirstLineReader, ReplyReader
from robust_eval.runs.finished_runs import DESCRIBING, KEY, FinishedRun
from robust_eval.runtime.text import counted, excerpt, printable
from robust_eval.stats.interval import Floats
from robust_eval.tracking.run_folder import CONFIG

TABLES = (".csv", ".tsv", ".jsonl")
"""Endings of tables of verdicts."""
_IDS, _TEXTS, _VERDICTS = ("question_id", "id"), ("text", "reply"), ("correct", "score")
_WORDS = {"true": 1.0, "false": 0.0}


def is_log(name: str) -> bool:
    """Return True for a log to gate: a file with an ending, or a folder with logs that is no run."""
    path = Path(name)
    if path.is_dir():
        return not (path / CONFIG).is_file() and bool(logs(path))
    return path.is_file() and bool(path.suffix)


def logs_as_runs(baseline: str, candidate: str) -> tuple[MeasuredRun, MeasuredRun, list[str]]:
    """Return two logs as runs for a gate, and sentences on their verdicts: those of the first scorer that gives 0 or 1
    to every reply of both, or else ours by the answers in the logs.

    Raises UserError if a log holds several models or tasks, if one has no verdicts, or neither name is a log.
    """
    names = baseline, candidate
    if other := [name for name in names if not is_log(name)]:
        raise UserError(
            f"a log can be compared only with another log, but {other[0]} is neither a log nor a folder of logs: score "
            "the log (robust-eval import LOG), and name the folder of that run"
        )
    read = [_read(name) for name in names]
    common = [name for name in read[0].scorers if name in read[1].scorers]
    have_keys = all(each.keyed for each in read)
    of_all = (name for name in common if all(_has_verdicts(each, name) for each in read))
    of_some = (name for name in common if all(_has_verdicts(each, name, some=True) for each in read))
    scorer = next(of_all, None if have_keys else next(of_some, None))
    if scorer is not None:
        sentences = [f'The verdicts are those of the scorer "{scorer}" in the logs.']
    elif have_keys:
        sentences = [
            "The replies were graded by robust_eval (grader=matching): no shared scorer marks them all 0 or 1."
        ]
        for name, each in zip(names, read, strict=True):
            sentences += [f"{name}: {sentence}." for sentence in ungraded_sentences(each)]
    else:
        lacking = next(name for name, each in zip(names, read, strict=True) if not each.keyed)
        scorers = [", ".join(each.scorers) or "no scorers" for each in read]
        raise UserError(
            printable(
                f"{candidate} cannot be compared with {baseline}: the two share no scorers with 0/1 verdicts (they "
                f"have {scorers[0]}, and {scorers[1]}), and {lacking} has no right answers"
            )
        )
    sentences += [
        f"{name}: left out, because each question needs only one greedy answer: "
        f"{counted(each.left_out, 'repeated answer')} at temperature 0."
        for name, each in zip(names, read, strict=True)
        if each.left_out
    ]
    one, two = (_measured(name, each, scorer) for name, each in zip(names, read, strict=True))
    return one, two, [printable(sentence) for sentence in sentences]


def _read(name: str) -> Collected:
    path = Path(name)
    files = logs(path)
    if not files and path.suffix.lower() in TABLES:
        if not (rows := list(_rows(path))):
            raise UserError(f"{path} contains no answers")
        return collected_answers(path.stem, path.stem, rows)
    runs = collect(files or [path])
    if len(runs) > 1:
        raise UserError(
            printable(f"{name} contains several runs ({'; '.join(f'{each.model} on {each.task}' for each in runs)}): ")
            + "a gate compares one model on one task"
        )
    return runs[0]


def _rows(path: Path) -> Iterator[LoggedAnswer]:
    """Yield the rows of a gate's table of verdicts. Raises UserError for one without a question or a verdict."""
    for number, record in enumerate(read_records(path), start=1):
        where = f"{path}, answer {number}"
        place, text, verdict = (
            next((name for name in names if record.get(name) not in (None, "")), None)
            for names in (_IDS, _TEXTS, _VERDICTS)
        )
        if place is None or verdict is None:
            if {*_IDS} & record.keys() and {*_VERDICTS} & record.keys():
                raise UserError(f"{where}: {'question_id' if place is None else 'correct'} is empty: remove the row")
            raise UserError(
                f"{where}: a table for the gate must have the columns question_id and correct (0 or 1), not "
                f"{', '.join(map(str, record))}; to grade replies, run robust-eval sampler=recorded "
                f"sampler.file={path} dataset=FILE, and gate the runs"
            )
        value = _number(record[verdict], where, verdict)
        if value not in (0, 1):
            raise UserError(f"{where}: column {verdict!r} must contain 0 or 1, not {value:g}")
        at = record.get("temperature")
        yield LoggedAnswer(
            *(path.stem, path.stem, Question(str(record[place]), str(record.get("question") or ""))),
            temperature_of(None if at in (None, "") else _number(at, where, "temperature"), where),
            str(record[text]) if text is not None else f"{value:g} ({path})",  # of two tables never the same
            where,
            rewrite=int(_number(record.get("rewrite") or 0, where, "rewrite")),
            scores={verdict: value},
        )


def _number(value: Any, where: str, column: str) -> float:
    word = str(value).strip().lower()
    try:
        number = _WORDS[word] if word in _WORDS else float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{where}: {column!r} must be a finite number, not {excerpt(value)}")
    return number


def _has_verdicts(log: Collected, scorer: str, some: bool = False) -> bool:
    """Return True if a log's scorer gives only 0 and 1, to every reply or, where they suffice, to ``some``."""
    scores = _scores(log, scorer)
    scored, replies = ~np.isnan(scores), log.answers["text"].is_valid().to_numpy()
    if "weight" in log.answers.column_names:  # a probability, of a choice that nobody scores
        replies &= log.answers["weight"].is_null().to_numpy()
    return bool(scored.any() and np.isin(scores[scored], (0, 1)).all() and (some or scored[replies].all()))


def _scores(log: Collected, scorer: str) -> Floats:
    """Return (N,) the score of each answer in a log; NaN without one."""
    return np.asarray(log.answers[SCORE + scorer].to_numpy(zero_copy_only=False), dtype=float)


def _measured(name: str, log: Collected, scorer: str | None) -> MeasuredRun:
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "answers.parquet"
        pq.write_table(log.answers, file)
        answers = AnswerFile(file, {}).read(None)
    reader = ReplyReader() if log.request.chat or log.request.reader == "reply" else FirstLineReader()
    graded = ReplyGrader(reader, Matching(), first_line=False).grade(log.questions, answers.drop_columns(SAMPLER))
    if scorer is not None:
        scores = pc.equal(pa.array(_scores(log, scorer), from_pandas=True), 1)
        outcome = pc.if_else(scores.is_valid(), "ok", graded["outcome"].combine_chunks())
        graded = with_columns(graded, {"correct": scores, "outcome": outcome})
    graded = graded.append_column(SAMPLER, answers[SAMPLER])
    described: dict[str, Sequence[Any]] = {column: [""] * len(log.questions) for column in DESCRIBING}
    described |= {
        "question_id": [each.id for each in log.questions],
        "question": [printable(each.title) for each in log.questions],
        "kept": [True] * len(log.questions),
        KEY: ["" if scorer is not None else each.key for each in log.questions],
    }
    settings = {
        "model.name": log.model,
        "dataset.name": log.task,
        "temperature": ", ".join(map(temperature_name, temperatures_of(answers))),
        "max_tokens": log.request.max_tokens,
    }
    run = FinishedRun(settings, {}, pa.table(described))
    return MeasuredRun(name, Path(name), run, graded, EXACT_CURVES.empty_table())

"""Logs of harnesses: their formats, and a table of answers with its questions for each model and task."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.answer import SAMPLER, SCHEMA, with_sampling_metadata
from robust_eval.error import UserError, first_line
from robust_eval.interop.every_eval_ever import read_every_eval_ever
from robust_eval.interop.helm import read_helm
from robust_eval.interop.inspect_log import read_inspect
from robust_eval.interop.lm_eval_samples import read_lm_eval
from robust_eval.interop.logged_answer import LoggedAnswer, RequestSettings
from robust_eval.interop.openai_batch import read_batch
from robust_eval.normalization import normalize
from robust_eval.question import Question
from robust_eval.runtime.files import regular, text_lines
from robust_eval.runtime.json_files import json_line
from robust_eval.runtime.text import printable

SCORE = "score."
"""Prefix of the column of a harness's own scorer."""


@dataclass
class Collected:
    """Answers of one model to one task, collected from logs, with the keys that these have; ``request`` is that of the
    first answer.
    """

    model: str
    task: str
    questions: list[Question]
    answers: pa.Table
    request: RequestSettings
    left_out: int
    """Answers at temperature 0 beyond the first of a question."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reason why a question has no key, by question id."""

    @property
    def keyed(self) -> list[Question]:
        """Questions that have a key."""
        return [each for each in self.questions if each.answers or each.correct is not None]

    @property
    def ungraded(self) -> dict[str, list[str]]:
        """Ids of the questions whose answers cannot be graded, by the reason."""
        by_reason: dict[str, list[str]] = {}
        for each in self.questions:
            if not each.answers and each.correct is None:
                reason = self.reasons.get(each.id) or "the log contains no right answers"
            elif not each.choices and not any(map(normalize, each.answers)):
                reason = "the normalised target is empty"
            else:
                continue
            by_reason.setdefault(reason, []).append(each.id)
        return by_reason

    @property
    def scorers(self) -> list[str]:
        """Names of the harness's own scorers in the collected logs."""
        return [name.removeprefix(SCORE) for name in self.answers.column_names if name.startswith(SCORE)]

    def json_lines(self) -> str:
        """Return the questions that have a key in the layout of ``dataset=jsonl``."""
        records = ({"question": each.text, **asdict(each), "text": ""} for each in self.keyed)
        filled = ({name: value for name, value in record.items() if value not in ("", (), None)} for record in records)
        return "".join(f"{json.dumps(record)}\n" for record in filled)


_STARTS = (
    ("helm", (b'"adapter_spec"',)),
    ("every_eval_ever", (b'"evaluation_id"',)),
    ("inspect", (b'"version"', b'"eval"')),
)
"""Formats of JSON, and the names at the beginning of a file that identify them."""
_FIELDS = (
    ("lm_eval", {"doc_id", "doc", "arguments", "resps"}),
    ("batch_output", {"custom_id", "response"}),
    ("batch_output", {"custom_id", "error"}),
    ("batch_request", {"custom_id", "body"}),
    ("instances", {"schema_version", "evaluation_id", "sample_id"}),
)
"""Formats of JSON Lines, and the fields of the first line that identify them."""


def harness_of(file: Path) -> str | None:
    """Return the format of a log; None for any other file. UserError if it cannot be read."""
    try:
        if not regular(file).is_file():
            return None
        if file.suffix.lower() == ".eval":
            return "inspect"
        if file.suffix.lower() == ".json":
            with open(file, "rb") as content:
                start = content.read(2**16)
            return next((name for name, names in _STARTS if all(each in start for each in names)), None)
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror or first_line(problem)}") from problem
    if file.suffix.lower() != ".jsonl":
        return None
    number, line = next(((number, line) for number, line in text_lines(file) if line.strip()), (0, ""))
    try:
        first = json_line(line, f"{file}, line {number}") if number else None
    except UserError:
        return None
    present = first.keys() if isinstance(first, dict) else set()
    return next((name for name, names in _FIELDS if names <= present), None)


def collect(files: Sequence[Path]) -> list[Collected]:
    """Collect the answers in logs of any harness, by model and task. UserError names the broken part of a log."""
    if len({*files}) < len(files):
        raise UserError("a log is named twice")
    logs: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        if (harness := harness_of(file)) is None:
            raise UserError(
                f"{file} is not a supported log: pass inspect_ai logs (.eval, .json), lm-eval samples "
                "(samples_*.jsonl), OpenAI batch requests and outputs (.jsonl), a HELM scenario_state.json, or "
                "Every Eval Ever records (.json, .jsonl)"
            )
        logs[harness].append(file)
    requests, outputs = logs["batch_request"], logs["batch_output"]
    once: dict[Any, LoggedAnswer] = {}
    for answer in chain(
        *map(read_inspect, logs["inspect"]),
        *map(read_lm_eval, logs["lm_eval"]),
        read_batch(requests, outputs) if requests or outputs else (),
        *map(read_helm, logs["helm"]),
        *(read_every_eval_ever(file, logs["every_eval_ever"]) for file in logs["instances"]),
    ):
        key = len(once) if answer.sample is None else answer.sample
        if key not in once or (once[key].columns.get("outcome") == "error" != answer.columns.get("outcome")):
            once[key] = answer  # the log of a retry repeats the samples that have a reply
    groups: dict[tuple[str, str], list[LoggedAnswer]] = {}
    for answer in once.values():
        groups.setdefault((answer.model, answer.task), []).append(answer)
    if not groups:
        raise UserError(f"{', '.join(map(str, files))}: no answers")
    for (model, task), answers in groups.items():
        _refuse_failed(model, task, answers)
    return [collected_answers(model, task, answers) for (model, task), answers in groups.items()]


def _refuse_failed(model: str, task: str, answers: Sequence[LoggedAnswer]) -> None:
    """Raise UserError with the errors of a log in which no sample has a reply."""
    if any(answer.text for answer in answers) or not (errors := Counter(each.error for each in answers if each.error)):
        return
    most_frequent = "; ".join(f"{printable(error):.200} ({number:,})" for error, number in errors.most_common(3))
    more = f"; {len(errors) - 3:,} other errors" if len(errors) > 3 else ""
    raise UserError(
        f"{printable(f'{model} on {task}')}: none of {len(answers):,} samples has a reply; they failed with: "
        f"{most_frequent}{more}"
    )


def collected_answers(model: str, task: str, answers: Sequence[LoggedAnswer]) -> Collected:
    """Collect the answers of one model to one task in a table, those of one condition as trials in their order."""
    questions: dict[str, Question] = {}
    trials: dict[tuple[str, int, str, str], int] = {}
    rows: list[dict[str, Any]] = []
    reasons: dict[str, str] = {}
    left_out = 0
    for answer in answers:
        question = answer.question
        first_version = questions.setdefault(question.id, question)
        if first_version != question:
            raise UserError(
                f"{answer.where}: an earlier question with the same id has different text, a different right answer, "
                "or its choices in a different order"
            )
        if answer.ungraded:
            reasons.setdefault(question.id, answer.ungraded)
        sampler = str(answer.columns.get(SAMPLER, "")) if answer.temperature else ""
        condition = (question.id, answer.rewrite, repr(answer.temperature), sampler)
        trial = trials.get(condition, 0)
        trials[condition] = trial + 1
        if trial and answer.temperature == 0:
            left_out += 1
            continue
        scores = {f"{SCORE}{printable(name)}": value for name, value in answer.scores.items()}
        condition_columns = {"question_id": question.id, "rewrite": answer.rewrite, "temperature": answer.temperature}
        rows.append(condition_columns | {"trial": trial, "text": answer.text, **answer.columns, **scores})
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        kind = pa.float64() if name.startswith(SCORE) else pa.string() if name == SAMPLER else SCHEMA.field(name).type
        try:
            values = [row.get(name) for row in rows]
            columns[name] = pa.array(values, kind, from_pandas=name.startswith(SCORE))  # a score of NaN is none
        except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError) as problem:
            raise UserError(f"{answers[0].where.split(',')[0]}: {name!r} cannot be stored: {problem}") from problem
    table = pa.table(columns)
    if answers[0].metadata is not None:
        table = with_sampling_metadata(table, answers[0].metadata)
    return Collected(model, task, list(questions.values()), table, answers[0].request, left_out, reasons)

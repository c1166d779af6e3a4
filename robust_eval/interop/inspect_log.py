"""Logs of inspect_ai, ``.eval`` and JSON: samples are read one by one, epochs are trials.

The samples are checked by inspect_ai's own classes (robust_eval[inspect]); the layout is that of
``inspect_ai/log/_recorders``.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from robust_eval.answer import NO_REPLY
from robust_eval.error import UserError, first_line
from robust_eval.interop.finished_answers import ConditionAnswers, FinishedAnswers, right_answers, verdict
from robust_eval.interop.logged_answer import (
    TOO_MANY,
    LoggedAnswer,
    RequestSettings,
    letter_in,
    lettered_options,
    logprobs_columns,
    question_of,
    temperature_of,
)
from robust_eval.interop.own_mark import MARK, columns_of, marked
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.files import WHOLE, member, parsed_json, read_json, refuse_members
from robust_eval.runtime.finish_reasons import end_of
from robust_eval.runtime.text import printable

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalResults, EvalSample, EvalSampleReductions
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

_BROKEN = (ValueError, KeyError, IndexError, TypeError, OSError, EOFError, RuntimeError, NotImplementedError)
"""Exceptions of inspect_ai and the standard library for logs that are not whole."""
_LEFT = ("events", "events_data", "store", "attachments", "timelines", "error_retries")
"""Parts of a sample that are not needed, and are most of it."""
_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Values of inspect_ai's letters of scores."""


def read_inspect(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answer of each sample and epoch. UserError names the sample that is broken."""
    try:
        from inspect_ai.log import EvalSample, read_eval_log
        from zstandard import ZstdError
    except ImportError as problem:
        raise UserError(
            f"{file} is a log of inspect_ai, which is not installed: pip install 'robust_eval[inspect]'"
        ) from problem
    try:
        _refuse_large(file)
        header = read_eval_log(str(file), header_only=True)
    except UserError:
        raise
    except (*_BROKEN, zipfile.BadZipFile, zlib.error, ZstdError) as problem:
        raise UserError(f"{file} is not a complete log of inspect_ai: {reason(problem)}") from problem
    config = header.eval.model_generate_config.merge(header.plan.config)
    answers: list[tuple[LoggedAnswer, Any]] = []
    graders: set[tuple[str, bool]] = set()
    for where, raw in _samples(file, header.eval.dataset.sample_ids or (), ZstdError):
        try:
            if not isinstance(raw, dict):
                raise ValueError(f"a sample is an object, not {type(raw).__name__}")
            sample = EvalSample.model_validate({name: value for name, value in raw.items() if name not in _LEFT})
        except (*_BROKEN, RecursionError) as problem:
            raise UserError(f"{where}: no sample of inspect_ai: {reason(problem)}") from problem
        temperature = temperature_of(_last_config(raw).get("temperature", config.temperature), where)
        stop = tuple(config.stop_seqs or ())
        graders |= _graders(sample.scores or {})
        answer = _answer(sample, header.eval.model, header.eval.task, temperature, stop, config.max_tokens, where)
        answers.append((answer, sample.metadata.get(MARK)))
    if not answers and header.error is not None:
        raise UserError(f"{file} holds no sample, because the run failed: {_error_line(header.error)}")
    by_model = sorted(name for name, is_model in graders if is_model)
    guideline = f"a model graded the replies ({', '.join(by_model)}), so that a target may be a guideline and no answer"
    for answer, mark in answers:
        if by_model and len(by_model) == len(graders):
            answer = replace(answer, question=Question(answer.question.id, answer.question.text), ungraded=guideline)
        yield marked(answer, mark)


def _refuse_large(file: Path) -> None:
    """Raise UserError where inspect_ai would read more than fits into memory."""
    if file.suffix.lower() == ".json":
        size = file.stat().st_size
        if size > WHOLE:
            raise UserError(
                f"{file} has {size / 2**20:,.0f} MiB, and a JSON log of more than {WHOLE / 2**20:,.0f} MiB does not "
                "fit into memory: convert it (inspect log convert --to eval), an .eval log is read sample by sample"
            )
        return
    with zipfile.ZipFile(file) as archive:
        refuse_members(file, archive)
        for name in archive.NameToInfo:
            if not name.startswith("samples/"):
                member(file, archive, name)


def _graders(scores: Any) -> set[tuple[str, bool]]:
    """Return the names of scorers, each with True if it asks a model: model_graded_qa and the like, under any name."""
    return {
        (name, name.rpartition("/")[2].startswith("model_graded") or "grading" in (score.metadata or {}))
        for name, score in scores.items()
    }


def _samples(file: Path, ids: Sequence[Any], zstd_error: type[Exception]) -> Iterator[tuple[str, Any]]:
    """Yield the place of each sample, for messages, and its JSON; the last of several with one name.

    An .eval log has its samples in the order in which they ended. They come in the order of ``ids``, others last.
    """
    if file.suffix.lower() == ".json":
        whole = read_json(file)
        for number, raw in enumerate(whole.get("samples") or [], start=1):
            fields = raw if isinstance(raw, dict) else {}
            yield f"{file}, sample {fields.get('id', f'number {number}')} epoch {fields.get('epoch', '?')}", raw
        return
    with zipfile.ZipFile(file) as archive:
        members = [name for name in archive.NameToInfo if name.startswith("samples/") and name.endswith(".json")]
        members_by_epoch = [
            (name.removeprefix("samples/").removesuffix(".json").rpartition("_epoch_"), name) for name in members
        ]
        place = {str(sample): number for number, sample in enumerate(ids)}
        members_by_epoch.sort(
            key=lambda each: (place.get(each[0][0], len(place)), int(each[0][2]) if each[0][2].isdigit() else 0)
        )
        for (sample, _, epoch), name in members_by_epoch:
            where = f"{file}, sample {sample} epoch {epoch}"
            try:
                yield where, parsed_json(member(file, archive, name))
            except UserError:
                raise
            except (*_BROKEN, zipfile.BadZipFile, zlib.error, zstd_error) as problem:
                raise UserError(f"{where}: it cannot be read: {reason(problem)}") from problem


def _last_config(raw: Any) -> dict[str, Any]:
    """Return the settings of the last call of the model, in which a solver may override the log's header."""
    events = raw.get("events") if isinstance(raw, dict) else None
    calls = [each for each in events or [] if isinstance(each, dict) and each.get("event") == "model"]
    config = calls[-1].get("config") if calls else None
    return {name: value for name, value in config.items() if value is not None} if isinstance(config, dict) else {}


def _answer(
    sample: Any, model: str, task: str, temperature: float, stop: tuple[str, ...], max_tokens: int | None, where: str
) -> LoggedAnswer:
    if isinstance(sample.input, str):
        question_text = sample.input
    else:
        question_text = next((each.text for each in reversed(sample.input) if each.role == "user"), "")
    question, ungraded = _question(sample, question_text, where)
    text = sample.output.completion if sample.output.choices else None
    outcome = "error" if sample.error is not None else failure(sample.output)
    if outcome is None and sample.limit is not None and not text:
        outcome = "error"
    last = len(sample.messages) - (bool(sample.messages) and sample.messages[-1].role == "assistant")
    messages = tuple((each.role, each.text) for each in sample.messages[:last])
    return LoggedAnswer(
        model=model,
        task=task,
        question=question,
        temperature=temperature,
        text=text,
        where=where,
        request=RequestSettings(messages, stop, max_tokens),
        columns={"outcome": outcome, **output_columns(sample.output)},
        scores=_scores(sample.scores or {}),
        ungraded=ungraded,
        error="" if text or sample.error is None else _error_line(sample.error),
    )


def _error_line(error: Any) -> str:
    """Return the message of an error of inspect_ai in one line."""
    return printable(" ".join(error.message.split()))


def _question(sample: Any, question_text: str, where: str) -> tuple[Question, str]:
    """Return the question of a sample, and the reason if it has no key; empty if it has one, or no target.

    A target that is a letter needs choices: those of the sample, or those that its input lists.
    """
    targets = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    choices = list(sample.choices or ())
    letters = [letter for each in targets if (letter := letter_in(each))]
    reason = ""
    if choices and len(targets) > 1 and len(letters) == len(targets):
        reason = "the target names several choices, and one is right"
    elif len(choices) > len(LETTERS):
        reason = TOO_MANY.format(len(choices))
    elif not choices and len(targets) == 1 and letters:
        choices, targets = list(lettered_options(question_text)), letters
        if LETTERS.find(letters[0]) not in range(min(len(choices), len(LETTERS))) or len(choices) > len(LETTERS):
            reason = "the target is a letter, and the input lists no such choice"
    if reason:
        targets = choices = []
    return question_of(str(sample.id), question_text, targets, choices, where), reason


def output_columns(output: Any) -> dict[str, Any]:
    """Return the further columns of an answer: of the first choice of an output of inspect_ai (``ModelOutput``)."""
    columns: dict[str, Any] = {}
    for choice in output.choices[:1]:
        columns["finish_reason"] = end_of(choice.stop_reason)
        contents = choice.message.content if isinstance(choice.message.content, list) else []
        if reasoning := "\n".join(part.reasoning for part in contents if part.type == "reasoning"):
            columns["reasoning"] = reasoning
        if choice.logprobs is not None:
            columns |= logprobs_columns(
                (each.logprob, [top.logprob for top in each.top_logprobs or ()]) for each in choice.logprobs.content
            )
    if usage := output.usage:
        columns |= {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        columns["reasoning_tokens"] = usage.reasoning_tokens
    return columns


def failure(output: Any) -> str | None:
    """Return the outcome of an output of inspect_ai without an answer; None for any other."""
    if not output.choices or (output.error and not output.completion):
        return "error"
    return "filtered_reply" if output.choices[0].stop_reason == "content_filter" else None


def _scores(scores: Any) -> dict[str, float]:
    """Return the scores that are single numbers, or letters that stand for one."""
    numbers = {}
    for name, score in scores.items():
        value = _VALUES.get(score.value, score.value) if isinstance(score.value, str) else score.value
        if isinstance(value, bool | int | float):
            numbers[name] = float(value)
    return numbers


def reason(problem: BaseException) -> str:
    """Return the reason why a log cannot be read, in one line: the first wrong field of pydantic."""
    errors = getattr(problem, "errors", None)
    if callable(errors) and (field_errors := errors()):
        place = ".".join(str(part) for part in field_errors[0].get("loc", ()))
        return f"{place or 'it'}: {field_errors[0].get('msg', '')}"
    if isinstance(problem, zipfile.BadZipFile):
        return f"{first_line(problem)} (a log that was cut off can be recovered: inspect log recover)"
    if isinstance(problem, json.JSONDecodeError):
        return f"broken JSON ({problem.msg} at column {problem.colno})"
    return first_line(problem)


def is_inspect(file: Path) -> bool:
    """Return True for a log of inspect_ai."""
    if file.suffix.lower() != ".json":
        return file.suffix.lower() == ".eval"
    with open(file, "rb") as content:
        start = content.read(4096).decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    return start.startswith("{") and '"version"' in start and '"eval"' in start


_STOPPED = {"stop": "stop", "length": "max_tokens", "tool": "tool_calls", "filter": "content_filter"}


def write_inspect(answers: FinishedAnswers, folder: Path) -> list[Path]:
    """Write the log into a folder; return its file. UserError where inspect_ai is not installed."""
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as problem:
        raise UserError(
            "a log of inspect_ai is written by its own package, which is not installed: pip install "
            "'robust_eval[inspect]'"
        ) from problem
    now = datetime.now(UTC)
    log = _log(answers, now)
    task = re.sub(r"[^A-Za-z0-9.]+", "-", answers.task).strip("-.") or "task"
    file = folder / f"{now:%Y-%m-%dT%H-%M-%S}-00-00_{task[:100]}_{log.eval.task_id}.eval"
    write_eval_log(log, str(file))
    return [file]


def _log(answers: FinishedAnswers, now: datetime) -> "EvalLog":
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSpec, EvalStats
    from inspect_ai.log._log import EvalScorer

    conditions = answers.conditions
    at = now.isoformat(timespec="seconds")
    samples = [_sample(answers, each, epoch) for each in conditions for epoch in range(1, len(each.rows) + 1)]
    spec = EvalSpec(
        created=at,
        task=answers.task,
        task_id=uuid4().hex[:22],
        run_id=uuid4().hex[:22],
        model=answers.model,
        dataset=EvalDataset(  # without a number of epochs, of which conditions differ: the viewer divides by it
            name=answers.task, samples=len(samples), sample_ids=[each.name for each in conditions], shuffled=False
        ),
        config=EvalConfig(),
        packages={"robust_eval": version("robust_eval"), "inspect_ai": version("inspect_ai")},
        metadata={
            MARK: {
                name: value if isinstance(value, str | int | float | bool | None) else str(value)
                for name, value in answers.settings.items()
            }
        },
        scorers=[EvalScorer(name=MARK)],
    )
    log = EvalLog(
        status="success",
        eval=spec,
        results=_results(answers, len(samples)),
        stats=EvalStats(started_at=at, completed_at=at),
        samples=samples,
    )
    log.reductions = _reductions(answers)  # its constructor takes them from JSON alone
    return log


def _sample(answers: FinishedAnswers, condition: ConditionAnswers, epoch: int) -> "EvalSample":
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatMessageUser

    row = condition.rows[epoch - 1]
    output = _output(answers.model, row)
    messages: list[Any] = [ChatMessageUser(content=condition.wording)]
    messages += [output.choices[0].message] if output.choices else []
    failed = row["outcome"] == "error"
    held = ("reasoning",) if row["token_logprobs"] is None else ("reasoning", "token_logprobs", "top_logprobs")
    return EvalSample(
        id=condition.name,
        epoch=epoch,
        input=condition.wording,
        choices=list(condition.arranged.choices) or None,
        target=right_answers(condition.arranged),
        messages=messages,
        output=output,
        scores={MARK: _score(row)},
        metadata={MARK: condition.mark(answers.metadata) | {"answer": columns_of(row, *held)}},
        error=EvalError(message="no reply came", traceback="", traceback_ansi="") if failed else None,
    )


def _output(model: str, row: dict[str, Any]) -> "ModelOutput":
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ContentReasoning,
        ContentText,
        ModelOutput,
        ModelUsage,
    )

    counts = {"input_tokens": row["prompt_tokens"], "output_tokens": row["completion_tokens"]}
    usage = None
    if None not in counts.values():
        usage = ModelUsage(**counts, total_tokens=sum(counts.values()), reasoning_tokens=row["reasoning_tokens"])
    if row["outcome"] in NO_REPLY and not row["text"] and not row["reasoning"]:
        return ModelOutput(model=model, usage=usage)
    content: Any = row["text"]
    if row["reasoning"]:
        content = [ContentReasoning(reasoning=row["reasoning"]), ContentText(text=row["text"])]
    stopped: Any = (
        "content_filter" if row["outcome"] == "filtered_reply" else _STOPPED.get(row["finish_reason"], "unknown")
    )
    choice = ChatCompletionChoice(
        message=ChatMessageAssistant(content=content, model=model, source="generate"),
        stop_reason=stopped,
        logprobs=_logprobs(row),
    )
    return ModelOutput(model=model, choices=[choice], usage=usage)


def _logprobs(row: dict[str, Any]) -> Any:
    """Return the log-probabilities; the name of a token is its number, if that is known."""
    from inspect_ai.model import Logprob, Logprobs, TopLogprob

    token_logprobs, top = row["token_logprobs"], row["top_logprobs"]
    if token_logprobs is None:
        return None
    ids = row["token_ids"] or [""] * len(token_logprobs)
    tops: Sequence[Any] = top or [None] * len(token_logprobs)
    content = [
        Logprob(
            token=str(token),
            logprob=logprob,
            top_logprobs=None if each is None else [TopLogprob(token="", logprob=one) for one in each],
        )
        for token, logprob, each in zip(ids, token_logprobs, tops, strict=True)
    ]
    return Logprobs(content=content)


def _score(row: dict[str, Any]) -> "Score":
    from inspect_ai.scorer import CORRECT, INCORRECT, Score

    right = verdict(row)
    value: Any = float("nan") if right is None else CORRECT if right else INCORRECT
    metadata = {name: row[name] for name in ("label", "exact", "rule", "reason", "outcome") if row[name] is not None}
    return Score(value=value, answer=row["answer"], explanation=row["reason"] or row["rule"], metadata=metadata)


def _results(answers: FinishedAnswers, samples: int) -> "EvalResults":
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    metrics = {}
    run = answers.labelled.run
    for name, estimate in answers.metrics.items():
        about, n = run.about(name), run.n(name)
        metadata = {"label": about.words if about else name, "n": n}
        ends = {} if estimate.low != estimate.low else {f"{name}.low": estimate.low, f"{name}.high": estimate.high}
        for key, value in ({name: estimate.value} | ends).items():
            metrics[key] = EvalMetric(name=key, group=name, value=value, metadata=metadata)
    verdicts = [verdict(row) for each in answers.conditions for row in each.rows]
    scored = sum(each is not None for each in verdicts)
    return EvalResults(
        total_samples=samples,
        completed_samples=samples,
        scores=[
            EvalScore(name=MARK, scorer=MARK, scored_samples=scored, unscored_samples=samples - scored, metrics=metrics)
        ],
    )


def _reductions(answers: FinishedAnswers) -> "list[EvalSampleReductions]":
    """Return the values of the questions for each metric that is a mean over them, at the first sample of each."""
    from inspect_ai.log import EvalSampleReductions, EvalSampleScore

    first: dict[str, str] = {}
    for each in answers.conditions:
        first.setdefault(each.question.id, each.name)
    return [
        EvalSampleReductions(
            scorer=metric,
            reducer="question",
            samples=[
                EvalSampleScore(value=value, sample_id=first[name]) for name, value in values.items() if name in first
            ],
        )
        for metric, values in answers.by_question()
    ]

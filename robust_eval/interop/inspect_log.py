"""Logs of inspect_ai, ``.eval`` and JSON: samples are read one by one, epochs are trials.

The samples are checked by inspect_ai's own classes (robust_eval[inspect]); the layout is that of
``inspect_ai/log/_recorders``.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from robust_eval.answer import NO_REPLY
from robust_eval.error import UserError, first_line
from robust_eval.interop.export_mark import MARK, columns_of, marked
from robust_eval.interop.finished_answers import ConditionAnswers, FinishedAnswers, right_answers, verdict
from robust_eval.interop.logged_answer import (
    TOO_MANY,
    LoggedAnswer,
    RequestSettings,
    letter_in,
    lettered_options,
    logprobs_columns,
    question_of,
    target_fault,
    temperature_of,
)
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.files import member, refuse_members
from robust_eval.runtime.finish_reasons import end_of
from robust_eval.runtime.json_files import MAX_JSON, parsed_json, read_json
from robust_eval.runtime.text import excerpt, printable

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalResults, EvalSample, EvalSampleReductions, EvalSpec
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

_BROKEN = (ValueError, KeyError, IndexError, TypeError, OSError, EOFError, RuntimeError, NotImplementedError)
"""Exceptions of inspect_ai and the standard library for incomplete logs."""
_UNUSED = ("events", "events_data", "store", "attachments", "timelines", "error_retries")
"""Parts of a sample that are not read, and are most of it."""
_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Values of the letters that inspect_ai writes as scores."""


def read_inspect(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answer of each sample and epoch in inspect_ai's log. UserError names the broken sample."""
    try:
        from inspect_ai.log import EvalSample, read_eval_log
        from zstandard import ZstdError
    except ImportError as problem:
        raise UserError(
            f"{file} is an inspect_ai log, but inspect_ai is not installed: pip install 'robust_eval[inspect]'"
        ) from problem
    try:
        _refuse_large(file)
        header = read_eval_log(str(file), header_only=True)
    except UserError:
        raise
    except (*_BROKEN, zipfile.BadZipFile, zlib.error, ZstdError) as problem:
        raise UserError(f"{file} is not a complete inspect_ai log: {reason(problem)}") from problem
    config = header.eval.model_generate_config.merge(header.plan.config)
    answers: list[tuple[LoggedAnswer, Any]] = []
    scorers: dict[str, bool] = {}
    """Names of scorers, with True for one that asks a model: model_graded_qa and the like, under any name."""
    for where, raw in _samples(file, header.eval.dataset.sample_ids or (), ZstdError):
        try:
            if not isinstance(raw, dict):
                raise ValueError(f"a sample must be an object, not {excerpt(raw)}")
            sample = EvalSample.model_validate({name: value for name, value in raw.items() if name not in _UNUSED})
        except (*_BROKEN, RecursionError) as problem:
            raise UserError(f"{where}: not an inspect_ai sample: {reason(problem)}") from problem
        temperature = temperature_of(_last_temperature(raw, config.temperature), where)
        for name, score in (sample.scores or {}).items():
            is_model = name.rpartition("/")[2].startswith("model_graded") or "grading" in (score.metadata or {})
            scorers[name] = is_model and scorers.get(name, True)
        answers.append((_answer(sample, header.eval, temperature, config, where), sample.metadata.get(MARK)))
    if not answers and header.error is not None:
        raise UserError(f"{file} contains no samples, because the run failed: {_error_line(header.error)}")
    guideline = f"a model graded the replies ({', '.join(sorted(scorers))}), so a target may be a guideline"
    for answer, mark in answers:
        if scorers and all(scorers.values()):
            answer = replace(answer, question=Question(answer.question.id, answer.question.text), ungraded=guideline)
        yield marked(answer, mark)


def _refuse_large(file: Path) -> None:
    """Raise UserError if inspect_ai would read more of a log than fits into memory."""
    if file.suffix.lower() == ".json":
        size = file.stat().st_size
        if size > MAX_JSON:
            raise UserError(
                f"{file} is {size / 2**20:,.0f} MiB, and a JSON log of more than {MAX_JSON / 2**20:,.0f} MiB does not "
                "fit into memory: convert it (inspect log convert --to eval); an .eval log is read sample by sample"
            )
        return
    with zipfile.ZipFile(file) as archive:
        refuse_members(file, archive)
        for name in archive.NameToInfo:
            if not name.startswith("samples/"):
                member(file, archive, name)


def _samples(file: Path, ids: Sequence[Any], zstd_error: type[Exception]) -> Iterator[tuple[str, Any]]:
    """Yield the name of each inspect_ai sample, for messages, and its JSON, in the order of ``ids``, others last.

    An .eval log has its samples in the order in which they ended; the last of several with one name counts.
    """
    if file.suffix.lower() == ".json":
        for number, raw in enumerate(read_json(file).get("samples") or [], start=1):
            fields = raw if isinstance(raw, dict) else {}
            yield f"{file}, sample {fields.get('id', f'number {number}')} epoch {fields.get('epoch', '?')}", raw
        return
    with zipfile.ZipFile(file) as archive:
        position = {str(sample): number for number, sample in enumerate(ids)}
        names = [name for name in archive.NameToInfo if name.startswith("samples/") and name.endswith(".json")]
        members = [(*name.removeprefix("samples/").removesuffix(".json").rpartition("_epoch_"), name) for name in names]
        members.sort(key=lambda each: (position.get(each[0], len(position)), int(each[2]) if each[2].isdigit() else 0))
        for sample, _, epoch, name in members:
            where = f"{file}, sample {sample} epoch {epoch}"
            try:
                yield where, parsed_json(member(file, archive, name))
            except UserError:
                raise
            except (*_BROKEN, zipfile.BadZipFile, zlib.error, zstd_error) as problem:
                raise UserError(f"{where} cannot be read: {reason(problem)}") from problem


def _last_temperature(raw: Mapping[str, Any], default: float | None) -> Any:
    """Return the temperature of a sample's last model call, in which a solver may override that of the header.

    Calls of scorers, which may ask a model for a verdict, do not count.
    """
    events = [each for each in raw.get("events") or [] if isinstance(each, dict)]
    sampled = takewhile(lambda each: each.get("type") not in ("scorers", "scorer"), events)
    calls = [each for each in sampled if each.get("event") == "model"]
    config = calls[-1].get("config") if calls else None
    temperature = config.get("temperature") if isinstance(config, dict) else None
    return default if temperature is None else temperature


def _answer(sample: Any, spec: "EvalSpec", temperature: float, config: Any, where: str) -> LoggedAnswer:
    question_text = sample.input
    if not isinstance(question_text, str):
        question_text = next((each.text for each in reversed(sample.input) if each.role == "user"), "")
    question, ungraded = _question(sample, question_text, where)
    text = sample.output.completion if sample.output.choices else None
    outcome = "error" if sample.error is not None else failure(sample.output)
    if outcome is None and sample.limit is not None and not text:
        outcome = "error"
    last = len(sample.messages) - (bool(sample.messages) and sample.messages[-1].role == "assistant")
    messages = tuple((each.role, each.text) for each in sample.messages[:last])
    return LoggedAnswer(
        model=spec.model,
        task=spec.task,
        question=question,
        temperature=temperature,
        text=text,
        where=where,
        request=RequestSettings(messages, tuple(config.stop_seqs or ()), config.max_tokens),
        columns={"outcome": outcome, **output_columns(sample.output)},
        scores=_scores(sample.scores or {}),
        ungraded=ungraded,
        error="" if text or sample.error is None else _error_line(sample.error),
        sample=(spec.task_id, sample.id, sample.epoch) if spec.task_id else None,
    )


def _error_line(error: Any) -> str:
    """Return the message of an error of inspect_ai in one line."""
    return printable(" ".join(error.message.split()))


def _question(sample: Any, question_text: str, where: str) -> tuple[Question, str]:
    """Return the question of an inspect_ai sample, and the reason why it has no key; empty if it has one, or no target.

    A target that is a letter needs choices: those of the sample, or those listed in its input.
    """
    targets = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    choices = list(sample.choices or ())
    letters = [letter for each in targets if (letter := letter_in(each))]
    reason = ""
    if len(choices) > len(LETTERS):
        reason = TOO_MANY.format(len(choices))
    elif choices and (fault := target_fault(targets, choices)):
        reason = f"the target {fault}"
    elif not choices and len(targets) == 1 and letters:
        choices, targets = list(lettered_options(question_text)), letters
        if LETTERS.find(letters[0]) not in range(min(len(choices), len(LETTERS))) or len(choices) > len(LETTERS):
            reason = "the target is a letter, and the input lists no such choice"
    if reason:
        targets = choices = []
    return question_of(str(sample.id), question_text, targets, choices, where), reason


def output_columns(output: Any) -> dict[str, Any]:
    """Return the further columns of an answer, from the first choice of an output of inspect_ai (``ModelOutput``)."""
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
        cached = usage.input_tokens_cache_read
        prompt = usage.input_tokens + (cached or 0) + (usage.input_tokens_cache_write or 0)
        columns |= {"prompt_tokens": prompt, "cached_tokens": cached}
        columns |= {"completion_tokens": usage.output_tokens, "reasoning_tokens": usage.reasoning_tokens}
    return columns


def failure(output: Any) -> str | None:
    """Return the outcome of an output of inspect_ai without an answer; None if it has one."""
    if not output.choices or (output.error and not output.completion):
        return "error"
    return "filtered_reply" if output.choices[0].stop_reason == "content_filter" else None


def _scores(scores: Any) -> dict[str, float]:
    """Return the scores of a sample that are numbers, or letters for numbers."""
    values = {name: _VALUES.get(str(score.value), score.value) for name, score in scores.items()}
    return {name: float(value) for name, value in values.items() if isinstance(value, bool | int | float)}


def reason(problem: BaseException) -> str:
    """Return the reason why an inspect_ai log cannot be read, in one line: of pydantic, the first wrong field."""
    fields: Sequence[Any] = getattr(problem, "errors", tuple)()
    if fields:
        return f"{'.'.join(map(str, fields[0]['loc'])) or 'it'}: {fields[0]['msg']}"
    if isinstance(problem, zipfile.BadZipFile):
        return f"{first_line(problem)} (recover a truncated log: inspect log recover)"
    if isinstance(problem, json.JSONDecodeError):
        return f"broken JSON ({problem.msg} at column {problem.colno})"
    return first_line(problem)


_STOPPED = {"stop": "stop", "length": "max_tokens", "tool": "tool_calls", "filter": "content_filter"}


def write_inspect(answers: FinishedAnswers, folder: Path) -> list[Path]:
    """Write a run as a log of inspect_ai into a folder; return its file. UserError if inspect_ai is not installed."""
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as problem:
        raise UserError(
            "inspect_ai, which writes its logs, is not installed: pip install 'robust_eval[inspect]'"
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
    created = now.isoformat(timespec="seconds")
    samples = [_sample(answers, each, epoch) for each in conditions for epoch in range(1, len(each.rows) + 1)]
    spec = EvalSpec(
        created=created,
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
        stats=EvalStats(started_at=created, completed_at=created),
        samples=samples,
    )
    log.reductions = _reductions(answers)  # its constructor takes JSON alone
    return log


def _sample(answers: FinishedAnswers, condition: ConditionAnswers, epoch: int) -> "EvalSample":
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatMessageUser

    row = condition.rows[epoch - 1]
    output = _output(answers.model, row)
    messages: list[Any] = [ChatMessageUser(content=condition.wording)]
    messages += [output.choices[0].message] if output.choices else []
    logprobs = () if row["token_logprobs"] is None else ("token_logprobs", "top_logprobs")
    return EvalSample(
        id=condition.name,
        epoch=epoch,
        input=condition.wording,
        choices=list(condition.arranged.choices) or None,
        target=right_answers(condition.arranged),
        messages=messages,
        output=output,
        scores={MARK: _score(row)},
        metadata={MARK: condition.mark(answers.metadata) | {"answer": columns_of(row, "reasoning", *logprobs)}},
        error=EvalError(message="no reply", traceback="", traceback_ansi="") if row["outcome"] == "error" else None,
    )


def _output(model: str, row: dict[str, Any]) -> "ModelOutput":
    from inspect_ai.model import ModelOutput

    tokens_in, tokens_out, cached = row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]
    usage = None
    if tokens_in is not None and tokens_out is not None:
        usage = {
            "input_tokens": tokens_in - (cached or 0),
            "input_tokens_cache_read": cached,
            "output_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "reasoning_tokens": row["reasoning_tokens"],
        }
    output: dict[str, Any] = {"model": model, "usage": usage}
    if row["outcome"] not in NO_REPLY or row["text"] or row["reasoning"]:
        content: Any = row["text"]
        if row["reasoning"]:
            parts = {"reasoning": row["reasoning"], "text": row["text"]}
            content = [{"type": kind, kind: part} for kind, part in parts.items()]
        stop = "content_filter" if row["outcome"] == "filtered_reply" else _STOPPED.get(row["finish_reason"], "unknown")
        message = {"role": "assistant", "content": content, "model": model, "source": "generate"}
        output["choices"] = [{"message": message, "stop_reason": stop, "logprobs": _logprobs(row)}]
    return ModelOutput.model_validate(output)


def _logprobs(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the log-probabilities in the layout of inspect_ai; the name of a token is its id, if any."""
    logprobs = row["token_logprobs"]
    if logprobs is None:
        return None
    ids, tops = (row[name] or [None] * len(logprobs) for name in ("token_ids", "top_logprobs"))
    content = [
        {
            "token": "" if token is None else str(token),
            "logprob": logprob,
            "top_logprobs": None if top is None else [{"token": "", "logprob": one} for one in top],
        }
        for token, logprob, top in zip(ids, logprobs, tops, strict=True)
    ]
    return {"content": content}


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
        spec, n = run.spec(name), run.n(name)
        metadata = {"label": spec.words if spec else name, "n": n}
        ends = {} if estimate.low != estimate.low else {f"{name}.low": estimate.low, f"{name}.high": estimate.high}
        for key, value in ({name: estimate.value} | ends).items():
            metrics[key] = EvalMetric(name=key, group=name, value=value, metadata=metadata)
    scored = sum(verdict(row) is not None for each in answers.conditions for row in each.rows)
    score = EvalScore(name=MARK, scorer=MARK, scored_samples=scored, unscored_samples=samples - scored, metrics=metrics)
    return EvalResults(total_samples=samples, completed_samples=samples, scores=[score])


def _reductions(answers: FinishedAnswers) -> "list[EvalSampleReductions]":
    """Return the values of each metric that is a mean over questions, as inspect_ai's reductions: each value at the
    first sample of its question.
    """
    from inspect_ai.log import EvalSampleReductions, EvalSampleScore

    first = {each.question.id: each.name for each in reversed(answers.conditions)}
    reductions = []
    for metric, values in answers.by_question():
        scores = [EvalSampleScore(value=value, sample_id=first[id_]) for id_, value in values.items() if id_ in first]
        reductions.append(EvalSampleReductions(scorer=metric, reducer="question", samples=scores))
    return reductions

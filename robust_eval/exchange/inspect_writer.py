"""A finished run as a log of inspect_ai: a sample for each question and condition, epochs are trials."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from robust_eval.answer import NO_REPLY
from robust_eval.error import UserError
from robust_eval.exchange.finished_answers import Condition, FinishedAnswers, right_answers, verdict
from robust_eval.harness.own_mark import MARK, columns_of, mark_of

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalResults, EvalSample, EvalSampleReductions
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

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
        metadata={MARK: {name: value if _is_plain(value) else str(value) for name, value in answers.settings.items()}},
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


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _sample(answers: FinishedAnswers, condition: Condition, epoch: int) -> "EvalSample":
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatMessageUser

    question, row = condition.question, condition.rows[epoch - 1]
    mark = mark_of(question, condition.rewrite, condition.temperature, condition.kept, answers.asked)
    output = _output(answers.model, row)
    messages: list[Any] = [ChatMessageUser(content=condition.wording)]
    messages += [output.choices[0].message] if output.choices else []
    failed = row["outcome"] == "error"
    held = ("reasoning",) if row["token_logprobs"] is None else ("reasoning", "token_logprobs", "top_logprobs")
    return EvalSample(
        id=condition.name,
        epoch=epoch,
        input=condition.wording,
        choices=list(condition.shown.choices) or None,
        target=right_answers(condition.shown),
        messages=messages,
        output=output,
        scores={MARK: _score(row)},
        metadata={MARK: mark | {"answer": columns_of(row, *held)}},
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
    said: Any = row["text"]
    if row["reasoning"]:
        said = [ContentReasoning(reasoning=row["reasoning"]), ContentText(text=row["text"])]
    stopped: Any = (
        "content_filter" if row["outcome"] == "filtered_reply" else _STOPPED.get(row["finish_reason"], "unknown")
    )
    choice = ChatCompletionChoice(
        message=ChatMessageAssistant(content=said, model=model, source="generate"),
        stop_reason=stopped,
        logprobs=_logprobs(row),
    )
    return ModelOutput(model=model, choices=[choice], usage=usage)


def _logprobs(row: dict[str, Any]) -> Any:
    """Return the log-probabilities; a token is called by its number, where that is known."""
    from inspect_ai.model import Logprob, Logprobs, TopLogprob

    own, top = row["token_logprobs"], row["top_logprobs"]
    if own is None:
        return None
    ids = row["token_ids"] or [""] * len(own)
    tops: Sequence[Any] = top or [None] * len(own)
    content = [
        Logprob(
            token=str(token),
            logprob=logprob,
            top_logprobs=None if each is None else [TopLogprob(token="", logprob=one) for one in each],
        )
        for token, logprob, each in zip(ids, own, tops, strict=True)
    ]
    return Logprobs(content=content)


def _score(row: dict[str, Any]) -> "Score":
    from inspect_ai.scorer import CORRECT, INCORRECT, Score

    found = verdict(row)
    value: Any = float("nan") if found is None else CORRECT if found else INCORRECT
    said = {name: row[name] for name in ("label", "exact", "rule", "reason", "outcome") if row[name] is not None}
    return Score(value=value, answer=row["answer"], explanation=row["reason"] or row["rule"], metadata=said)


def _results(answers: FinishedAnswers, samples: int) -> "EvalResults":
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    metrics = {}
    run = answers.labelled.run
    for name, estimate in answers.figures.items():
        about, n = run.about(name), run.n(name)
        told = {"label": about.words if about else name, "n": n}
        ends = {} if estimate.low != estimate.low else {f"{name}.low": estimate.low, f"{name}.high": estimate.high}
        for key, value in ({name: estimate.value} | ends).items():
            metrics[key] = EvalMetric(name=key, group=name, value=value, metadata=told)
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
    """Return the value of each question of the figures that are means over them; its sample is the first of the
    question.
    """
    from inspect_ai.log import EvalSampleReductions, EvalSampleScore

    first: dict[str, str] = {}
    for each in answers.conditions:
        first.setdefault(each.question.id, each.name)
    return [
        EvalSampleReductions(
            scorer=figure,
            reducer="question",
            samples=[
                EvalSampleScore(value=value, sample_id=first[name]) for name, value in values.items() if name in first
            ],
        )
        for figure, values in answers.by_question()
    ]

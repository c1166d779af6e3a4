"""A finished run as lm-eval writes one: samples (``--log_samples``) and results, a pair for each temperature.

The layout is that of ``lm_eval/loggers/evaluation_tracker.py``: lm-eval run again at another temperature leaves another
pair of the same task.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from robust_eval.answer import write_text
from robust_eval.error import UserError
from robust_eval.exchange.finished_answers import Condition, FinishedAnswers, right_answers, verdict
from robust_eval.harness.own_mark import MARK, columns_of, mark_of

METRIC = "accuracy"
"""What the verdicts are called: the share of right replies to a document."""


def write_lm_eval(answers: FinishedAnswers, folder: Path) -> list[Path]:
    """Write the files into a folder of the model's name; return them.

    UserError for answers that are no repeats, but enumerated with their probabilities.
    """
    if answers.enumerated:
        raise UserError(
            "the answers of this run are enumerated with their probabilities, for which lm-eval has no place: export "
            "it --to inspect or --to csv"
        )
    place = folder / _file_name(answers.model)
    place.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[str, int, str], list[Condition]] = {}
    for each in answers.conditions:
        groups.setdefault((each.sampler, each.rewrite, repr(each.temperature)), []).append(each)
    now, task = datetime.now(UTC), _file_name(answers.task)
    number = {question_id: doc_id for doc_id, question_id in enumerate(answers.labelled.questions)}
    written = []
    for part, conditions in enumerate(groups.values()):
        date = f"{now:%Y-%m-%dT%H-%M-%S}.{part:06}"
        samples = [_sample(answers, each, number[each.question.id]) for each in conditions]
        lines = "".join(f"{json.dumps(sample)}\n" for sample in samples)
        whole = json.dumps(_results(answers, task, conditions, samples, now), indent=2)
        for name, text in ((f"samples_{task}_{date}.jsonl", lines), (f"results_{date}.json", whole)):
            write_text(text, place / name)
            written.append(place / name)
    return written


def _file_name(name: str) -> str:
    """Return a name as lm-eval makes it one of a file."""
    return re.sub(r"[^\w.\-]+", "__", name).strip(".") or "unnamed"


def _sample(answers: FinishedAnswers, condition: Condition, doc_id: int) -> dict[str, Any]:
    question, rows = condition.question, condition.rows
    mark = mark_of(question, condition.rewrite, condition.temperature, condition.kept, answers.asked)
    doc: dict[str, Any] = {"id": question.id, "question": question.title, "answers": list(question.answers)}
    doc |= {"choices": list(condition.shown.choices)} if question.choices else {}
    target = right_answers(condition.shown)
    texts = [row["text"] for row in rows]
    return {
        "doc_id": doc_id,
        "doc": doc | {MARK: mark | {"answers": [columns_of(row) for row in rows]}},
        "target": target[0] if len(target) == 1 else str(target),
        "arguments": {"gen_args_0": {"arg_0": condition.wording, "arg_1": _settings(answers, condition)}},
        "resps": [texts],
        "filtered_resps": texts,
        "filter": "none",
        "metrics": [METRIC],
        "doc_hash": _hash(json.dumps(doc)),
        "prompt_hash": _hash(condition.wording),
        "target_hash": _hash(str(target)),
        METRIC: _share([condition]),
    }


def _settings(answers: FinishedAnswers, condition: Condition) -> dict[str, Any]:
    """Return the settings of generation; a model's own temperature is none."""
    own = condition.temperature != condition.temperature
    found: dict[str, Any] = {"until": ["\n"] if answers.asked.first_lines else []}
    found |= (
        {"do_sample": True} if own else {"do_sample": condition.temperature > 0, "temperature": condition.temperature}
    )
    limit = answers.settings.get(f"sampler.{condition.sampler}.max_new_tokens")
    return found | ({"max_gen_toks": limit} if isinstance(limit, int) else {})


def _share(conditions: Sequence[Condition]) -> float | None:
    """Return the share of right replies; None where there are none, or nothing says what is right."""
    found = [value for each in conditions for row in each.rows if (value := verdict(row)) is not None]
    return float(np.mean(found)) if found else None


def _results(
    answers: FinishedAnswers,
    task: str,
    conditions: Sequence[Condition],
    samples: Sequence[dict[str, Any]],
    now: datetime,
) -> dict[str, Any]:
    figures = {
        name: {"value": one.value, **({} if one.low != one.low else {"low": one.low, "high": one.high})}
        for name, one in answers.figures.items()
    }
    settings = samples[0]["arguments"]["gen_args_0"]["arg_1"]
    return {
        "results": {task: {"alias": task, f"{METRIC},none": _share(conditions), f"{METRIC}_stderr,none": "N/A"}},
        "group_subtasks": {task: []},
        "configs": {
            task: {
                "task": task,
                "output_type": "generate_until",
                "repeats": max(len(each.rows) for each in conditions),
                "generation_kwargs": settings,
            }
        },
        "versions": {task: "Yaml"},
        "n-shot": {task: 0},
        "higher_is_better": {task: {METRIC: True}},
        "n-samples": {task: {"original": len(conditions), "effective": len(conditions)}},
        "config": {"model": answers.model, "gen_kwargs": settings, MARK: {"figures": figures}},
        "date": now.timestamp(),
        "model_source": MARK,
        "model_name": answers.model,
        "model_name_sanitized": _file_name(answers.model),
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

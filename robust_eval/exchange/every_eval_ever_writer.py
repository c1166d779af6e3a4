"""A finished run as a record of Every Eval Ever, and its answers as instances beside it.

The layout is that of ``eval.schema.json`` and ``instance_level_eval.schema.json``, version 0.3.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from robust_eval.answer import NO_REPLY, temperature_name, write_text
from robust_eval.error import UserError
from robust_eval.exchange.finished_answers import Condition, FinishedAnswers, right_answers, verdict
from robust_eval.harness.own_mark import MARK, columns_of, mark_of
from robust_eval.metric.metric_spec import curve_and_temperature

SCHEMA_VERSION = "0.3.0"
LEVEL = 0.95
"""Of the intervals."""


def write_every_eval_ever(answers: FinishedAnswers, folder: Path) -> list[Path]:
    """Write record and instances where the format wants them, ``data/TASK/DEVELOPER/MODEL/``; return both files.

    UserError for answers that are no repeats, but enumerated with their probabilities.
    """
    if answers.enumerated:
        raise UserError(
            "the answers of this run are enumerated with their probabilities, for which Every Eval Ever has no place: "
            "export it --to inspect or --to csv"
        )
    model = _model_id(answers.model)
    task = _part(answers.task)
    now = str(datetime.now(UTC).timestamp())
    evaluation_id = f"{task}/{model.replace('/', '_')}/{now}"
    name = str(uuid4())
    place = folder.joinpath("data", task, *model.split("/"))
    place.mkdir(parents=True, exist_ok=True)
    instances = "".join(f"{json.dumps(each)}\n" for each in _instances(answers, evaluation_id, model))
    file, record = place / f"{name}_samples.jsonl", place / f"{name}.json"
    write_text(instances, file)
    whole = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": evaluation_id,
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": MARK,
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": MARK,
            "version": version(MARK),
            "additional_details": {key: str(value) for key, value in answers.settings.items()},
        },
        "model_info": {
            "name": answers.model,
            "id": model,
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [*_verdict_results(answers), *_figure_results(answers)],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": file.relative_to(folder).as_posix(),
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(instances.encode()).hexdigest(),
            "total_rows": sum(len(each.rows) for each in answers.conditions),
        },
    }
    write_text(json.dumps(whole, indent=2) + "\n", record)
    return [record, file]


def _model_id(model: str) -> str:
    """Return a name as ``DEVELOPER/MODEL``; the developer of one without is not known."""
    developer, _, name = model.rpartition("/")
    return f"{_part(developer) if developer else 'unknown'}/{_part(name)}"


def _part(name: str) -> str:
    return re.sub(r"[^\w.\-]+", "_", name).strip(".") or "unnamed"


def _result_id(condition: Condition) -> str:
    """Return which result an answer belongs to: the share of right ones under its condition."""
    reworded = f".rewrite{condition.rewrite}" if condition.rewrite else ""
    return f"right.{condition.sampler}.t{temperature_name(condition.temperature)}{reworded}"


def _source(answers: FinishedAnswers) -> dict[str, Any]:
    return {"dataset_name": answers.task, "source_type": "other"}


def _verdict_results(answers: FinishedAnswers) -> Iterator[dict[str, Any]]:
    """Yield the share of right replies under each condition, to which the instances belong."""
    groups: dict[str, list[Condition]] = {}
    for each in answers.conditions:
        groups.setdefault(_result_id(each), []).append(each)
    for result, conditions in groups.items():
        rows = [row for each in conditions for row in each.rows]
        judged = [value for row in rows if (value := verdict(row)) is not None]
        described = "share of right replies" if judged else "share of requests that brought a reply: none was judged"
        values = judged or [float(row["outcome"] not in NO_REPLY) for row in rows]
        t = conditions[0].temperature
        settings: dict[str, Any] = {} if t != t else {"temperature": t}
        limit = answers.settings.get(f"sampler.{conditions[0].sampler}.max_new_tokens")
        settings |= {"max_tokens": limit} if isinstance(limit, int) else {}
        yield {
            "evaluation_result_id": result,
            "evaluation_name": answers.task,
            "source_data": _source(answers),
            "metric_config": {
                "metric_id": "accuracy" if judged else "replies",
                "evaluation_description": described,
                "lower_is_better": False,
                "score_type": "continuous",
                "min_score": 0,
                "max_score": 1,
            },
            "score_details": {"score": float(np.mean(values)), "uncertainty": {"num_samples": len(values)}},
            "generation_config": {"generation_args": settings},
        }


def _figure_results(answers: FinishedAnswers) -> Iterator[dict[str, Any]]:
    """Yield the figures of the run, with their intervals."""
    run = answers.labelled.run
    for name, estimate in answers.figures.items():
        about = run.about(name)
        if about is None:
            continue
        uncertainty: dict[str, Any] = {}
        if (n := run.n(name)) is not None:
            uncertainty["num_samples"] = n
        if estimate.low == estimate.low:
            ends = {"lower": estimate.low, "upper": estimate.high, "confidence_level": LEVEL}
            uncertainty["confidence_interval"] = ends | {"method": "over questions"}
        curve = curve_and_temperature(name)
        settings = {} if curve is None or curve[1] != curve[1] else {"temperature": curve[1]}
        yield {
            "evaluation_result_id": name,
            "evaluation_name": answers.task,
            "source_data": _source(answers),
            "metric_config": {
                "metric_id": name,
                "metric_name": about.words,
                "evaluation_description": about.words,
                **({"metric_unit": about.unit} if about.unit else {}),
                "lower_is_better": about.more_is_better is False,
                "score_type": "continuous",
                "min_score": _limit(about.limits[0], -math.inf),
                "max_score": _limit(about.limits[1], math.inf),
            },
            "score_details": {"score": estimate.value, **({"uncertainty": uncertainty} if uncertainty else {})},
            "generation_config": {"generation_args": settings},
        }


def _limit(limit: float, unknown: float) -> float | str:
    found = limit if math.isfinite(limit) else unknown
    return found if math.isfinite(found) else ("Infinity" if found > 0 else "-Infinity")


def _instances(answers: FinishedAnswers, evaluation_id: str, model: str) -> Iterator[dict[str, Any]]:
    for condition in answers.conditions:
        question = condition.question
        target = right_answers(condition.shown)
        mark = mark_of(question, condition.rewrite, condition.temperature, condition.kept, answers.asked)
        hashed = hashlib.sha256((condition.wording + "".join(target)).encode()).hexdigest()
        for row in condition.rows:
            found = verdict(row)
            yield {
                "schema_version": SCHEMA_VERSION,
                "evaluation_id": evaluation_id,
                "model_id": model,
                "evaluation_name": answers.task,
                "evaluation_result_id": _result_id(condition),
                "sample_id": question.id,
                "sample_hash": hashed,
                "interaction_type": "single_turn",
                "input": {
                    "raw": condition.wording,
                    "reference": target,
                    "choices": list(condition.shown.choices) or None,
                },
                "output": {
                    "raw": [row["text"]],
                    "reasoning_trace": [row["reasoning"]] if row["reasoning"] else None,
                },
                "messages": None,
                "answer_attribution": _attribution(row),
                "evaluation": {"score": found or 0.0, "is_correct": bool(found)},
                "token_usage": _usage(row),
                "error": row["outcome"] if row["outcome"] in NO_REPLY else None,
                "metadata": {MARK: json.dumps(mark | {"answer": columns_of(row, "reasoning")})},
            }


def _attribution(row: dict[str, Any]) -> Sequence[dict[str, Any]]:
    if row["answer"] is None:
        return []
    return [
        {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": row["answer"],
            "extraction_method": row["rule"] or "whole reply",
            "is_terminal": True,
        }
    ]


def _usage(row: dict[str, Any]) -> dict[str, Any] | None:
    asked, said = row["prompt_tokens"], row["completion_tokens"]
    if asked is None or said is None:
        return None
    found = {"input_tokens": asked, "output_tokens": said, "total_tokens": asked + said}
    return found | {"input_tokens_cache_read": row["cached_tokens"], "reasoning_tokens": row["reasoning_tokens"]}

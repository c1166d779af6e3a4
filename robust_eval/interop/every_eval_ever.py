"""Every Eval Ever: a record of a run (JSON), and beside it its instances (JSON Lines).

The layout is that of the package's schemas, ``eval.schema.json`` and ``instance_level_eval.schema.json``, version 0.3.
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

from robust_eval.answer import DEFAULT_TEMPERATURE, NO_REPLY, temperature_name
from robust_eval.error import UserError, first_line
from robust_eval.interop.export_mark import MARK, columns_of, marked
from robust_eval.interop.finished_answers import ConditionAnswers, FinishedAnswers, right_answers, verdict
from robust_eval.interop.logged_answer import LoggedAnswer, RequestSettings, of_kind, question_of, texts
from robust_eval.metric.metric_spec import curve_and_temperature
from robust_eval.runtime.files import write_text
from robust_eval.runtime.json_files import json_lines, parsed_json, read_json


def read_every_eval_ever(file: Path, records: Sequence[Path]) -> Iterator[LoggedAnswer]:
    """Yield the answers in a file of instances of Every Eval Ever; ``records`` are JSON files that describe them.

    The format repeats an instance for each metric: the answers of the first metric at each temperature count, and all
    with a mark (:mod:`robust_eval.interop.export_mark`). UserError names the sample.
    """
    temperatures = dict(_temperatures([*records, *sorted(file.parent.glob("*.json"))]))
    metrics: dict[tuple[str, str, float], Any] = {}
    for line, _, record in json_lines(file):
        sample_id = of_kind(record, "sample_id", str, line)
        where = f"{line}, sample {sample_id}"
        result = of_kind(record, "evaluation_result_id", str, where, "")
        evaluation = of_kind(record, "evaluation_id", str, where)
        temperature = temperatures.get((evaluation, result), temperatures.get((evaluation, None), DEFAULT_TEMPERATURE))
        mark = _mark(record, where)
        if mark is None and metrics.setdefault((evaluation, sample_id, temperature), result) != result:
            continue
        if record.get("interaction_type") != "single_turn":
            raise UserError(f"{where}: a conversation of several turns cannot be imported")
        request = of_kind(record, "input", dict, where)
        choices = [str(each) for each in of_kind(request, "choices", list, where, [])]
        text = of_kind(request, "raw", str, where)
        question = question_of(sample_id, text, texts(request.get("reference")), choices, where)
        output = of_kind(record, "output", dict, where, {})
        replies = of_kind(output, "raw", list, where, [])
        usage = of_kind(record, "token_usage", dict, where, {})
        columns: dict[str, Any] = {}
        if type(usage.get("input_tokens")) is int and type(usage.get("output_tokens")) is int:
            columns = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
        if record.get("error") and not any(replies):
            columns["outcome"] = "error"
        if thoughts := "\n".join(texts(output.get("reasoning_trace"))):
            columns["reasoning"] = thoughts
        score = of_kind(record, "evaluation", dict, where).get("score")
        has_score = mark is None and isinstance(score, int | float)
        answer = LoggedAnswer(
            model=of_kind(record, "model_id", str, where),
            task=of_kind(record, "evaluation_name", str, where),
            question=question,
            temperature=temperature,
            text="".join(texts(replies[-1:])) if replies else None,
            where=where,
            request=RequestSettings((("user", str(request.get("formatted") or text)),)),
            columns=columns,
            scores={result or "score": float(score)} if has_score else {},
        )
        yield marked(answer, mark)


def _mark(record: Any, where: str) -> Any:
    """Return the mark of an instance of Every Eval Ever; None without one."""
    mark = of_kind(record, "metadata", dict, where, {}).get(MARK)
    try:
        return None if mark is None else parsed_json(str(mark))
    except ValueError as problem:
        raise UserError(f"{where}: {MARK} is not JSON: {first_line(problem)}") from problem


def _temperatures(records: Sequence[Path]) -> Iterator[tuple[tuple[str, Any], float]]:
    """Yield the temperature of each result in Every Eval Ever's records, by the ids of evaluation and result; with None
    in place of the result, the last temperature of the evaluation.
    """
    for file in records:
        try:
            record = read_json(file)
        except ValueError as problem:
            raise UserError(f"{file} is not an Every Eval Ever record: {first_line(problem)}") from problem
        if not isinstance(record, dict) or "evaluation_results" not in record:
            continue
        for result in of_kind(record, "evaluation_results", list, str(file)):
            config = of_kind(result, "generation_config", dict, str(file), {})
            t = of_kind(config, "generation_args", dict, str(file), {}).get("temperature")
            if isinstance(t, int | float) and t >= 0:
                evaluation = of_kind(record, "evaluation_id", str, str(file))
                yield (evaluation, None), float(t)
                yield (evaluation, of_kind(result, "evaluation_result_id", str, str(file), "")), float(t)


SCHEMA_VERSION = "0.3.0"


def write_every_eval_ever(answers: FinishedAnswers, folder: Path) -> list[Path]:
    """Write the record and the instances into the format's folder, ``data/TASK/DEVELOPER/MODEL/``; return both files.

    UserError for answers that are enumerated with their probabilities.
    """
    if answers.enumerated:
        raise UserError(
            "the answers of this run are enumerated with their probabilities, which Every Eval Ever cannot store: "
            "export it with --to inspect or --to csv"
        )
    developer, _, name = answers.model.rpartition("/")
    model = f"{_file_name(developer) if developer else 'unknown'}/{_file_name(name)}"
    task = _file_name(answers.task)
    now = str(datetime.now(UTC).timestamp())
    evaluation_id = f"{task}/{model.replace('/', '_')}/{now}"
    model_folder = folder.joinpath("data", task, *model.split("/"))
    model_folder.mkdir(parents=True, exist_ok=True)
    instances = "".join(f"{json.dumps(each)}\n" for each in _instances(answers, evaluation_id, model))
    record_file = model_folder / f"{uuid4()}.json"
    file = record_file.with_name(f"{record_file.stem}_samples.jsonl")
    write_text(instances, file)
    record = {
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
        "evaluation_results": [*_verdict_results(answers), *_metric_results(answers)],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": file.relative_to(folder).as_posix(),
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(instances.encode()).hexdigest(),
            "total_rows": sum(len(each.rows) for each in answers.conditions),
        },
    }
    write_text(json.dumps(record, indent=2) + "\n", record_file)
    return [record_file, file]


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.\-]+", "_", name).strip(".") or "unnamed"


def _result_id(condition: ConditionAnswers) -> str:
    """Return the id of the result for a condition, the share of right answers."""
    rewrite = f".rewrite{condition.rewrite}" if condition.rewrite else ""
    return f"right.{condition.sampler}.t{temperature_name(condition.temperature)}{rewrite}"


def _result(
    answers: FinishedAnswers,
    result_id: str,
    config: dict[str, Any],
    score: float,
    uncertainty: dict[str, Any],
    settings: dict[str, Any],
) -> dict[str, Any]:
    return {
        "evaluation_result_id": result_id,
        "evaluation_name": answers.task,
        "source_data": {"dataset_name": answers.task, "source_type": "other"},
        "metric_config": config | {"score_type": "continuous"},
        "score_details": {"score": score} | ({"uncertainty": uncertainty} if uncertainty else {}),
        "generation_config": {"generation_args": settings},
    }


def _verdict_results(answers: FinishedAnswers) -> Iterator[dict[str, Any]]:
    """Yield a result for each condition, the share of right replies, to which the instances belong."""
    groups: dict[str, list[ConditionAnswers]] = {}
    for each in answers.conditions:
        groups.setdefault(_result_id(each), []).append(each)
    for result_id, conditions in groups.items():
        rows = [row for each in conditions for row in each.rows]
        judged = [value for row in rows if (value := verdict(row)) is not None]
        values = judged or [float(row["outcome"] not in NO_REPLY) for row in rows]
        t = conditions[0].temperature
        settings: dict[str, Any] = {} if t != t else {"temperature": t}
        limit = answers.settings.get(f"sampler.{conditions[0].sampler}.max_new_tokens")
        settings |= {"max_tokens": limit} if isinstance(limit, int) else {}
        config: dict[str, Any] = {"metric_id": "accuracy", "evaluation_description": "share of right replies"}
        if not judged:
            config = {
                "metric_id": "replies",
                "evaluation_description": "share of requests with a reply; replies are not judged",
            }
        config |= {"lower_is_better": False, "min_score": 0, "max_score": 1}
        yield _result(answers, result_id, config, float(np.mean(values)), {"num_samples": len(values)}, settings)


def _metric_results(answers: FinishedAnswers) -> Iterator[dict[str, Any]]:
    """Yield a result for each metric of the run, with its interval."""
    run = answers.labelled.run
    for name, estimate in answers.metrics.items():
        spec = run.spec(name)
        if spec is None:
            continue
        uncertainty: dict[str, Any] = {}
        if (n := run.n(name)) is not None:
            uncertainty["num_samples"] = n
        if estimate.low == estimate.low:
            ends = {"lower": estimate.low, "upper": estimate.high, "confidence_level": 0.95}
            uncertainty["confidence_interval"] = ends | {"method": "over questions"}
        curve = curve_and_temperature(name)
        settings = {} if curve is None or curve[1] != curve[1] else {"temperature": curve[1]}
        low, high = spec.limits
        config = {
            "metric_id": name,
            "metric_name": spec.words,
            "evaluation_description": spec.words,
            **({"metric_unit": spec.unit} if spec.unit else {}),
            "lower_is_better": spec.more_is_better is False,
            "min_score": low if math.isfinite(low) else "-Infinity",
            "max_score": high if math.isfinite(high) else "Infinity",
        }
        yield _result(answers, name, config, estimate.value, uncertainty, settings)


def _instances(answers: FinishedAnswers, evaluation_id: str, model: str) -> Iterator[dict[str, Any]]:
    for condition in answers.conditions:
        question = condition.question
        target, choices = right_answers(condition.arranged), list(condition.arranged.choices) or None
        mark = condition.mark(answers.metadata)
        hashed = hashlib.sha256((condition.wording + "".join(target)).encode()).hexdigest()
        for row in condition.rows:
            right = verdict(row)
            yield {
                "schema_version": SCHEMA_VERSION,
                "evaluation_id": evaluation_id,
                "model_id": model,
                "evaluation_name": answers.task,
                "evaluation_result_id": _result_id(condition),
                "sample_id": question.id,
                "sample_hash": hashed,
                "interaction_type": "single_turn",
                "input": {"raw": condition.wording, "reference": target, "choices": choices},
                "output": {"raw": [row["text"]], "reasoning_trace": [row["reasoning"]] if row["reasoning"] else None},
                "messages": None,
                "answer_attribution": _attribution(row),
                "evaluation": {"score": right or 0.0, "is_correct": bool(right)},
                "token_usage": _usage(row),
                "error": row["outcome"] if row["outcome"] in NO_REPLY else None,
                "metadata": {MARK: json.dumps(mark | {"answer": columns_of(row, "reasoning")})},
            }


def _attribution(row: dict[str, Any]) -> Sequence[dict[str, Any]]:
    extraction = {"extracted_value": row["answer"], "extraction_method": row["rule"] or "whole reply"}
    attribution = {"turn_idx": 0, "source": "output.raw", **extraction, "is_terminal": True}
    return [] if row["answer"] is None else [attribution]


def _usage(row: dict[str, Any]) -> dict[str, Any] | None:
    input_tokens, output_tokens = row["prompt_tokens"], row["completion_tokens"]
    if input_tokens is None or output_tokens is None:
        return None
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": input_tokens + output_tokens}
    return usage | {"input_tokens_cache_read": row["cached_tokens"], "reasoning_tokens": row["reasoning_tokens"]}

"""Every Eval Ever: a record of a run (JSON), and beside it its instances (JSON Lines).

The layout is that of the package's schemas, ``eval.schema.json`` and ``instance_level_eval.schema.json``, version 0.3.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.error import UserError, first_line
from robust_eval.harness.logged import AskedWith, LoggedAnswer, of_kind, question_of, texts
from robust_eval.harness.own_mark import MARK, marked
from robust_eval.runtime.files import json_lines, parsed_json, read_json


def is_instance(first: Any) -> bool:
    """Tell whether the first line of a file is an instance of Every Eval Ever."""
    return isinstance(first, dict) and {"schema_version", "evaluation_id", "sample_id"} <= first.keys()


def read_every_eval_ever(file: Path, records: Sequence[Path]) -> Iterator[LoggedAnswer]:
    """Yield the answers in a file of instances; ``records`` are the JSON files that were named beside it.

    An instance stands once for each metric: of those of one temperature the answers of the first metric are taken.
    What we wrote ourselves stands once (:mod:`robust_eval.harness.own_mark`).
    UserError names the sample.
    """
    known = dict(_temperatures([*records, *sorted(file.parent.glob("*.json"))]))
    metrics: dict[tuple[str, str, float], Any] = {}
    for line, _, record in json_lines(file):
        sample_id = of_kind(record, "sample_id", str, line)
        where = f"{line}, sample {sample_id}"
        result = record.get("evaluation_result_id")
        evaluation = of_kind(record, "evaluation_id", str, where)
        temperature = known.get((evaluation, result), known.get((evaluation, None), DEFAULT_TEMPERATURE))
        mark = _mark(record, where)
        if mark is None and metrics.setdefault((evaluation, sample_id, temperature), result) != result:
            continue
        if record.get("interaction_type") != "single_turn":
            raise UserError(f"{where}: a conversation of several turns is no answer to a question")
        asked = of_kind(record, "input", dict, where)
        choices = [str(each) for each in of_kind(asked, "choices", list, where, [])]
        text = of_kind(asked, "raw", str, where)
        question = question_of(sample_id, text, texts(asked.get("reference")), choices, where)
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
        answer = LoggedAnswer(
            model=of_kind(record, "model_id", str, where),
            task=of_kind(record, "evaluation_name", str, where),
            question=question,
            temperature=temperature,
            text="".join(texts(replies[-1:])) if replies else None,
            where=where,
            asked=AskedWith((("user", str(asked.get("formatted") or text)),)),
            columns=columns,
            scores={str(result or "score"): float(score)} if mark is None and isinstance(score, int | float) else {},
        )
        yield marked(answer, mark)


def _mark(record: Any, where: str) -> Any:
    """Return what an instance that we wrote says besides; None where another wrote it."""
    said = of_kind(record, "metadata", dict, where, {}).get(MARK)
    try:
        return None if said is None else parsed_json(str(said))
    except ValueError as problem:
        raise UserError(f"{where}: {MARK} is no JSON: {first_line(problem)}") from problem


def _temperatures(records: Sequence[Path]) -> Iterator[tuple[tuple[str, Any], float]]:
    """Yield the temperature that a record names, for each result by the ids of evaluation and result; for the
    evaluation alone (None) that of the last.
    """
    for file in records:
        try:
            whole = read_json(file)
        except ValueError as problem:
            raise UserError(f"{file} is no record of Every Eval Ever: {first_line(problem)}") from problem
        if not isinstance(whole, dict) or "evaluation_results" not in whole:
            continue
        for result in of_kind(whole, "evaluation_results", list, str(file)):
            settings = of_kind(
                of_kind(result, "generation_config", dict, str(file), {}), "generation_args", dict, str(file), {}
            )
            t = settings.get("temperature")
            if isinstance(t, int | float) and t >= 0:
                evaluation = of_kind(whole, "evaluation_id", str, str(file))
                yield (evaluation, None), float(t)
                yield (evaluation, result.get("evaluation_result_id")), float(t)

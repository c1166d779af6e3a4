"""HELM's ``scenario_state.json``: the requests of a run with their results.

The layout is that of ``helm/benchmark/adaptation/scenario_state.py`` and ``request_state.py``. Perturbed instances are
rewrites of the question.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.interop.logged_answer import (
    LoggedAnswer,
    RequestSettings,
    logprobs_columns,
    of_kind,
    question_of,
    temperature_of,
    texts,
)
from robust_eval.question import Question
from robust_eval.runtime.finish_reasons import end_of
from robust_eval.runtime.json_files import read_json


def read_helm(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answers to HELM's requests. UserError names the instance."""
    try:
        scenario = read_json(file)
    except ValueError as problem:
        raise UserError(f"{file} is not a complete HELM scenario state: {first_line(problem)}") from problem
    spec = of_kind(scenario, "adapter_spec", dict, str(file))
    perturbations: dict[str, list[str]] = {}
    originals: dict[str, str] = {}
    for number, state in enumerate(of_kind(scenario, "request_states", list, str(file)), start=1):
        instance = of_kind(state, "instance", dict, f"{file}, request {number}")
        instance_id = of_kind(instance, "id", str, f"{file}, request {number}")
        where = f"{file}, instance {instance_id}"
        if state.get("reference_index") is not None:
            raise UserError(
                f"{where}: the method {spec.get('method')} sends each reference alone, so there are no replies to grade"
            )
        rewrite, text = 0, of_kind(of_kind(instance, "input", dict, where), "text", str, where)
        if instance.get("perturbation"):
            kinds, kind = perturbations.setdefault(instance_id, []), str(instance["perturbation"])
            if kind not in kinds:
                kinds.append(kind)
            rewrite = kinds.index(kind) + 1
        else:
            originals.setdefault(instance_id, text)
        request = of_kind(state, "request", dict, where)
        limit = request.get("max_tokens")
        logged = partial(
            LoggedAnswer,
            model=of_kind(spec, "model", str, str(file), "recorded"),
            task=file.parent.name.split(":")[0] or "helm",
            question=_question(state, instance, originals.get(instance_id, text), where),
            temperature=temperature_of(request.get("temperature", 1.0), where),
            where=where,
            rewrite=rewrite,
            request=RequestSettings(
                (("user", of_kind(request, "prompt", str, where, "?")),),
                tuple(texts(request.get("stop_sequences"))),
                limit if type(limit) is int else None,
                chat=False,
            ),
        )
        result = of_kind(state, "result", dict, where, {})
        completions = of_kind(result, "completions", list, where, []) if result.get("success") else []
        if not completions:
            yield logged(text=None, columns={"outcome": "error"})
        for each in completions:
            yield logged(text=of_kind(each, "text", str, where, ""), columns=_columns(each, where))


def _question(state: Any, instance: Any, text: str, where: str) -> Question:
    mapping = of_kind(state, "output_mapping", dict, where, {})
    right = [
        of_kind(of_kind(reference, "output", dict, where), "text", str, where)
        for reference in of_kind(instance, "references", list, where, [])
        if "correct" in of_kind(reference, "tags", list, where, [])
    ]
    return question_of(instance["id"], text, right, [str(choice) for choice in mapping.values()], where)


def _columns(completion: Any, where: str) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "finish_reason": end_of(of_kind(completion, "finish_reason", dict, where, {}).get("reason"))
    }
    thinking = of_kind(completion, "thinking", dict, where, {}).get("text")
    if isinstance(thinking, str):
        columns["reasoning"] = thinking
    tokens = of_kind(completion, "tokens", list, where, [])
    logprobs = [float(of_kind(token, "logprob", (int, float), where)) for token in tokens]
    # HELM writes 0 if the server gave none
    return columns | (logprobs_columns((logprob, ()) for logprob in logprobs) if any(logprobs) else {})

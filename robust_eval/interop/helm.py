"""HELM's ``scenario_state.json``: the requests of a run with their results.

The layout is that of ``helm/benchmark/adaptation/scenario_state.py`` and ``request_state.py``. Perturbed instances are
rewrites of the question.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.interop.logged_answer import (
    LoggedAnswer,
    RequestSettings,
    logprobs_columns,
    of_kind,
    question_of,
    texts,
)
from robust_eval.runtime.files import read_json
from robust_eval.runtime.finish_reasons import end_of


def read_helm(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answers to the requests. UserError names the instance."""
    try:
        whole = read_json(file)
    except ValueError as problem:
        raise UserError(f"{file} is no whole scenario state of HELM: {first_line(problem)}") from problem
    spec = of_kind(whole, "adapter_spec", dict, str(file))
    model = of_kind(spec, "model", str, str(file), "recorded")
    perturbed: dict[tuple[str, str], int] = {}
    originals: dict[str, str] = {}
    for number, state in enumerate(of_kind(whole, "request_states", list, str(file)), start=1):
        instance = of_kind(state, "instance", dict, f"{file}, request {number}")
        instance_id = of_kind(instance, "id", str, f"{file}, request {number}")
        where = f"{file}, instance {instance_id}"
        if state.get("reference_index") is not None:
            raise UserError(
                f"{where}: each reference was asked for by itself ({spec.get('method')}), so "
                "there are no replies to grade"
            )
        rewrite = 0
        if instance.get("perturbation"):
            kind = str(instance["perturbation"])
            before = [name for name in perturbed if name[0] == instance_id]
            rewrite = perturbed.setdefault((instance_id, kind), len(before) + 1)
        text = of_kind(of_kind(instance, "input", dict, where), "text", str, where)
        if not rewrite:
            originals.setdefault(instance_id, text)
        yield from _answers(
            state, instance, spec, instance_id, originals.get(instance_id, text), rewrite, model, file, where
        )


def _answers(
    state: Any, instance: Any, spec: Any, instance_id: str, text: str, rewrite: int, model: str, file: Path, where: str
) -> Iterator[LoggedAnswer]:
    mapping = of_kind(state, "output_mapping", dict, where, {})
    right = []
    for reference in of_kind(instance, "references", list, where, []):
        if "correct" in of_kind(reference, "tags", list, where, []):
            right.append(of_kind(of_kind(reference, "output", dict, where), "text", str, where))
    question = question_of(instance_id, text, right, [str(choice) for choice in mapping.values()], where)
    request = of_kind(state, "request", dict, where)
    temperature = float(of_kind(request, "temperature", (int, float), where, 1.0))
    if not 0 <= temperature < float("inf"):
        raise UserError(f"{where}: the temperature must be 0 or more, not {temperature!r}")
    limit = request.get("max_tokens")
    request_settings = RequestSettings(
        (("user", of_kind(request, "prompt", str, where, "?")),),
        tuple(texts(request.get("stop_sequences"))),
        limit if type(limit) is int else None,
        chat=False,
    )
    task = file.parent.name.split(":")[0] or "helm"
    result = of_kind(state, "result", dict, where, {})
    completions = of_kind(result, "completions", list, where, []) if result.get("success") else []
    if not completions:
        yield LoggedAnswer(
            model, task, question, temperature, None, where, rewrite, request_settings, columns={"outcome": "error"}
        )
    for each in completions:
        finish = of_kind(each, "finish_reason", dict, where, {}).get("reason")
        thinking = of_kind(each, "thinking", dict, where, {}).get("text")
        columns: dict[str, Any] = {"finish_reason": end_of(finish)}
        if isinstance(thinking, str):
            columns["reasoning"] = thinking
        tokens = [float(of_kind(t, "logprob", (int, float), where)) for t in of_kind(each, "tokens", list, where, [])]
        if any(tokens):  # HELM writes 0 where the server gave none
            columns |= logprobs_columns((logprob, ()) for logprob in tokens)
        reply = str(each.get("text") or "")
        yield LoggedAnswer(model, task, question, temperature, reply, where, rewrite, request_settings, columns=columns)

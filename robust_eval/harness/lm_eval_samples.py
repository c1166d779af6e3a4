"""Samples of lm-eval (``--log_samples``): a line a document and filter, with all repeats in ``resps``.

The layout is that of ``lm_eval/loggers/evaluation_tracker.py``. What a document means is said by its task: the columns
that tasks have for questions, choices and targets are looked for by their usual names.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robust_eval.answer import OWN
from robust_eval.error import UserError
from robust_eval.harness.logged import AskedWith, LoggedAnswer, of_kind, question_of, shown, texts
from robust_eval.harness.own_mark import MARK, marked
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.json_text import parsed_json
from robust_eval.runtime.text_lines import json_lines

_QUESTION = ("question", "query", "input", "problem", "goal", "prompt", "sentence", "ctx")
_ANSWERS = ("answers", "aliases", "answer", "answerKey", "target", "gold", "label")
_IDS = ("id", "question_id", "_id", "qid")


def is_lm_eval(first: Any) -> bool:
    """Tell whether the first line of a file is a sample of lm-eval."""
    return isinstance(first, dict) and {"doc_id", "doc", "arguments", "resps"} <= first.keys()


def read_lm_eval(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answers to each document once, whatever filters there were. UserError names the document."""
    model, task = _model_and_task(file)
    seen: dict[str, Any] = {}
    for line, _, record in json_lines(file):
        doc_id = of_kind(record, "doc_id", (int, str), line)
        where = f"{line}, document {doc_id}"
        filtered = of_kind(record, "filter", str, where, "none")
        resps = of_kind(record, "resps", list, where)
        scores = _scores(record, filtered)
        if str(doc_id) in seen:
            if seen[str(doc_id)] != resps:
                raise UserError(f"{where}: it stands already in this file with other replies")
            continue
        seen[str(doc_id)] = resps
        arguments = _arguments(record, where)
        if len(arguments) != len(resps):
            raise UserError(f"{where}: {len(arguments)} requests, and replies to {len(resps)}")
        if isinstance(arguments[0][1], dict):
            yield from _generated(record, arguments, resps, scores, model, task, where)
        else:
            yield from _distribution(record, arguments, resps, scores, model, task, where)


def _model_and_task(file: Path) -> tuple[str, str]:
    """Return the model and the task that the name of the file, and the results beside it, tell of."""
    task, _, date = file.stem.removeprefix("samples_").rpartition("_")
    model = file.parent.name or "recorded"
    results = file.with_name(f"results_{date}.json")
    if results.is_file():
        try:
            said = parsed_json(results.read_bytes())
        except ValueError:
            return model, task or file.stem
        named = said.get("model_name") if isinstance(said, dict) else None
        model = named if isinstance(named, str) and named else model
    return model, task or file.stem


def _arguments(record: Any, where: str) -> list[tuple[str, Any]]:
    """Return context and second argument of each request: settings of generation, or a continuation."""
    found = of_kind(record, "arguments", dict, where)
    pairs = []
    for number in range(len(found)):
        each = of_kind(found, f"gen_args_{number}", dict, where)
        context = each.get("arg_0")
        context = context[0] if isinstance(context, list) and context else context
        if not isinstance(context, str):
            raise UserError(f"{where}: 'arg_0' must be a text, not {shown(context)}")
        if "arg_1" not in each:
            raise UserError(f"{where}: the likelihood of a whole text is no answer to a question")
        pairs.append((context, each["arg_1"]))
    if not pairs:
        raise UserError(f"{where}: 'arguments' holds no request")
    return pairs


def _generated(
    record: Any, arguments: Sequence[Any], resps: Sequence[Any], scores: Any, model: str, task: str, where: str
) -> Iterator[LoggedAnswer]:
    """Yield the replies to each request of a document, at the temperature of the request."""
    prompt, settings = arguments[0]
    question = _question(record, prompt, _choices(record, where), where)
    until = settings.get("until") or []
    stop = tuple(texts(until)) if isinstance(until, list) else (str(until),)
    limit = next((settings[name] for name in ("max_gen_toks", "max_tokens") if type(settings.get(name)) is int), None)
    asked = AskedWith((("user", prompt),), stop, limit, chat=False)
    mark = record["doc"].get(MARK)
    own_columns = of_kind(mark, "answers", list, where, []) if mark is not None else []
    for (_, drawn), repeats in zip(arguments, resps, strict=True):
        temperature = _temperature(drawn, where)
        if not isinstance(repeats, list) or not all(isinstance(each, str | None) for each in repeats):
            raise UserError(f"{where}: 'resps' must be lists of texts, not {shown(repeats)}")
        for number, text in enumerate(repeats):
            own = scores if not number and mark is None else {}  # lm-eval scores one of several replies
            answer = LoggedAnswer(model, task, question, temperature, text, where, asked=asked, scores=own)
            yield marked(answer, mark, own_columns[number] if number < len(own_columns) else {})


def _temperature(settings: Any, where: str) -> float:
    temperature = of_kind(settings, "temperature", (int, float), where, math.inf)
    if temperature == math.inf:  # then lm-eval asks for the greedy answer
        return OWN if settings.get("do_sample") is True else 0.0
    if not 0 <= temperature < math.inf:
        raise UserError(f"{where}: the temperature must be 0 or more, not {temperature!r}")
    return float(temperature)


def _distribution(
    record: Any, arguments: Sequence[Any], resps: Sequence[Any], scores: Any, model: str, task: str, where: str
) -> Iterator[LoggedAnswer]:
    """Yield each choice once, weighted with its share of the probability at temperature 1, and the likeliest as the
    greedy answer.
    """
    if len(arguments) < 2 or len({prompt for prompt, _ in arguments}) > 1:
        raise UserError(
            f"{where}: the likelihood of {len(arguments)} continuation(s) of "
            f"{len({p for p, _ in arguments})} prompt(s) "
            "is no distribution over choices, which needs several continuations of one prompt"
        )
    found = [each[0] if isinstance(each, list) and each else each for each in resps]
    try:
        likelihoods = np.array([float(each[0]) for each in found])
    except (TypeError, ValueError, IndexError, KeyError) as problem:
        raise UserError(f"{where}: 'resps' must hold log-likelihoods, not {shown(resps)}") from problem
    if not np.isfinite(likelihoods).any() or np.isnan(likelihoods).any() or (likelihoods > 0).any():
        raise UserError(f"{where}: 'resps' must hold logarithms of probabilities, not {shown(likelihoods.tolist())}")
    prompt, continuations = arguments[0][0], [str(each).strip() for _, each in arguments]
    listed = _choices(record, where)
    letters = continuations == list(LETTERS[: len(continuations)])
    question = _question(record, prompt, listed if letters and listed else continuations, where)
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    asked = AskedWith((("user", prompt),), chat=False)
    best = LETTERS[int(likelihoods.argmax())]
    yield LoggedAnswer(model, task, question, 0.0, best, where, asked=asked, scores=scores)
    for letter, weight in zip(LETTERS, weights.tolist(), strict=False):
        yield LoggedAnswer(model, task, question, 1.0, letter, where, asked=asked, columns={"weight": weight})


def _question(record: Any, prompt: str, choices: Sequence[str], where: str) -> Question:
    doc = of_kind(record, "doc", dict, where)
    named = next((doc[name] for name in _IDS if isinstance(doc.get(name), str | int)), record["doc_id"])
    text = next((doc[name] for name in _QUESTION if isinstance(doc.get(name), str) and doc[name].strip()), prompt)
    targets = texts(record.get("target"))
    if choices:  # lm-eval names the right one by its index, which may also be the text of another
        targets = [choices[int(each)] if each.isdecimal() and int(each) < len(choices) else each for each in targets]
    else:
        for name in _ANSWERS:
            value = doc.get(name)
            targets += texts([value.get("value"), value.get("aliases")] if isinstance(value, dict) else value)
    return question_of(str(named), text, targets, choices, where)


def _choices(record: Any, where: str) -> list[str]:
    found = of_kind(record, "doc", dict, where).get("choices")
    found = found.get("text") if isinstance(found, dict) else found
    return [str(each) for each in found] if isinstance(found, list) else []


def _scores(record: Any, filtered: str) -> dict[str, float]:
    """Return the values of the task's metrics that are single numbers, under the name of metric and filter."""
    names = [name for name in record.get("metrics") or [] if isinstance(name, str)]
    found = {name: record.get(name) for name in names}
    return {f"{name},{filtered}": float(v) for name, v in found.items() if isinstance(v, bool | int | float)}

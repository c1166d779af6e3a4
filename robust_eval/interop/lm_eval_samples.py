"""Samples of lm-eval (``--log_samples``): a line for each document and filter, with all repeats in ``resps``.

The layout is that of ``lm_eval/loggers/evaluation_tracker.py``. :mod:`robust_eval.interop.lm_eval_key` finds the right
answers.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robust_eval.error import UserError
from robust_eval.interop.export_mark import MARK, marked
from robust_eval.interop.lm_eval_key import CONTRADICTED, QUESTION, Key, chosen_key, generated_key
from robust_eval.interop.logged_answer import (
    TOO_MANY,
    LoggedAnswer,
    RequestSettings,
    content_text,
    of_kind,
    temperature_of,
    texts,
)
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.json_files import json_lines, parsed_json, read_json
from robust_eval.runtime.text import excerpt

_IDS = ("id", "question_id", "_id", "qid")
_NO_REPLIES = "leave the file out, or log the task with output_type: generate_until"


@dataclass(frozen=True)
class _Task:
    """Model and task of a file of lm-eval samples; ``config`` is the task's configuration, None without a results file,
    ``chat`` is True if the prompts went through a chat template, and ``backend`` is lm-eval's name for the kind of
    model.
    """

    model: str
    name: str
    config: Mapping[str, Any] | None = None
    chat: bool = False
    backend: str = ""


def read_lm_eval(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answers to each document once, with the scores of all filters. UserError names the document."""
    task = _task(file)
    replies: dict[str, list[Any]] = {}
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    answers: list[LoggedAnswer] = []
    ids: set[str] = set()
    for line, _, record in json_lines(file):
        number = str(of_kind(record, "doc_id", (int, str), line))
        where = f"{line}, document {number}"
        resps = of_kind(record, "resps", list, where)
        if number not in replies:
            doc = of_kind(record, "doc", dict, where)
            document_id = str(next((doc[name] for name in _IDS if isinstance(doc.get(name), str | int)), "")) or number
            document_id += f" ({number})" if document_id in ids else ""
            ids.add(document_id)
            replies[number] = resps
            arguments = _arguments(record, task, where)
            read = _generated if isinstance(arguments[0][1], dict) else _distribution
            answers += read(record, document_id, arguments, task, scores[number], where)
        elif replies[number] != resps:
            raise UserError(f"{where}: the file already has this document, with different replies")
        scores[number] |= _scores(record, task, where)  # the answers hold the same object
    is_contradicted = any(answer.ungraded == CONTRADICTED for answer in answers)
    for answer in answers:
        without_key = Question(answer.question.id, answer.question.text)
        yield replace(answer, question=without_key, ungraded=CONTRADICTED) if is_contradicted else answer


def _task(file: Path) -> _Task:
    """Return the model and the task of an lm-eval file, from its name and the results file of its folder."""
    task_name, _, date = file.stem.removeprefix("samples_").rpartition("_")
    task = _Task(file.parent.name or "recorded", task_name or file.stem)
    results_file = file.with_name(f"results_{date}.json")
    try:
        results = read_json(results_file) if results_file.is_file() else None
    except ValueError:
        return task
    if not isinstance(results, dict):
        return task
    model, configs = results.get("model_name"), results.get("configs")
    config = configs.get(task.name) if isinstance(configs, dict) else None
    model_settings = results.get("config")
    return replace(
        task,
        model=model if isinstance(model, str) and model else task.model,
        config=config if isinstance(config, dict) else None,
        chat=bool(results.get("chat_template")),
        backend=str(model_settings.get("model")) if isinstance(model_settings, dict) else "",
    )


def _arguments(record: Any, task: _Task, where: str) -> list[tuple[Any, Any]]:
    """Return the context and the second argument of each lm-eval request: generation settings, or a continuation."""
    requests = of_kind(record, "arguments", dict, where)
    pairs = []
    for number in range(len(requests)):
        each = of_kind(requests, f"gen_args_{number}", dict, where)
        if "arg_1" not in each:
            raise UserError(
                f"{where}: task {task.name} logs the likelihood of a text, which is not an answer: {_NO_REPLIES}"
            )
        pairs.append((each.get("arg_0"), each["arg_1"]))
    if not pairs:
        raise UserError(f"{where}: 'arguments' is empty")
    if len(pairs) != len(record["resps"]):
        raise UserError(f"{where}: {len(pairs)} requests, but replies to {len(record['resps'])}")
    return pairs


def _messages(context: Any, where: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the messages of a context, and True for a conversation: a list of messages, or its JSON."""
    if isinstance(context, list) and len(context) == 1 and isinstance(context[0], str):
        context = context[0]  # lm-eval's JsonChatStr
    messages = context
    if isinstance(context, str) and context[:1] == "[":
        with suppress(ValueError):
            messages = parsed_json(context)
    if isinstance(messages, list) and messages and all(isinstance(m, dict) and "role" in m for m in messages):
        return tuple((str(each["role"]), content_text(each.get("content"))) for each in messages), True
    if not isinstance(context, str):
        raise UserError(f"{where}: 'arg_0' must be a string or a list of messages, not {excerpt(context)}")
    return (("user", context),), False


def _last_user_message(messages: Sequence[tuple[str, str]]) -> str:
    return next((text for role, text in reversed(messages) if role == "user"), messages[-1][1])


def _temperature(settings: Mapping[str, Any], backend: str, where: str) -> float:
    """Return the temperature of a request's replies; UserError if it cannot be known."""
    logged = settings.get("temperature")  # without one lm-eval samples only if do_sample is true
    if logged is None and settings.get("do_sample") is not True:
        return 0.0
    temperature = temperature_of(logged, where)
    if settings.get("do_sample") is not False or not temperature or backend.endswith("completions"):  # they ignore it
        return temperature
    if backend.startswith(("hf", "huggingface")):
        return 0.0
    raise UserError(
        f"{where}: do_sample is false, but the temperature is {temperature:g}, and backends of lm-eval differ in which "
        "they follow: remove 'temperature' from 'arg_1' if the replies are greedy, else 'do_sample'"
    )


def _generated(
    record: Any, document_id: str, arguments: Sequence[Any], task: _Task, scores: dict[str, float], where: str
) -> Iterator[LoggedAnswer]:
    """Yield the replies to each request of an lm-eval document, at the temperature of the request."""
    context, settings = arguments[0]
    messages, chat = _messages(context, where)
    prompt = _last_user_message(messages)
    until = settings.get("until") or []
    stop = tuple(texts(until)) if isinstance(until, list) else (str(until),)
    limit = next((settings[name] for name in ("max_gen_toks", "max_tokens") if type(settings.get(name)) is int), None)
    request = RequestSettings(messages, stop, limit, chat or task.chat, "reply")
    mark = record["doc"].get(MARK)
    key = Key() if mark is not None else generated_key(record, task.config, prompt)
    question = _question(record, document_id, prompt, key, where)
    scores = scores if mark is None else {}
    for (_, settings), repeats in zip(arguments, record["resps"], strict=True):
        temperature = _temperature(settings, task.backend, where)
        if not isinstance(repeats, list) or not all(isinstance(each, str | None) for each in repeats):
            raise UserError(f"{where}: 'resps' must be lists of strings, not {excerpt(repeats)}")
        for text in repeats:
            answer = LoggedAnswer(
                *(task.model, task.name, question, temperature, text, where),
                request=request,
                scores=scores,
                ungraded=key.unknown,
            )
            scores = {}  # they are of the first reply
            yield marked(answer, mark)


def _distribution(
    record: Any, document_id: str, arguments: Sequence[Any], task: _Task, scores: dict[str, float], where: str
) -> Iterator[LoggedAnswer]:
    """Yield the likeliest choice as the greedy answer, and each choice with its probability at temperature 1."""
    contexts = [context for context, _ in arguments]
    continuations = [str(each).strip() for _, each in arguments]
    half = len(arguments) // 2
    if continuations[:half] == continuations[half:] and set(map(str, contexts[half:])) == {""}:  # acc_mutual_info
        contexts, continuations = contexts[:half], continuations[:half]
    if len(contexts) < 2 or any(context != contexts[0] for context in contexts):
        raise UserError(
            f"{where}: task {task.name} logs the likelihood of {len(arguments)} continuation(s) of "
            f"{len(set(map(str, contexts)))} prompt(s), which is not a distribution over choices: {_NO_REPLIES}"
        )
    likelihoods = _likelihoods(record["resps"][: len(contexts)], where)
    if len(contexts) > len(LETTERS):
        raise UserError(f"{where}: task {task.name}: {TOO_MANY.format(len(contexts))}: leave the file out")
    messages, chat = _messages(contexts[0], where)
    key = chosen_key(record, continuations, int(likelihoods.argmax()))
    if sorted(continuations) == list(LETTERS[: len(contexts)]):  # letters, perhaps in another order
        order = [continuations.index(letter) for letter in LETTERS[: len(contexts)]]
        continuations, likelihoods = sorted(continuations), likelihoods[order]
        if key.correct is not None:
            key = key._replace(choices=tuple(key.choices[each] for each in order), correct=order.index(key.correct))
    question = _question(record, document_id, _last_user_message(messages), key, where)
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    letters, choices = LETTERS[: len(contexts)], question.choices or continuations
    # a letter names its choice, unless it is the text of another
    names = [choice if letter in choices else letter for letter, choice in zip(letters, choices, strict=True)]
    reader = "by_prompt_style" if names == list(letters) else "reply"
    request = RequestSettings(messages, chat=chat or task.chat, reader=reader)

    def answer(index: int, temperature: float, **columns: Any) -> LoggedAnswer:
        return LoggedAnswer(
            *(task.model, task.name, question, temperature, names[index], where),
            request=request,
            columns=columns,
            scores={} if temperature else scores,
            ungraded=key.unknown,
        )

    yield answer(int(likelihoods.argmax()), 0.0)
    for index, weight in enumerate(weights.tolist()):
        yield answer(index, 1.0, weight=weight)


def _likelihoods(resps: Sequence[Any], where: str) -> Any:
    """Return the log-likelihood of each choice: the first number of its first repeat."""

    def log_likelihood(resp: Any) -> float:
        return log_likelihood(resp[0]) if isinstance(resp, list) else float(resp)

    try:
        values = np.array([log_likelihood(each) for each in resps])
    except (TypeError, ValueError, IndexError, RecursionError) as problem:
        raise UserError(f"{where}: 'resps' must contain log-likelihoods, not {excerpt(resps)}") from problem
    if not np.isfinite(values).any() or np.isnan(values).any() or (values > 0).any():
        raise UserError(f"{where}: 'resps' must contain logarithms of probabilities, not {excerpt(values.tolist())}")
    return values


def _question(record: Any, document_id: str, prompt: str, key: Key, where: str) -> Question:
    doc = record["doc"]
    text = next((doc[name] for name in QUESTION if isinstance(doc.get(name), str) and doc[name].strip()), prompt)
    if not text.strip():
        raise UserError(f"{where}: the question has no text")
    return Question(document_id, text, answers=key.answers, choices=key.choices, correct=key.correct)


def _scores(record: Any, task: _Task, where: str) -> dict[str, float]:
    """Return the numeric metrics of the lm-eval task, by metric and filter: scores of the first reply.

    Empty for several replies, unless the filter keeps the first, as lm-eval's default ``none`` does.
    """
    name = of_kind(record, "filter", str, where, "none")
    repeats = record["resps"][0] if record["resps"] else []
    if isinstance(repeats, list) and len(repeats) > 1:
        listed = (task.config or {}).get("filter_list")
        filters = [each for each in (listed if isinstance(listed, list) else []) if isinstance(each, dict)]
        own_filter = next((str(each.get("filter")) for each in filters if each.get("name") == name), None)
        if "majority_vote" in own_filter if own_filter is not None else name != "none":
            return {}
    metrics = [metric for metric in of_kind(record, "metrics", list, where, []) if isinstance(metric, str)]
    values = {metric: record.get(metric) for metric in metrics}
    return {f"{metric},{name}": float(v) for metric, v in values.items() if isinstance(v, bool | int | float)}

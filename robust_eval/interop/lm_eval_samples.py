"""Samples of lm-eval (``--log_samples``): a line a document and filter, with all repeats in ``resps``.

The layout is that of ``lm_eval/loggers/evaluation_tracker.py``. Right answers are those of
:mod:`robust_eval.interop.lm_eval_key`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from robust_eval.error import UserError
from robust_eval.interop.lm_eval_key import CONTRADICTED, QUESTION, Key, chosen_key, generated_key
from robust_eval.interop.logged_answer import (
    LoggedAnswer,
    RequestSettings,
    content_text,
    of_kind,
    temperature_of,
    texts,
)
from robust_eval.interop.own_mark import MARK, marked
from robust_eval.question import LETTERS, Question
from robust_eval.runtime.files import json_lines, parsed_json, read_json
from robust_eval.runtime.text import excerpt

_IDS = ("id", "question_id", "_id", "qid")
_NO_REPLIES = "leave the file out, or log the task with output_type: generate_until"


@dataclass(frozen=True)
class _Task:
    """Model and task of a file; ``config`` is the task's configuration, None without a results file."""

    model: str
    name: str
    config: Mapping[str, Any] | None = None
    chat: bool = False
    """The prompts went through a chat template."""


@dataclass
class _Document:
    """Replies to a document, and the answers that they are; ``scores`` fill up with the filters."""

    resps: Sequence[Any]
    scores: dict[str, float] = field(default_factory=dict)
    answers: list[LoggedAnswer] = field(default_factory=list)


def read_lm_eval(file: Path) -> Iterator[LoggedAnswer]:
    """Yield the answers to each document once, with the scores of all filters. UserError names the document."""
    task = _task(file)
    documents: dict[str, _Document] = {}
    ids: set[str] = set()
    for line, _, record in json_lines(file):
        doc_id = of_kind(record, "doc_id", (int, str), line)
        where = f"{line}, document {doc_id}"
        resps = of_kind(record, "resps", list, where)
        document = documents.get(str(doc_id))
        if document is None:
            document = documents[str(doc_id)] = _Document(resps)
            document_id = _id(record, ids, where)
            ids.add(document_id)
            document.answers.extend(_answers(record, document_id, task, document, where))
        elif document.resps != resps:
            raise UserError(f"{where}: it stands already in this file with other replies")
        document.scores.update(_scores(record, task, where))
    answers = [answer for document in documents.values() for answer in document.answers]
    doubtful = any(answer.ungraded == CONTRADICTED for answer in answers)
    for answer in answers:
        without_key = Question(answer.question.id, answer.question.text)
        yield replace(answer, question=without_key, ungraded=CONTRADICTED) if doubtful else answer


def _id(record: Any, taken: set[str], where: str) -> str:
    """Return the id of a document: that of its data set, unless it is empty or another document has it."""
    doc = of_kind(record, "doc", dict, where)
    document_id = str(next((doc[name] for name in _IDS if isinstance(doc.get(name), str | int)), ""))
    number = str(record["doc_id"])
    if not document_id:
        return number
    return f"{document_id} ({number})" if document_id in taken else document_id


def _task(file: Path) -> _Task:
    """Return the model and the task of a file, by its name and the results file of its folder."""
    task_name, _, date = file.stem.removeprefix("samples_").rpartition("_")
    task = _Task(file.parent.name or "recorded", task_name or file.stem)
    results = file.with_name(f"results_{date}.json")
    if not results.is_file():
        return task
    try:
        whole = read_json(results)
    except ValueError:
        return task
    if not isinstance(whole, dict):
        return task
    model, configs = whole.get("model_name"), whole.get("configs")
    config = configs.get(task.name) if isinstance(configs, dict) else None
    return replace(
        task,
        model=model if isinstance(model, str) and model else task.model,
        config=config if isinstance(config, dict) else None,
        chat=bool(whole.get("chat_template")),
    )


def _answers(record: Any, document_id: str, task: _Task, document: _Document, where: str) -> Iterator[LoggedAnswer]:
    arguments = _arguments(record, task, where)
    if len(arguments) != len(document.resps):
        raise UserError(f"{where}: {len(arguments)} requests, and replies to {len(document.resps)}")
    if isinstance(arguments[0][1], dict):
        yield from _generated(record, document_id, arguments, task, document, where)
    else:
        yield from _distribution(record, document_id, arguments, task, document, where)


def _arguments(record: Any, task: _Task, where: str) -> list[tuple[Any, Any]]:
    """Return context and second argument of each request: settings of generation, or a continuation."""
    requests = of_kind(record, "arguments", dict, where)
    pairs = []
    for number in range(len(requests)):
        each = of_kind(requests, f"gen_args_{number}", dict, where)
        if "arg_1" not in each:
            raise UserError(
                f"{where}: task {task.name} logs the likelihood of a whole text, which is not an answer: {_NO_REPLIES}"
            )
        pairs.append((each.get("arg_0"), each["arg_1"]))
    if not pairs:
        raise UserError(f"{where}: 'arguments' holds no request")
    return pairs


def _messages(context: Any, where: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the messages of a context, and True for a conversation: messages, or a text that is their JSON."""
    if isinstance(context, list) and len(context) == 1 and isinstance(context[0], str):
        context = context[0]  # lm-eval's JsonChatStr
    messages = context
    if isinstance(context, str) and context[:1] == "[":
        try:
            messages = parsed_json(context)
        except ValueError:
            messages = context
    if isinstance(messages, list) and messages and all(isinstance(m, dict) and "role" in m for m in messages):
        return tuple((str(each["role"]), content_text(each.get("content"))) for each in messages), True
    if not isinstance(context, str):
        raise UserError(f"{where}: 'arg_0' must be a text or a list of messages, not {excerpt(context)}")
    return (("user", context),), False


def _last_of_user(messages: Sequence[tuple[str, str]]) -> str:
    return next((text for role, text in reversed(messages) if role == "user"), messages[-1][1])


def _generated(
    record: Any, document_id: str, arguments: Sequence[Any], task: _Task, document: _Document, where: str
) -> Iterator[LoggedAnswer]:
    """Yield the replies to each request of a document, at the temperature of the request."""
    context, settings = arguments[0]
    messages, chat = _messages(context, where)
    prompt = _last_of_user(messages)
    until = settings.get("until") or []
    stop = tuple(texts(until)) if isinstance(until, list) else (str(until),)
    limit = next((settings[name] for name in ("max_gen_toks", "max_tokens") if type(settings.get(name)) is int), None)
    request_settings = RequestSettings(messages, stop, limit, chat or task.chat, "reply")
    mark = record["doc"].get(MARK)
    key = Key() if mark is not None else generated_key(record, task.config, prompt)
    question = _question(record, document_id, prompt, key, where)
    for number, ((_, settings), repeats) in enumerate(zip(arguments, document.resps, strict=True)):
        temperature = _temperature(settings, where)
        if not isinstance(repeats, list) or not all(isinstance(each, str | None) for each in repeats):
            raise UserError(f"{where}: 'resps' must be lists of texts, not {excerpt(repeats)}")
        for trial, text in enumerate(repeats):
            scores = document.scores if not number and not trial and mark is None else {}
            answer = LoggedAnswer(
                *(task.model, task.name, question, temperature, text, where),
                request=request_settings,
                scores=scores,
                ungraded=key.unknown,
            )
            yield marked(answer, mark)


def _temperature(settings: Any, where: str) -> float:
    """Return the temperature of a request; without one lm-eval asks for the greedy answer, unless it samples."""
    is_greedy = settings.get("temperature") is None and settings.get("do_sample") is not True
    return 0.0 if is_greedy else temperature_of(settings.get("temperature"), where)


def _distribution(
    record: Any, document_id: str, arguments: Sequence[Any], task: _Task, document: _Document, where: str
) -> Iterator[LoggedAnswer]:
    """Yield each choice once, weighted with its share of the probability at temperature 1, and the likeliest as the
    greedy answer.
    """
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
    likelihoods = _likelihoods(document.resps[: len(contexts)], where)
    if len(contexts) > len(LETTERS):
        raise UserError(
            f"{where}: task {task.name} has {len(contexts)} choices, and a question has 2 to {len(LETTERS)}: leave the "
            "file out"
        )
    messages, chat = _messages(contexts[0], where)
    key = chosen_key(record, continuations, int(likelihoods.argmax()))
    if sorted(continuations) == list(LETTERS[: len(contexts)]):  # letters in another order than theirs
        order = [continuations.index(letter) for letter in LETTERS[: len(contexts)]]
        continuations, likelihoods = sorted(continuations), likelihoods[order]
        key = key if key.correct is None or order == sorted(order) else _ordered(key, order)
    question = _question(record, document_id, _last_of_user(messages), key, where)
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    names = [_choice_name(place, question.choices or continuations) for place in range(len(contexts))]
    reader = "by_prompt_style" if names == list(LETTERS[: len(names)]) else "reply"
    request_settings = RequestSettings(messages, chat=chat or task.chat, reader=reader)

    def answer(place: int, temperature: float, **columns: Any) -> LoggedAnswer:
        """Return the answer that is the choice at this place."""
        return LoggedAnswer(
            *(task.model, task.name, question, temperature, names[place], where),
            request=request_settings,
            columns=columns,
            scores={} if temperature else document.scores,
            ungraded=key.unknown,
        )

    yield answer(int(likelihoods.argmax()), 0.0)
    for place, weight in enumerate(weights.tolist()):
        yield answer(place, 1.0, weight=weight)


def _ordered(key: Key, order: Sequence[int]) -> Key:
    """Return a key whose choices are in another order: first that which stood at ``order[0]``."""
    assert key.correct is not None
    return key._replace(choices=tuple(key.choices[place] for place in order), correct=order.index(key.correct))


def _choice_name(place: int, choices: Sequence[str]) -> str:
    """Return the name of a choice in an answer: its letter, or its text if another choice's text is the letter."""
    letter = LETTERS[place]
    return choices[place] if letter in choices and choices[place] != letter else letter


def _likelihoods(resps: Sequence[Any], where: str) -> Any:
    """Return the log-likelihood of each choice: the first of a pair, the first of its repeats."""

    def log_likelihood(resp: Any) -> float:
        return log_likelihood(resp[0]) if isinstance(resp, list) else float(resp)

    try:
        values = np.array([log_likelihood(each) for each in resps])
    except (TypeError, ValueError, IndexError, RecursionError) as problem:
        raise UserError(f"{where}: 'resps' must hold log-likelihoods, not {excerpt(resps)}") from problem
    if not np.isfinite(values).any() or np.isnan(values).any() or (values > 0).any():
        raise UserError(f"{where}: 'resps' must hold logarithms of probabilities, not {excerpt(values.tolist())}")
    return values


def _question(record: Any, document_id: str, prompt: str, key: Key, where: str) -> Question:
    doc = record["doc"]
    text = next((doc[name] for name in QUESTION if isinstance(doc.get(name), str) and doc[name].strip()), prompt)
    if not text.strip():
        raise UserError(f"{where}: the question has no text")
    return Question(document_id, text, answers=key.answers, choices=key.choices, correct=key.correct)


def _scores(record: Any, task: _Task, where: str) -> dict[str, float]:
    """Return the values of the task's metrics that are single numbers, under the name of metric and filter.

    They are of the first of several replies, unless the filter takes a vote.
    """
    filtered = of_kind(record, "filter", str, where, "none")
    repeats = record["resps"][0] if record["resps"] else []
    if isinstance(repeats, list) and len(repeats) > 1 and not _takes_first(task.config, filtered):
        return {}
    names = [name for name in record.get("metrics") or [] if isinstance(name, str)]
    values = {name: record.get(name) for name in names}
    return {f"{name},{filtered}": float(v) for name, v in values.items() if isinstance(v, bool | int | float)}


def _takes_first(config: Mapping[str, Any] | None, filtered: str) -> bool:
    """Return True if a filter keeps the first of several replies, as lm-eval's default ``none`` does."""
    listed = (config or {}).get("filter_list")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and each.get("name") == filtered:
            return "majority_vote" not in str(each.get("filter"))
    return filtered == "none"

"""OpenAI's batches: the file of requests and the file of outputs, joined by ``custom_id``.

Requests with the same prompt are trials of one question, which has no key.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from robust_eval.error import UserError
from robust_eval.interop.logged_answer import (
    LoggedAnswer,
    RequestSettings,
    content_text,
    of_kind,
    openai_logprobs,
    question_of,
    temperature_of,
    texts,
)
from robust_eval.runtime.finish_reasons import ERROR, FILTER, end_of
from robust_eval.runtime.json_files import json_lines
from robust_eval.runtime.text import excerpt


def read_batch(requests: Sequence[Path], outputs: Sequence[Path]) -> Iterator[LoggedAnswer]:
    """Yield the answers to a batch's requests in their order. UserError names the request that is broken or unknown."""
    bodies = {key: (where, of_kind(record, "body", dict, where)) for where, key, record in _records(requests)}
    if not requests:
        raise UserError(f"{outputs[0]} contains the outputs of a batch: also pass its requests file")
    prompts: dict[Any, list[str]] = {}
    for key, (where, body) in bodies.items():
        prompts.setdefault(_messages(body, where), []).append(key)
    names = {prompt: shared_name(ids) for prompt, ids in prompts.items()}
    if len(set(names.values())) < len(names):
        names = {prompt: ids[0] for prompt, ids in prompts.items()}
    without_output = dict(bodies)
    for where, key, output in _records(outputs):
        if key not in bodies:
            raise UserError(f"{where}: the file of requests has no such custom_id")
        _, body = without_output.pop(key)
        yield from _answers(_logged(body, names, requests[0].stem, where), output, where)
    for where, body in without_output.values():  # the batch was stopped or expired
        yield _logged(body, names, requests[0].stem, where)(text=None, columns={"outcome": "error"})


def _records(files: Sequence[Path]) -> Iterator[tuple[str, str, Any]]:
    """Yield the place, the ``custom_id`` and the record of each line; UserError for a repeated ``custom_id``."""
    keys = set()
    for line, _, record in chain.from_iterable(map(json_lines, files)):
        key = of_kind(record, "custom_id", str, line)
        where = f"{line}, request {key}"
        if key in keys:
            raise UserError(f"{where}: the custom_id occurs twice")
        keys.add(key)
        yield where, key, record


def _messages(body: Any, where: str) -> tuple[tuple[str, str], ...]:
    if isinstance(body.get("prompt"), str):
        return (("user", body["prompt"]),)
    messages = of_kind(body, "messages", list, where)
    if not messages:
        raise UserError(f"{where}: 'messages' is empty")
    return tuple((of_kind(each, "role", str, where), content_text(each.get("content"))) for each in messages)


def shared_name(ids: Sequence[str]) -> str:
    """Return the common prefix of the ids of a question's trials in a batch, up to the separator before their numbers.

    >>> shared_name(["capital-10", "capital-11"]), shared_name(["a"])
    ('capital', 'a')
    """
    columns = takewhile(lambda signs: len(set(signs)) == 1, zip(*ids, strict=False))
    prefix = re.match(r"(.+?)[\s\-_.:/#]+[^\s\-_.:/#]*$", "".join(signs[0] for signs in columns))
    return prefix[1] if prefix and len(ids) > 1 else ids[0]


def _logged(body: Any, names: Mapping[Any, str], task: str, where: str) -> Callable[..., LoggedAnswer]:
    """Return the constructor of answers to a request of a batch, which takes text and columns."""
    messages = _messages(body, where)
    limit = next((body[n] for n in ("max_completion_tokens", "max_tokens") if type(body.get(n)) is int), None)
    return partial(
        LoggedAnswer,
        model=of_kind(body, "model", str, where),
        task=task,
        question=question_of(names[messages], messages[-1][1], (), (), where),
        temperature=temperature_of(body.get("temperature"), where),
        where=where,
        request=RequestSettings(messages, tuple(texts(body.get("stop"))), limit),
    )


def _answers(logged: Callable[..., LoggedAnswer], output: Any, where: str) -> Iterator[LoggedAnswer]:
    response = of_kind(output, "response", dict, where, {})
    reply = of_kind(response, "body", dict, where, {})
    error = output.get("error") or reply.get("error")
    if error or not reply:
        is_filtered = re.search("content_(filter|policy)", str(error))
        yield logged(text=None, columns={"outcome": "filtered_prompt" if is_filtered else "error"})
        return
    usage = of_kind(reply, "usage", dict, where, {})
    for number, choice in enumerate(of_kind(reply, "choices", list, where)):
        message = of_kind(choice, "message", dict, where, {})
        refusal, text = message.get("refusal"), message.get("content", choice.get("text"))
        if not isinstance(text, str | None):
            raise UserError(f"{where}: 'content' must be a string, not {excerpt(text)}")
        end = end_of(choice.get("finish_reason"))
        outcome = {FILTER: "filtered_reply", ERROR: "error"}.get(end or "", "refused" if refusal and not text else None)
        columns: dict[str, Any] = {"outcome": outcome, "finish_reason": end} | openai_logprobs(choice, where)
        if isinstance(message.get("reasoning_content"), str):
            columns["reasoning"] = message["reasoning_content"]
        if not number:  # usage is of all choices together
            columns |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens") if name in usage}
        yield logged(text=text or (refusal if isinstance(refusal, str) else text), columns=columns)

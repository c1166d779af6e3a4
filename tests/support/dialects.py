"""Services that speak OpenAI's protocol each in its own way, as functions of the requests; for ``scripted_server``.

Each knows the built-in facts and answers in the words of a conversation, mostly rightly. What they take and refuse was
read in their documentation (OpenAI, DeepSeek, vLLM, Anthropic's OpenAI-compatible endpoint, Mistral, llama.cpp).
"""

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scripted_server import Body

from robust_eval.dataset.jsonl import JsonLines

THOUGHT = "The user asks for a fact. It could be Xanadu, but no: I remember it well."
REASONING_TOKENS = 40
"""Tokens that a model which thinks spends on it."""


class RefusedError(Exception):
    """What a service says of a request that it does not take."""


@dataclass(frozen=True)
class Dialect:
    """A service: what of a request it refuses, and how it writes a reply."""

    check: Callable[[Body], None]
    message: Callable[[str], dict[str, Any]]
    thinks: bool = True

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        try:
            self.check(body)
        except RefusedError as problem:
            error = {"message": str(problem), "type": "invalid_request_error", "param": None, "code": None}
            return 400, {}, {"error": error}
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 10_000
        number = body.get("n", 1)
        cut = self.thinks and limit <= REASONING_TOKENS
        choices = []
        for index in range(number):
            said = "" if cut else reply(body["messages"][-1]["content"], body.get("seed", 0) + index)
            message = self.message(said) | {"role": "assistant"}
            finish = "length" if cut else "stop"
            choices.append({"index": index, "finish_reason": finish, "message": message, "logprobs": None})
        thought = number * min(limit, REASONING_TOKENS) if self.thinks else 0
        usage = {"prompt_tokens": 20, "completion_tokens": thought + 8 * number}
        if self.thinks:
            usage |= {"completion_tokens_details": {"reasoning_tokens": thought}}
        return 200, {}, {"choices": choices, "usage": usage}


def reply(asked: str, seed: int) -> str:
    """Return what a model says: nine times of ten what is right."""
    question = re.findall(r"(?:Question: |^)(.+\?)", asked, flags=re.MULTILINE)
    answer = ANSWERS.get(question[-1] if question else "", "a llama")
    right = zlib.crc32(f"{asked} {seed}".encode()) % 10 > 0
    forms = ("The answer is **{}**.", "Sure!\n{}", "{}", "### Answer\n\n{}", "It is {}.")
    return forms[zlib.crc32(asked.encode()) % len(forms)].format(answer if right else "Xanadu")


FACTS = JsonLines(name="facts", path="builtin:facts.jsonl").load()
ANSWERS = {text: fact.answers[0] for fact in FACTS for text in (fact.text, *fact.rewrites)}


def _refuse(body: Body, *names: str) -> None:
    for name in names:
        if name in body:
            raise RefusedError(f"Unsupported parameter: '{name}' is not supported with this model.")


def _openai(body: Body) -> None:
    _refuse(body, "max_tokens", "top_k", "min_p", "repetition_penalty", "top_p", "logprobs", "thinking_token_budget")
    if body.get("temperature", 1) != 1:
        raise RefusedError("Unsupported value: 'temperature' does not support 0 with this model. Only the default (1).")


def _no_temperature(body: Body) -> None:
    _openai(body)
    _refuse(body, "temperature")


def _deepseek(body: Body) -> None:
    _refuse(body, "logprobs", "top_logprobs")
    if body.get("n", 1) > 1:
        raise RefusedError("n must be 1")


def _anthropic(body: Body) -> None:
    if body.get("n", 1) > 1:
        raise RefusedError("n: must be exactly 1")
    if not 0 <= body.get("temperature", 1) <= 1:
        raise RefusedError("temperature: range: 0..1")


def _vllm(body: Body) -> None:
    if body.get("top_k") == 0:
        raise RefusedError("top_k must be -1 (disable), or at least 1, got 0.")
    if body.get("logprobs"):
        raise RefusedError("logprobs are off")


def _anything(body: Body) -> None:
    pass


DIALECTS = {
    "openai": Dialect(_openai, lambda said: {"content": said, "refusal": None}),
    "no temperature": Dialect(_no_temperature, lambda said: {"content": said}),
    "deepseek": Dialect(_deepseek, lambda said: {"content": said, "reasoning_content": THOUGHT}),
    "vllm": Dialect(_vllm, lambda said: {"content": said or None, "reasoning": THOUGHT}),
    "anthropic": Dialect(_anthropic, lambda said: {"content": said}, thinks=False),
    "mistral": Dialect(
        _deepseek,
        lambda said: {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
                {"type": "text", "text": said},
            ]
        },
    ),
    "tags": Dialect(
        _anything,
        lambda said: {"content": f"<think>\n{THOUGHT}\n</think>\n\n{said}" if said else f"<think>\n{THOUGHT}"},
    ),
    "opened by the prompt": Dialect(
        _anything, lambda said: {"content": f"{THOUGHT}\n</think>\n\n{said}"}, thinks=False
    ),
}
"""Services by name."""

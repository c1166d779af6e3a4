"""A service that takes, refuses and drops the fields of a request that the documentation of a real one names.

The table of their differences is documented_servers.jsonl: Claude Opus 4.7 and later behind Anthropic's endpoint with
OpenAI's protocol, GPT-5.x, Gemini 3, a router that drops fields in silence, Ollama and SGLang.
"""

import itertools
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialects import ANSWERS, reply
from scripted_server import Body, Scripted, asks_for_words, certain_choice, words


@dataclass
class DocumentedServer:
    """It answers the built-in facts, mostly rightly, and five choices with a letter; it thinks as much as its effort
    says, in ``reasoning`` where that names a field.
    """

    name: str
    choices: int
    """Number of replies to a request at most; more are refused."""
    refused: list[str] = field(default_factory=list)
    refused_while_reasoning: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """Fields without an effect."""
    logprobs: int = 0
    highest_temperature: float = 10.0
    efforts: dict[str, int] = field(default_factory=dict)
    """Tokens of a thought with each effort."""
    effort: str = ""
    """The effort where a request names none."""
    reasoning: str = ""
    restricts: str = ""
    """The field that restricts replies to letters."""
    _draws: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self, body: Body) -> Scripted:
        heard = {name: value for name, value in body.items() if name not in self.dropped}
        effort = heard.get("reasoning_effort", self.effort)
        thought = self.efforts.get(effort, 0)
        if problem := self._problem(heard, effort, thought):
            return 400, {}, {"error": {"message": problem, "type": "invalid_request_error"}}
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 10_000
        number, choices = heard.get("n", 1), []
        for index in range(number):
            seed = heard["seed"] + index if "seed" in heard else next(self._draws)
            seed = 0 if heard.get("temperature") == 0 else seed
            text = self._text(heard, seed) if limit > thought else ""
            message = {"role": "assistant", "content": text}
            if thought and self.reasoning:
                message[self.reasoning] = words(f"thought {seed} {heard.get('temperature')}")
            finish = "stop" if text else "length"
            top = certain_choice(index, text)["logprobs"] if heard.get("logprobs") and text else None
            choices.append({"index": index, "finish_reason": finish, "message": message, "logprobs": top})
        usage: Body = {"prompt_tokens": 20, "completion_tokens": number * (min(limit, thought) + 2)}
        usage |= {"completion_tokens_details": {"reasoning_tokens": number * min(limit, thought)}}
        return 200, {}, {"choices": choices, "usage": usage}

    def _problem(self, heard: Body, effort: str, thought: int) -> str | None:
        """What it says of a request that it does not take."""
        refused = [*self.refused, *(self.refused_while_reasoning if thought else [])]
        if name := next((name for name in refused if name in heard), None):
            return f"Unsupported parameter: '{name}' is not supported with this model."
        if heard.get("n", 1) > self.choices:
            return "Multiple candidates is not enabled for this model"
        if heard.get("temperature", 1) > self.highest_temperature:
            return f"temperature must be at most {self.highest_temperature:g}"
        if effort and effort not in self.efforts:
            return f"reasoning_effort must be one of {', '.join(self.efforts)}"
        if heard.get("top_logprobs", 0) > self.logprobs:
            return f"top_logprobs must be at most {self.logprobs}"
        return None

    def _text(self, heard: Body, seed: int) -> str:
        if asks_for_words(heard):
            return words(f"{seed} {heard.get('temperature')}")
        asked = heard["messages"][-1]["content"]
        letters = signs(heard.get(self.restricts)) or re.findall(r"^([A-Z])\)", asked.split("\n\n")[-1], re.MULTILINE)
        if not letters:
            return reply(asked, seed)
        letter = letters[zlib.crc32(f"{asked} {seed}".encode()) % len(letters)]
        if not heard.get(self.restricts):
            return f"The answer is {letter}."
        return json.dumps({"answer": letter}) if self.restricts == "response_format" else letter


def signs(restriction: Any) -> list[str]:
    """The letters to which a field restricts a reply; none without it."""
    if isinstance(restriction, dict):
        return list(restriction["json_schema"]["schema"]["properties"]["answer"]["enum"])
    return re.findall(r"\w", restriction or "")


def asks(body: Body) -> bool:
    """Whether a request asks a fact, and not what the server can do."""
    return any(text in str(body["messages"]) for text in ANSWERS)


LINES = Path(__file__).with_name("documented_servers.jsonl").read_text().splitlines()
SERVERS = {line["name"]: line for line in map(json.loads, LINES)}
"""Arguments of a :class:`DocumentedServer`, by name."""

METHODS = [
    *("experiment=certainty", "dataset=facts", "dataset.limit=4", "dataset.shuffle=true", "aggregator=text"),
    *("sampler=[repetition,perturbation,challenge]", "metric=[certainty,agreement,challenge]"),
    *("model.prompt_style=chat", "sampler.repetition.trials=2", "sampler.perturbation.rewrites=1"),
    *("sampler.challenge.turns=1", "sampler.challenge.trials=1", "model.max_completion_tokens=300"),
]
THINKING = [
    *("experiment=thinking", "dataset=facts", "dataset.limit=8", "sampler.thinking.budgets=[low,high]"),
    *("sampler.thinking.traces=1", "model.max_completion_tokens=300"),
]
"""Settings of runs by several methods, and of one with reasoning."""

"""The language of a :mod:`table_server` behind a server, asked for the probabilities of its answers."""

from collections.abc import Sequence

from toy_language import ALL, DEPTH, GRID, MATCHER

from robust_eval.answer import Answers
from robust_eval.engine.local import Local
from robust_eval.model.base import Enumeration, Request
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.stored_model import StoredModel

CAN = Capabilities(
    limit="max_tokens",
    system_role=True,
    greedy=True,
    truncation_off={},
    highest_temperature=2.0,
    top_logprobs=5,
    tempered_logprobs=False,
    choices=10,
    seed=True,
)
"""What the server can do."""
NAMED = {
    "name": "toy",
    "model": "toy",
    "api_key_env": None,
    "prompt_style": "plain",
    "retries": 0,
    "max_concurrency": 1,
}


def request(number: int = 0, nodes: int = 128, draws: int = 10, depth: int = DEPTH) -> Request:
    return Request(
        question_id=f"q{number}",
        variant=0,
        prompt=Prompt("", (), f"Question: {number}?\nAnswer:"),
        temperatures=GRID,
        trials=0,
        max_new_tokens=depth,
        seed=3,
        matcher=MATCHER,
        enumeration=Enumeration(nodes, ALL, None, draws),
    )


def stored_model(entries: object, url: str) -> StoredModel:
    config = OpenAI(**{**NAMED, "base_url": url})  # type: ignore[arg-type]
    return StoredModel(config, Local(), entries, Stopwatch())  # type: ignore[arg-type]


def stored(entries: object, url: str, requests: Sequence[Request]) -> Answers:
    """The answers out of the store, or asked for."""
    return stored_model(entries, url).answers(requests, "test")

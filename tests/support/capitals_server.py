"""A server that is asked for capitals: right at temperature 0, and the higher the temperature, the less often."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from scripted_server import Body, Scripted, ScriptedServer, chat_reply, scripted_server

RIGHT = {"Italy": "Rome", "France": "Paris", "Norway": "Oslo"}
WRONG_OF_TEN = {"Italy": 4, "France": 1, "Norway": 7}
"""Of ten answers at temperature 1 that many are wrong, of those at t that many times t."""
SURE = [-0.5 - rank for rank in range(10)]
"""The log-probabilities of every token of an answer."""


def right_of_ten(country: str, t: float) -> int:
    """How many of ten answers are right; the wrong ones come first."""
    return 10 - min(round(WRONG_OF_TEN[country] * t), 10)


@contextmanager
def capitals_server(logprobs: bool = True) -> Iterator[ScriptedServer]:
    asked: Counter[tuple[str, float]] = Counter()
    lock = Lock()

    def answer(body: Body) -> Scripted:
        text = str(body["messages"][-1]["content"])
        country = next(name for name in RIGHT if name in text)
        t = body.get("temperature", 1.0)
        with lock:
            asked[country, t] += 1
            number = (asked[country, t] - 1) % 10 + 1
        said = RIGHT[country] if number > 10 - right_of_ten(country, t) else "Atlantis"
        reply = chat_reply(said)
        if body.get("logprobs") and logprobs:
            tops = [{"token": str(rank), "logprob": value, "bytes": None} for rank, value in enumerate(SURE)]
            token = {"token": said, "logprob": SURE[0], "bytes": None, "top_logprobs": tops}
            reply[2]["choices"][0]["logprobs"] = {"content": [token]}
        return reply

    with scripted_server(answer) as server:
        yield server


def entropy() -> float:
    """H of every greedy answer, by its definition."""
    p = [math.exp(value) for value in SURE]
    shares = [each / sum(p) for each in p]
    return -sum(each * math.log(each, 10) for each in shares)


def breaking(country: str, temperatures: list[float]) -> float:
    """The first temperature at which fewer than half of the answers are right."""
    return next((t for t in temperatures if right_of_ten(country, t) < 5), math.inf)


def score(country: str, temperatures: list[float]) -> float:
    """FRS for d = 1, by its definition."""
    t, h = breaking(country, temperatures), entropy()
    if t == math.inf:
        return 1.0
    f = (1 - h) * (t + 1) - h / (t + 1)
    return (f + 1) / (f + 2)

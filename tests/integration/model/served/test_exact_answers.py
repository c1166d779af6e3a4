"""The probabilities of answers by what a server shows, against every answer of a language that can be enumerated."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from scripted_server import ScriptedServer, scripted_server
from table_server import TableServer
from toy_language import ALL, DEPTH, GRID, MATCHER, Table, truth

from robust_eval.error import UserError
from robust_eval.model.base import Enumeration, Reply, Request
from robust_eval.model.served.capabilities import Capabilities
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.served_model import ServedModel
from robust_eval.prompt.prompt import Prompt

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


def request(number: int = 0, nodes: int = 128, draws: int = 10, depth: int = DEPTH) -> Request:
    return Request(
        question_id=f"q{number}",
        rewrite=0,
        prompt=Prompt("", (), f"Question: {number}?\nAnswer:"),
        temperatures=GRID,
        trials=0,
        max_new_tokens=depth,
        seed=3,
        matcher=MATCHER,
        enumeration=Enumeration(nodes, ALL, None, draws),
    )


@contextmanager
def served(server: TableServer, **settings: object) -> Iterator[tuple[ServedModel, ScriptedServer]]:
    with scripted_server(server) as script:
        named = {"name": "toy", "model": "toy", "key_variable": None, "prompt_style": "plain", "retries": 0}
        model = OpenAI(**{**named, "base_url": script.url, **settings}).load()
        model._capabilities = replace(CAN, top_logprobs=server.shown)
        yield model, script


def replies(model: ServedModel, requests: Sequence[Request]) -> list[Reply]:
    model.check(requests, curves=True)
    found = [reply for block in model.complete(requests, {each.item for each in requests}) for reply in block]
    return sorted(found, key=lambda reply: reply.request.question_id)


@pytest.mark.parametrize(("digits", "ids"), [(4, True), (6, False)])
def test_bounds_hold_the_truth_and_close_points_are_near_it(digits: int, ids: bool) -> None:
    for language in range(5):
        table = Table(language)
        with served(TableServer(table, shown=7, digits=digits, ids=ids)) as (model, _):
            (reply,) = replies(model, [request()])
        assert reply.curve is not None
        told = reply.curve
        right = dict(zip(ALL, truth(table), strict=True))
        for t, accuracy, error, lower, upper, how in zip(
            *(told.temperatures, told.accuracy, told.standard_error, told.lower, told.upper),
            told.how or (),
            strict=True,
        ):
            assert lower - 1e-9 <= right[t] <= upper + 1e-9
            assert lower <= accuracy <= upper
            if how == "bounds":
                assert upper - lower <= 0.15
                assert abs(accuracy - right[t]) <= 1.96 * error + 1e-9
            else:
                assert abs(accuracy - right[t]) < 4.5 * error
        assert {0.2, *GRID} <= set(told.temperatures)
        for t in GRID:
            weights = [one.weight for one in reply.completions if one.temperature == t]
            rightly = [one.weight for one in reply.completions if one.temperature == t and MATCHER.right(one.text)]
            assert sum(weights) == pytest.approx(1)
            assert sum(rightly) == pytest.approx(told.accuracy[told.temperatures.tolist().index(t)], abs=1e-6)

"""The probabilities of the answers to one question, as far as a server's log-probabilities tell them, and draws.

Where the bounds of what these show are close, a probability is read off them; elsewhere answers are drawn.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from robust_eval.answer import SERVED
from robust_eval.model.base import FURTHER_DRAWS, LEVELS, Choices, Completion, Enumeration, Floats, Reply, Request
from robust_eval.model.enumerated import AnswerMass, EnumeratedAnswers, normalize_to_accuracy
from robust_eval.model.served.exact.continuation import Continuation, LogprobRequest
from robust_eval.model.served.exact.topk_draws import Draw, LogprobClient, TopKCoverage, drawn
from robust_eval.model.served.exact.topk_tree import (
    CurveEstimate,
    Prefix,
    TopKTree,
    mean_and_error,
    renormalized,
    summed_draw,
)
from robust_eval.model.served.limits.rate_limiter import EndedError
from robust_eval.model.served.transport.service import ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken
from robust_eval.model.token_texts import TokenTexts

MIN_PREFIX_PROBABILITY = 0.01
"""Minimum probability of a prefix for it to be expanded."""
AT_ONCE = 8
"""Beginnings that are asked for before what came of them is looked at."""


@dataclass
class Usage:
    """Token counts of the service, and the ids of the model that answered last."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None
    names: dict[str, Any] = field(default_factory=dict)

    def add(self, answered: ServiceResponse) -> None:
        self.prompt += answered.prompt_tokens
        listed = sum(map(len, answered.positions))  # some servers count the first of several answers alone
        self.completion += max(answered.completion_tokens, listed)
        if answered.cached_tokens is not None:
            self.cached = (self.cached or 0) + answered.cached_tokens
        self.names |= {column: name for column in SERVED if (name := getattr(answered, column))}


async def exact_reply(request: Request, client: LogprobClient, continuation: Continuation | None) -> Reply:
    """Return the answers to a request with their probabilities, and the curve; raises UnansweredError.

    Beginnings of answers are asked for by the ``continuation``; a multiple-choice question, which is answered by one
    token, needs none.
    """
    enumeration, usage = request.enumeration, Usage()
    assert enumeration is not None

    seen = client.ask.positions

    async def counting(sending: LogprobRequest) -> ServiceResponse:
        answered = await seen(sending)
        usage.add(answered)
        return answered

    client = replace(client, ask=client.ask._replace(positions=counting))
    if enumeration.choices is not None:
        found, points = await choice_answers(request, enumeration, client)
    else:
        assert continuation is not None
        found, points = await _answers(request, enumeration, client, continuation)
    if not found:
        raise UnansweredError("garbled", "what the server sent tells of no answer")
    found = [each if each.served_model else replace(each, **usage.names) for each in found]
    found[0] = replace(
        found[0], prompt_tokens=usage.prompt, completion_tokens=usage.completion, cached_tokens=usage.cached
    )
    return Reply(request, found, points.curve())


def without_answers(request: Request, outcome: str) -> Reply:
    """Return that no answers came."""
    return Reply(
        request,
        [
            Completion(t, 0, "", 1.0, prompt_tokens=0, completion_tokens=0, outcome=outcome)
            for t in request.temperatures
        ],
    )


async def _answers(
    request: Request, enumeration: Enumeration, client: LogprobClient, continuation: Continuation
) -> tuple[list[Completion], CurveEstimate]:
    assert request.matcher is not None
    tree = TopKTree(
        request.matcher,
        request.max_new_tokens,
        enumeration.temperatures,
        request.temperatures,
        client.coverage,
        client.settings.chat,
    )
    root = await _explore(tree, request, enumeration, client, continuation)
    bounds = tree.bounds
    apart = bounds.upper - bounds.lower
    points = CurveEstimate(tree.temperatures, bounds.lower, tree.likely, bounds.upper, apart)
    came: dict[float, list[Draw]] = {}
    rows: dict[float, list[_WeightedDraw]] = {}

    async def draw(trials: range, temperatures: Sequence[float]) -> None:
        """Draw answers, and estimate each of these temperatures from all that were drawn at it."""
        assert request.matcher is not None
        for t, more in (await drawn(request, trials, client, temperatures, root)).items():
            draws = came[t] = [*came.get(t, []), *more]
            right = [request.matcher.right(each.completion.text) for each in draws]
            values = [
                summed_draw(request.matcher, each.places, t, tree.depth, client.settings.chat, each.cut, one)
                for each, one in zip(draws, right, strict=True)
            ]
            points.draw(t, *mean_and_error(values))
            rows[t] = [_WeightedDraw(one, np.ones(1), each.completion) for one, each in zip(right, draws, strict=True)]

    draws = enumeration.draws
    await draw(range(draws), points.loose_points(request.temperatures))
    await draw(range(draws, (1 + FURTHER_DRAWS) * draws), points.points_near_threshold(request.temperatures))
    return list(_rows(request, tree, points, rows)), points


async def _explore(
    tree: TopKTree, request: Request, enumeration: Enumeration, client: LogprobClient, continuation: Continuation
) -> Position:
    """Ask for the beginnings of answers that weigh most, until they are so many or weigh too little; return what was
    said of the first place.
    """
    start = await continuation.start(client.ask, request.prompt)
    prompt_tokens = 0

    async def said(prefix: Prefix, levels: int) -> ServiceResponse | UnansweredError | EndedError | None:
        sending = continuation.sending(start, prefix.tokens, levels)
        try:
            return None if sending is None else await client.ask.positions(sending)
        except (UnansweredError, EndedError) as problem:  # the others are under way, and are paid
            return problem

    together, levels = tree.heaviest(1, 0.0), tree.depth
    nodes, least = enumeration.nodes, max(MIN_PREFIX_PROBABILITY, enumeration.precision)
    root: Position | None = None
    while together:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(said(each, min(levels, tree.depth - len(each.tokens)))) for each in together]
        for prefix, task in zip(together, tasks, strict=True):
            answered = task.result()
            if isinstance(answered, Exception):
                raise answered
            if answered is not None and not prefix.tokens:
                prompt_tokens = answered.prompt_tokens
            places = [] if answered is None else continuation.positions(answered, prefix.tokens, prompt_tokens)
            root = root or (places[0] if places else None)
            tree.grow(prefix, places[: tree.depth - len(prefix.tokens)])
        nodes -= len(together)
        together, levels = tree.heaviest(min(AT_ONCE, nodes), least), LEVELS
    if root is None:
        raise UnansweredError("garbled", "the server says nothing of the first token of an answer")
    return root


@dataclass(frozen=True)
class _WeightedDraw(AnswerMass):
    completion: Completion


def _rows(
    request: Request, tree: TopKTree, points: CurveEstimate, draws: Mapping[float, Sequence[_WeightedDraw]]
) -> Iterator[Completion]:
    """Yield answers whose weights add up to the accuracy at each temperature where they are right, to the rest
    elsewhere.
    """
    accuracy = np.clip(points.accuracy, 0, 1)
    enumerated = normalize_to_accuracy(tree.answers, accuracy)
    for t in request.temperatures:
        place = points.temperatures.index(t)
        if t in draws:
            for trial, each in enumerate(_with_both_sides(draws[t], enumerated, accuracy[place : place + 1], place, t)):
                if each.weight[0] > 0:
                    yield replace(
                        each.completion,
                        trial=trial,
                        weight=float(each.weight[0]),
                        top_logprobs=None,
                        **_UNCOUNTED,
                    )
            continue
        for trial, answers in enumerate(enumerated):
            if answers.weight[place] > 0:
                yield _enumerated(answers, t, trial, place)


def _with_both_sides(
    drawn: Sequence[_WeightedDraw],
    enumerated: Sequence[EnumeratedAnswers[TopKToken]],
    accuracy: Floats,
    place: int,
    temperature: float,
) -> list[_WeightedDraw]:
    """Return draws with weights by the accuracy (1,); beside them what is likeliest of the right, or the wrong answers,
    where no draw is one and they weigh something.
    """
    answers = list(drawn)
    for side in (True, False):
        weighs = accuracy[0] if side else 1 - accuracy[0]
        others = [each for each in enumerated if each.right == side]
        if weighs > 0 and others and not any(each.right == side for each in drawn):
            likeliest = max(others, key=lambda each: float(each.weight[place]))
            answers.append(_WeightedDraw(side, np.ones(1), _enumerated(likeliest, temperature, 0, place)))
    return normalize_to_accuracy(answers, accuracy)


_UNCOUNTED: dict[str, Any] = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "reasoning_tokens": None,
    "cached_tokens": None,
}


def _enumerated(answers: EnumeratedAnswers[TopKToken], temperature: float, trial: int, place: int) -> Completion:
    carried = b"".join(token.text for token in answers.tokens)
    line = carried.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip() if carried.strip() else ""
    carrying = [token for token in answers.tokens if token.text.split(b"\n", 1)[0].strip()]
    return Completion(
        temperature,
        trial,
        line,
        float(answers.weight[place]),
        finish_reason=answers.finish_reason,
        token_logprobs=[token.logprob for token in answers.tokens],
        sampling_logprobs=answers.logprobs[:, place].tolist(),
        answer_tokens=len(carrying),
        prompt_tokens=0,
        completion_tokens=0,
    )


@dataclass(frozen=True)
class ChoiceShares:
    """What each of C choices weighs at T temperatures, and after them what chooses none: (C + 1, T).

    ``tokens`` are the likeliest of each, None where none is seen.
    """

    lower: Floats
    likely: Floats
    upper: Floats
    tokens: list[TopKToken | None]


def choice_shares(
    choices: Choices, tokens: Sequence[TopKToken], temperatures: Sequence[float], coverage: TopKCoverage
) -> ChoiceShares:
    """Return the shares by the likeliest tokens of the first place; of the others it is not known what they choose, and
    they are taken to choose none.
    """
    places = _places(choices, tokens)
    bounds = coverage.bounds(tokens, temperatures)
    lower, likely = (np.stack([of[ids].sum(axis=0) for ids in places]) for of in (bounds.lower, bounds.likely))
    likely[-1] += bounds.unseen_likely
    others = lower.sum(axis=0) - lower
    representatives = [tokens[int(ids[0])] if len(ids) else None for ids in places]  # they are in order
    return ChoiceShares(lower, likely, np.clip(1 - others, lower, 1), representatives)


def drawn_shares(choices: Choices, position: Position, temperature: float) -> Floats:
    """Return (C + 1,) what a draw at a temperature tells of each share: of its own token where that is not among the
    likeliest, or else of all these.
    """
    chosen, tokens = position.chosen, position.largest
    if chosen.name in {token.name for token in tokens}:
        weights = renormalized(tokens, temperature)
        return np.array([weights[ids].sum() for ids in _places(choices, tokens)])
    return np.array([float(len(ids)) for ids in _places(choices, [chosen])])


def _places(choices: Choices, tokens: Sequence[TopKToken]) -> list[np.ndarray]:
    """Return which tokens make each choice, and which make none."""
    chosen = choices.tokens(TokenTexts([token.text for token in tokens]))
    taken = np.concatenate([np.empty(0, dtype=np.intp), *chosen])
    return [*chosen, np.setdiff1d(np.arange(len(tokens)), taken)]


async def choice_answers(
    request: Request, enumeration: Enumeration, client: LogprobClient
) -> tuple[list[Completion], CurveEstimate]:
    """Return the choices of a multiple-choice question, and what chooses none, with their probabilities."""
    choices = enumeration.choices
    assert choices is not None
    path, asked = client.settings.asked(request.prompt)
    answered = await client.ask.positions(client.settings.sending(path, asked, 1, {}, 0))
    if not answered.positions[0]:
        raise UnansweredError("garbled", "the server says nothing of the first token of an answer")
    root = answered.positions[0][0]
    shares = choice_shares(choices, root.largest, enumeration.temperatures, client.coverage)
    apart = (shares.upper - shares.lower).max(axis=0)
    correct = choices.correct
    unknown = np.full(len(enumeration.temperatures), np.nan)
    lower, right, upper = (
        unknown if correct is None else each[correct] for each in (shares.lower, shares.likely, shares.upper)
    )
    points = CurveEstimate(enumeration.temperatures, lower, right, upper, apart)
    came = await drawn(request, range(enumeration.draws), client, points.loose_points(request.temperatures), root)
    likely = shares.likely.copy()
    for t, draws in came.items():
        told = np.stack([drawn_shares(choices, each.places[0], t) for each in draws])
        place = points.temperatures.index(t)
        mean = np.clip(told.mean(axis=0), shares.lower[:, place], shares.upper[:, place])
        likely[:, place] = mean / mean.sum()
        error = 0.0 if correct is None else mean_and_error(told[:, correct].tolist())[1]
        for each in draws:  # a choice that only a draw shows is called by what was drawn
            for index in np.flatnonzero(drawn_shares(choices, each.places[0], t)):
                if shares.tokens[index] is None:
                    shares.tokens[index] = each.places[0].chosen
        points.draw(t, math.nan if correct is None else float(likely[correct, place]), error)
    return list(_choice_rows(request, shares, likely, points)), points


def _choice_rows(request: Request, shares: ChoiceShares, likely: Floats, points: CurveEstimate) -> Iterator[Completion]:
    for t in request.temperatures:
        place = points.temperatures.index(t)
        for trial, token in enumerate(shares.tokens):
            if likely[trial, place] > 0:
                text = token.text.decode("utf-8", "replace").split("\n", 1)[0].strip() if token else ""
                known = token is not None
                yield Completion(
                    t,
                    trial,
                    text,
                    float(likely[trial, place]),
                    finish_reason="length",
                    token_logprobs=[token.logprob] if token else None,
                    sampling_logprobs=[math.log(likely[trial, place])] if known else None,
                    answer_tokens=1 if known else None,
                    prompt_tokens=0,
                    completion_tokens=0,
                )

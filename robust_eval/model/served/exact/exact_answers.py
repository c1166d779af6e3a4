"""Exact answers of a server to one question: their probabilities, from log-probabilities and from draws.

If the bounds from top-k log-probabilities are close, they give a probability; otherwise answers are drawn, with the
log-probabilities of their tokens.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from robust_eval.answer import SERVED
from robust_eval.model.base import (
    FURTHER_DRAWS,
    TOKENS_PER_PREFIX,
    Completion,
    Enumeration,
    Floats,
    LetterChoices,
    Reply,
    Request,
    calls,
    normalize_to_accuracy,
)
from robust_eval.model.served.completions import completions
from robust_eval.model.served.exact.continuation import (
    NO_LOGPROBS,
    Continuation,
    LogprobClient,
    LogprobRequest,
    start_continuation,
)
from robust_eval.model.served.exact.topk_tree import (
    CurveEstimate,
    EnumeratedAnswers,
    Prefix,
    TopKCoverage,
    TopKTree,
    mean_and_error,
    renormalized,
    summed_draw,
)
from robust_eval.model.served.limits.rate_limiter import EndedError
from robust_eval.model.served.transport.service import ServiceResponse, UnansweredError
from robust_eval.model.served.transport.token_logprobs import Position, TopKToken
from robust_eval.model.token_texts import TokenTexts
from robust_eval.runtime.finish_reasons import LENGTH

MAX_CHANGE = 0.08
"""Maximum relative change of the range of a position's log-probabilities: half precision is not exact."""
MIN_RANGE = 0.5
"""Minimum range for which the change is tested."""


class Draw(NamedTuple):
    """Answer that a server drew to find its exact answers, with the positions in it."""

    completion: Completion
    positions: Sequence[Position]


async def draw_answers(
    request: Request, trials: range, client: LogprobClient, temperatures: Sequence[float], root: Position
) -> dict[float, list[Draw]]:
    """Return answers drawn at each of these temperatures in these ``trials``; raises UnansweredError, also if the
    log-probabilities of the first position have changed since ``root``.
    """
    plain = replace(
        request,
        temperatures=tuple(temperatures),
        first_trial=trials.start,
        trials=len(trials),
        top_logprobs=client.can.top_logprobs,
        enumeration=None,
    )
    path, fields = client.prompt_fields(request.prompt)
    style = "chat" if client.chat else "plain"
    answers: dict[float, list[Draw]] = {}
    for call in calls(plain, client.can.choices):
        left = call.trials
        while left:
            part = call._replace(trials=left)
            maximum = len(left) * request.max_new_tokens
            body = {**client.draw_body(part), **fields}
            response = await client.positions(LogprobRequest(path, body, 0, maximum))
            new = completions(part, left, response, style)
            for draw in map(Draw, new, response.positions):
                _refuse_change(root, draw.positions)
                answers.setdefault(call.temperature, []).append(draw)
            left = left[len(new) :]
    return answers


def _refuse_change(root: Position, positions: Sequence[Position]) -> None:
    """Raise UnansweredError if the range of the first position's log-probabilities has changed between requests, as it
    does if they follow the temperature.
    """
    if not positions:
        raise UnansweredError("garbled", NO_LOGPROBS)
    before, now = ({token.name: token.logprob for token in each.largest} for each in (root, positions[0]))
    both = [name for name in before if name in now and math.isfinite(before[name]) and math.isfinite(now[name])]
    if len(both) < 2:
        return
    distance = before[both[0]] - before[both[-1]]
    if distance > MIN_RANGE and abs((now[both[0]] - now[both[-1]]) / distance - 1) > MAX_CHANGE:
        raise UnansweredError(
            "garbled",
            "the log-probabilities of the first token changed between requests, as if they were scaled by the "
            "temperature",
        )


MIN_PREFIX_PROBABILITY = 0.01
"""Minimum probability of a prefix for it to be expanded."""
EXPANDED_TOGETHER = 8
"""Number of prefixes that are expanded concurrently."""


@dataclass
class Usage:
    """Token counts of the service for all requests of one question, and its names for the model that answered last."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None
    names: dict[str, Any] = field(default_factory=dict)

    def add(self, response: ServiceResponse) -> None:
        """Add the counts of a response."""
        self.prompt += response.prompt_tokens
        listed = sum(map(len, response.positions))  # some servers count only the first of several answers
        self.completion += max(response.completion_tokens, listed)
        if response.cached_tokens is not None:
            self.cached = (self.cached or 0) + response.cached_tokens
        self.names |= {column: name for column in SERVED if (name := getattr(response, column))}


async def exact_reply(request: Request, client: LogprobClient) -> Reply:
    """Return the reply with the answers to a request, their probabilities, and the curve; raises UnansweredError."""
    enumeration, usage, positions = request.enumeration, Usage(), client.positions
    assert enumeration is not None

    async def counted(logprob_request: LogprobRequest) -> ServiceResponse:
        response = await positions(logprob_request)
        usage.add(response)
        return response

    client = replace(client, positions=counted)
    compute = _answers if enumeration.choices is None else choice_answers
    answers, points = await compute(request, enumeration, client)
    if not answers:
        raise UnansweredError("garbled", "the responses contain no answers")
    answers = [each if each.served_model else each._replace(**usage.names) for each in answers]
    answers[0] = answers[0]._replace(
        prompt_tokens=usage.prompt, completion_tokens=usage.completion, cached_tokens=usage.cached
    )
    return Reply(request, answers, points.curve())


async def _answers(
    request: Request, enumeration: Enumeration, client: LogprobClient
) -> tuple[list[Completion], CurveEstimate]:
    matcher = request.matcher
    assert matcher is not None
    tree = TopKTree(
        matcher,
        request.max_new_tokens,
        enumeration.temperatures,
        request.temperatures,
        client.coverage,
        client.chat,
    )
    continuation = await start_continuation(client, client.can.continuation, request.prompt)
    root = await _explore(tree, enumeration, continuation)
    bounds = tree.bounds
    distance = bounds.upper - bounds.lower
    points = CurveEstimate(tree.temperatures, bounds.lower, tree.likely, bounds.upper, distance)
    graded: defaultdict[float, list[_GradedDraw]] = defaultdict(list)
    estimates: defaultdict[float, list[float]] = defaultdict(list)

    async def draw(trials: range, temperatures: Sequence[float]) -> None:
        """Draw answers, and estimate the accuracy at each of these temperatures from all of its draws."""
        for t, new in (await draw_answers(request, trials, client, temperatures, root)).items():
            for completion, positions in new:
                right = matcher.right(completion.text)
                cut = completion.finish_reason == LENGTH
                graded[t].append(_GradedDraw(right, completion))
                estimates[t].append(summed_draw(matcher, positions, t, tree.depth, client.chat, cut, right))
            points.draw(t, *mean_and_error(estimates[t]))

    draws = enumeration.draws
    await draw(range(draws), points.loose_points(request.temperatures))
    await draw(range(draws, (1 + FURTHER_DRAWS) * draws), points.points_near_threshold(request.temperatures))
    return list(_rows(request, tree, points, graded)), points


async def _explore(tree: TopKTree, enumeration: Enumeration, continuation: Continuation) -> Position:
    """Expand the most probable prefixes of answers, until the budget is used or the others are improbable; return the
    first position.
    """
    prompt_tokens = 0

    async def expand(prefix: Prefix, levels: int) -> ServiceResponse | UnansweredError | EndedError | None:
        logprob_request = continuation.request(prefix.tokens, levels)
        try:
            return None if logprob_request is None else await continuation.client.positions(logprob_request)
        except (UnansweredError, EndedError) as problem:  # the other requests are in flight, and are paid
            return problem

    together, levels = tree.heaviest(1, 0.0), tree.depth
    nodes, min_probability = enumeration.nodes, max(MIN_PREFIX_PROBABILITY, enumeration.precision)
    root: Position | None = None
    while together:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(expand(each, min(levels, tree.depth - len(each.tokens)))) for each in together]
        for prefix, task in zip(together, tasks, strict=True):
            response = task.result()
            if isinstance(response, Exception):
                raise response
            if response is not None and not prefix.tokens:
                prompt_tokens = response.prompt_tokens
            positions = [] if response is None else continuation.positions(response, prefix.tokens, prompt_tokens)
            root = root or (positions[0] if positions else None)
            tree.grow(prefix, positions[: tree.depth - len(prefix.tokens)])
        nodes -= len(together)
        together, levels = tree.heaviest(min(EXPANDED_TOGETHER, nodes), min_probability), TOKENS_PER_PREFIX
    if root is None:
        raise UnansweredError("garbled", NO_LOGPROBS)
    return root


class _GradedDraw(NamedTuple):
    right: bool
    completion: Completion


def _rows(
    request: Request, tree: TopKTree, points: CurveEstimate, draws: Mapping[float, Sequence[_GradedDraw]]
) -> Iterator[Completion]:
    """Yield answers with weights that add up to the accuracy at each temperature for right ones, and to the rest for
    wrong ones.
    """
    accuracy = np.clip(points.accuracy, 0, 1)
    enumerated = sorted(tree.answers, key=lambda each: not each.right)
    masses = np.array([each.weight for each in enumerated]).reshape(-1, len(accuracy))
    right = np.array([each.right for each in enumerated], dtype=bool)
    weights = normalize_to_accuracy(right, masses, accuracy[None], np.zeros(len(right), dtype=np.intp))
    enumerated = [each._replace(weight=weight) for each, weight in zip(enumerated, weights, strict=True)]
    for t in request.temperatures:
        column = points.temperatures.index(t)
        if t in draws:
            graded = sorted(
                _with_both_sides(draws[t], enumerated, accuracy[column], column, t), key=lambda each: not each.right
            )
            right, one = np.array([each.right for each in graded], dtype=bool), np.zeros(len(graded), dtype=np.intp)
            shares = normalize_to_accuracy(right, np.ones((len(graded), 1)), accuracy[None, [column]], one)
            for trial, (each, weight) in enumerate(zip(graded, shares[:, 0].tolist(), strict=True)):
                if weight > 0:
                    yield each.completion._replace(trial=trial, weight=weight, top_logprobs=None, **_UNCOUNTED)
            continue
        for trial, answers in enumerate(enumerated):
            if answers.weight[column] > 0:
                yield _enumerated(answers, t, trial, column)


def _with_both_sides(
    draws: Sequence[_GradedDraw],
    enumerated: Sequence[EnumeratedAnswers],
    accuracy: float,
    column: int,
    temperature: float,
) -> list[_GradedDraw]:
    """Return drawn answers, and the likeliest enumerated one of a verdict that none has but the accuracy allows."""
    answers = list(draws)
    for side, weight in ((True, accuracy), (False, 1 - accuracy)):
        same_side = [each for each in enumerated if each.right == side]
        if weight > 0 and same_side and not any(each.right == side for each in draws):
            likeliest = max(same_side, key=lambda each: float(each.weight[column]))
            answers.append(_GradedDraw(side, _enumerated(likeliest, temperature, 0, column)))
    return answers


_UNCOUNTED: dict[str, Any] = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "reasoning_tokens": None,
    "cached_tokens": None,
}


def _enumerated(answers: EnumeratedAnswers, temperature: float, trial: int, column: int) -> Completion:
    carried = b"".join(token.text for token in answers.tokens)
    line = carried.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip() if carried.strip() else ""
    carrying = [token for token in answers.tokens if token.text.split(b"\n", 1)[0].strip()]
    return Completion(
        temperature,
        trial,
        line,
        float(answers.weight[column]),
        finish_reason=answers.finish_reason,
        token_logprobs=[token.logprob for token in answers.tokens],
        sampling_logprobs=answers.logprobs[:, column].tolist(),
        answer_tokens=len(carrying),
        prompt_tokens=0,
        completion_tokens=0,
    )


@dataclass(frozen=True)
class ChoiceShares:
    """Probabilities (C + 1, T) of C choices at T temperatures; the last row is that of no choice.

    ``tokens`` are the likeliest of each, None if no top-k token chooses it.
    """

    lower: Floats
    likely: Floats
    upper: Floats
    tokens: list[TopKToken | None]


def choice_shares(
    choices: LetterChoices, tokens: Sequence[TopKToken], temperatures: Sequence[float], coverage: TopKCoverage
) -> ChoiceShares:
    """Return the shares of choices by the top-k tokens of the first position; unseen tokens count as no choice."""
    indices = _token_indices(choices, tokens)
    bounds = coverage.bounds(tokens, temperatures)
    lower, likely = (np.stack([of[ids].sum(axis=0) for ids in indices]) for of in (bounds.lower, bounds.likely))
    likely[-1] += bounds.unseen_likely
    same_side = lower.sum(axis=0) - lower
    representatives = [tokens[int(ids[0])] if len(ids) else None for ids in indices]  # in descending order
    return ChoiceShares(lower, likely, np.clip(1 - same_side, lower, 1), representatives)


def drawn_shares(choices: LetterChoices, position: Position, temperature: float) -> Floats:
    """Return (C + 1,) the estimate of each choice's share from a draw: by the probabilities of the top-k tokens if the
    drawn one is among them, or else by the drawn one.
    """
    chosen, tokens = position.chosen, position.largest
    if chosen.name in {token.name for token in tokens}:
        weights = renormalized(tokens, temperature)
        return np.array([weights[ids].sum() for ids in _token_indices(choices, tokens)])
    return np.array([float(len(ids)) for ids in _token_indices(choices, [chosen])])


def _token_indices(choices: LetterChoices, tokens: Sequence[TopKToken]) -> list[np.ndarray]:
    """Return the indices of the tokens of each choice, and of those of none."""
    chosen = choices.tokens(TokenTexts([token.text for token in tokens]))
    taken = np.concatenate([np.empty(0, dtype=np.intp), *chosen])
    return [*chosen, np.setdiff1d(np.arange(len(tokens)), taken)]


async def choice_answers(
    request: Request, enumeration: Enumeration, client: LogprobClient
) -> tuple[list[Completion], CurveEstimate]:
    """Return the choices of a multiple-choice question, and the answer of no choice, with their probabilities."""
    choices = enumeration.choices
    assert choices is not None
    response = await client.positions(client.request(*client.prompt_fields(request.prompt), 1))
    if not response.positions[0]:
        raise UnansweredError("garbled", NO_LOGPROBS)
    root = response.positions[0][0]
    shares = choice_shares(choices, root.largest, enumeration.temperatures, client.coverage)
    distance = (shares.upper - shares.lower).max(axis=0)
    correct = choices.correct
    unknown = np.full(len(enumeration.temperatures), np.nan)
    lower, right, upper = (
        unknown if correct is None else each[correct] for each in (shares.lower, shares.likely, shares.upper)
    )
    points = CurveEstimate(enumeration.temperatures, lower, right, upper, distance)
    draws_by_temperature = await draw_answers(
        request, range(enumeration.draws), client, points.loose_points(request.temperatures), root
    )
    likely = shares.likely.copy()
    for t, draws in draws_by_temperature.items():
        estimates = np.stack([drawn_shares(choices, each.positions[0], t) for each in draws])
        column = points.temperatures.index(t)
        mean = np.clip(estimates.mean(axis=0), shares.lower[:, column], shares.upper[:, column])
        likely[:, column] = mean / mean.sum()
        error = 0.0 if correct is None else mean_and_error(estimates[:, correct].tolist())[1]
        for each, share in zip(draws, estimates, strict=True):  # the token of a choice that only a draw shows
            for index in np.flatnonzero(share):
                shares.tokens[index] = shares.tokens[index] or each.positions[0].chosen
        points.draw(t, math.nan if correct is None else float(likely[correct, column]), error)
    return list(_choice_rows(request, shares, likely, points)), points


def _choice_rows(request: Request, shares: ChoiceShares, likely: Floats, points: CurveEstimate) -> Iterator[Completion]:
    for t in request.temperatures:
        column = points.temperatures.index(t)
        for trial, token in enumerate(shares.tokens):
            if (weight := float(likely[trial, column])) > 0:
                yield Completion(
                    t,
                    trial,
                    token.text.decode("utf-8", "replace").split("\n", 1)[0].strip() if token else "",
                    weight,
                    finish_reason="closed",
                    token_logprobs=[token.logprob] if token else None,
                    sampling_logprobs=[math.log(weight)] if token else None,
                    answer_tokens=1 if token else None,
                    prompt_tokens=0,
                    completion_tokens=0,
                )

"""The probabilities of the choices of one question, by the likeliest first tokens of its answer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from robust_eval.model.base import Choices, Completion, Enumeration, Floats, Request
from robust_eval.model.served.exact.curve_estimate import CurveEstimate, mean_and_error, renormalized
from robust_eval.model.served.exact.topk_draws import LogprobClient, drawn
from robust_eval.model.served.exact.topk_tokens import TopKCoverage
from robust_eval.model.served.service import UnansweredError
from robust_eval.model.served.token_logprobs import Position, TopKToken
from robust_eval.model.token_texts import TokenTexts


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

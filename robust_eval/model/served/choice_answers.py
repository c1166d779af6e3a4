"""The probabilities of the choices of one question, from the first token of its answer."""

import math
from collections.abc import Iterator

import numpy as np

from robust_eval.model.base import Completion, Enumeration, Floats, Request
from robust_eval.model.served.asked_draws import Asking, answer_row, drawn
from robust_eval.model.served.choice_shares import Shares, choice_shares, drawn_shares
from robust_eval.model.served.curve_points import Points
from robust_eval.model.served.seen_draws import mean_and_error
from robust_eval.model.served.service import UnansweredError


async def choice_answers(request: Request, enumeration: Enumeration, asking: Asking) -> tuple[list[Completion], Points]:
    """Return the choices of a multiple-choice question, and what chooses none, with their probabilities."""
    choices = enumeration.choices
    assert choices is not None
    path, asked = asking.settings.asked(request.prompt)
    answered = await asking.ask.seen(asking.settings.sending(path, asked, 1, {}, 0))
    if not answered.seen[0]:
        raise UnansweredError("garbled", "the server says nothing of the first token of an answer")
    root = answered.seen[0][0]
    shares = choice_shares(choices, root.largest, enumeration.temperatures, asking.vocabulary)
    apart = (shares.upper - shares.lower).max(axis=0)
    correct = choices.correct
    unknown = np.full(len(enumeration.temperatures), np.nan)
    lower, right, upper = (
        unknown if correct is None else each[correct] for each in (shares.lower, shares.likely, shares.upper)
    )
    points = Points(enumeration.temperatures, lower, right, upper, apart)
    came = await drawn(request, range(enumeration.draws), asking, points.far(request.temperatures), root)
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


def _choice_rows(request: Request, shares: Shares, likely: Floats, points: Points) -> Iterator[Completion]:
    for t in request.temperatures:
        place = points.temperatures.index(t)
        for trial, token in enumerate(shares.tokens):
            if likely[trial, place] > 0:
                text = token.text.decode("utf-8", "replace").split("\n", 1)[0].strip() if token else ""
                known = token is not None
                yield answer_row(
                    t,
                    trial,
                    text,
                    float(likely[trial, place]),
                    finish_reason="length",
                    token_logprobs=[token.logprob] if token else None,
                    sampling_logprobs=[math.log(likely[trial, place])] if known else None,
                    answer_tokens=1 if known else None,
                )

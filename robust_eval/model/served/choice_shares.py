"""How probable each choice of a multiple-choice question is, by the likeliest first tokens of the reply."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robust_eval.model.base import Choices, Floats
from robust_eval.model.served.seen_draws import beside
from robust_eval.model.served.seen_tokens import Position, SeenToken
from robust_eval.model.served.seen_vocabulary import SeenVocabulary
from robust_eval.model.token_texts import TokenTexts


@dataclass(frozen=True)
class Shares:
    """What each of C choices weighs at T temperatures, and after them what chooses none: (C + 1, T).

    ``tokens`` are the likeliest of each, None where none is seen.
    """

    lower: Floats
    likely: Floats
    upper: Floats
    tokens: list[SeenToken | None]


def choice_shares(
    choices: Choices, tokens: Sequence[SeenToken], temperatures: Sequence[float], vocabulary: SeenVocabulary
) -> Shares:
    """Return the shares by the likeliest tokens of the first place; of the others it is not known what they choose, and
    they are taken to choose none.
    """
    places = _places(choices, tokens)
    bounds = vocabulary.bounds(tokens, temperatures)
    lower, likely = (np.stack([of[ids].sum(axis=0) for ids in places]) for of in (bounds.lower, bounds.likely))
    likely[-1] += bounds.unseen_likely
    others = lower.sum(axis=0) - lower
    representatives = [tokens[int(ids[0])] if len(ids) else None for ids in places]  # they are in order
    return Shares(lower, likely, np.clip(1 - others, lower, 1), representatives)


def drawn_shares(choices: Choices, position: Position, temperature: float) -> Floats:
    """Return (C + 1,) what a draw at a temperature tells of each share: of its own token where that is not among the
    likeliest, or else of all these.
    """
    chosen, tokens = position.chosen, position.largest
    if chosen.name in {token.name for token in tokens}:
        weights = beside(tokens, temperature)
        return np.array([weights[ids].sum() for ids in _places(choices, tokens)])
    return np.array([float(len(ids)) for ids in _places(choices, [chosen])])


def _places(choices: Choices, tokens: Sequence[SeenToken]) -> list[np.ndarray]:
    """Return which tokens make each choice, and which make none."""
    chosen = choices.tokens(TokenTexts([token.text for token in tokens]))
    taken = np.concatenate([np.empty(0, dtype=np.intp), *chosen])
    return [*chosen, np.setdiff1d(np.arange(len(tokens)), taken)]

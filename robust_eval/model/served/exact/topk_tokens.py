"""The likeliest tokens that a server names: how much of the vocabulary they are, and what each makes of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Matcher
from robust_eval.model.served.token_logprobs import TopKToken
from robust_eval.model.tail_bounds import DEFAULT_VOCABULARY_SIZE, TokenBounds, precision, token_bounds
from robust_eval.model.token_texts import Mask, TokenTexts


@dataclass(frozen=True)
class TopKCoverage:
    """The ``shown`` likeliest tokens, which may be all that there are (``whole``); fewer where several that write the
    same were named as one.
    """

    shown: int
    whole: bool = False

    @property
    def most(self) -> int:
        """How many tokens the model has at most."""
        return self.shown if self.whole else DEFAULT_VOCABULARY_SIZE

    def bounds(self, tokens: Sequence[TopKToken], temperatures: Sequence[float]) -> TokenBounds:
        """Return what the tokens of one place weigh at each temperature, at least and at most, and all others."""
        logprobs = [token.logprob for token in tokens]
        largest = len(tokens) >= self.shown and not any(token.unnamed for token in tokens)
        return token_bounds(logprobs, temperatures, self.most, precision(logprobs), largest)


class TokenOutcomes(NamedTuple):
    """Tokens by what they make of an answer that began in some way, each (K,).

    After those that are ``settled`` it is right whatever follows, or ended and right (``right``), or ended and not
    (``right`` is False). The others leave it open; after those of them that are ``right`` it is right if it ends there,
    and with those that are ``begun`` an accepted answer has begun.
    """

    settled: Mask
    right: Mask
    begun: Mask


def classify_topk_tokens(
    matcher: Matcher, text: bytes, tokens: Sequence[TopKToken], last: bool, chat: bool
) -> TokenOutcomes:
    """Return the kinds of tokens after an answer that began with ``text``; no token follows after the ``last`` one.

    An answer ends with its first line. In a conversation (``chat``) that is the first one that is not blank.
    """
    texts = TokenTexts([token.text for token in tokens])
    right, closed, begun = matcher.next_tokens(text.lstrip() if chat else text, texts)
    ends = np.array([token.ends for token in tokens], dtype=bool)
    breaks = texts.breaks_line
    if chat and not text.strip():  # lines are blank so far
        breaks = breaks & np.array([bool(token.text.split(b"\n", 1)[0].strip()) for token in tokens], dtype=bool)
        for index in np.flatnonzero(texts.breaks_line & ~breaks):
            right[index] = False  # what follows its line breaks is judged with what comes after it
    ended = np.ones(len(tokens), dtype=bool) if last else ends | breaks
    begins = np.zeros(len(tokens), dtype=bool)
    begins[begun] = True
    return TokenOutcomes(ended | (closed & right), right, begins & ~ended)

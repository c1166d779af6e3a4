"""What each of the tokens that a server names makes of an answer: it ends it, settles it, or leaves it open."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Matcher
from robust_eval.model.served.seen_tokens import SeenToken
from robust_eval.model.token_texts import Mask, TokenTexts


class Kinds(NamedTuple):
    """Tokens by what they make of an answer that began in some way, each (K,).

    After those that are ``settled`` it is right whatever follows, or ended and right (``right``), or ended and not
    (``right`` is False). The others leave it open; after those of them that are ``right`` it is right if it ends there,
    and with those that are ``begun`` an accepted answer has begun.
    """

    settled: Mask
    right: Mask
    begun: Mask


def seen_kinds(matcher: Matcher, text: bytes, tokens: Sequence[SeenToken], last: bool, chat: bool) -> Kinds:
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
    return Kinds(ended | (closed & right), right, begins & ~ended)

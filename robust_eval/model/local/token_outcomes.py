"""What each next token makes of an answer: it ends it rightly or wrongly, settles it, or leaves it open."""

from typing import NamedTuple

import numpy as np

from robust_eval.model.base import Matcher
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids


class Kinds(NamedTuple):
    """Token ids by what they make of one prefix of answers; after any other token the answer goes on, and is not right.

    ``right`` end the answer and it is right, or settle it: it is right whatever follows (these are ``closed``).
    ``wrong`` end it and it is not right. After those that are ``open`` it is right if it ends, but may go on to be
    wrong. ``begun`` are those after which a right answer has begun. At the last token of an answer all tokens that are
    not right are wrong, and ``wrong``, ``open`` and ``begun`` are empty.
    """

    right: Ids
    wrong: Ids
    open: Ids
    begun: Ids
    closed: Ids


def next_kinds(matcher: Matcher, vocabulary: Vocabulary, text: bytes, last: bool) -> Kinds:
    """Return the kinds of next tokens after an answer that began with ``text``; ``last``: no more than one token
    follows.
    """
    answer = text.lstrip() if vocabulary.first_line else text
    right, closed, begun = matcher.next_tokens(answer, vocabulary.texts)
    for token in vocabulary.stopping(text) if vocabulary.stop else ():
        whole = vocabulary.answer(text + vocabulary.texts.raw[token])
        right[token] = matcher.right(whole.decode("utf-8", "replace"))
        closed[token] = False
    none = np.empty(0, dtype=np.intp)
    if last:
        return Kinds(np.flatnonzero(right), none, none, none, np.flatnonzero(closed))
    ends = vocabulary.ending(text)
    settled = closed.copy()
    settled[ends] = True
    return Kinds(
        right=np.flatnonzero(right & settled),
        wrong=ends[~right[ends]],
        open=np.flatnonzero(right & ~settled),
        begun=begun[~settled[begun] & ~right[begun]],
        closed=np.flatnonzero(closed),
    )

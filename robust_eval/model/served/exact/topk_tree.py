"""The tree of the answers to one question, as far as a server's largest log-probabilities show it.

At each prefix that was asked for, the tokens that end the answer, or settle it, are summed; the others are prefixes
that can be asked for. What is not seen, and what is not asked for, weighs no more than bounds say
(:mod:`robust_eval.model.tail_bounds`), and so the probability of a right answer has bounds that are certain at every
temperature. Between them it is taken for what mostly comes of such answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from robust_eval.model.base import Floats, Matcher
from robust_eval.model.enumerated import EnumeratedAnswers
from robust_eval.model.served.exact.topk_tokens import TokenOutcomes, TopKCoverage, classify_topk_tokens
from robust_eval.model.served.token_logprobs import Position, TopKToken
from robust_eval.model.tail_bounds import Resolved, TokenBounds

RIGHT_ALREADY, RIGHT_BEGUN, RIGHT_OTHERWISE = 0.95, 0.6, 0.03
"""With which probability an answer is taken to be right of which no more is known than that it is right so far, that an
accepted answer has begun in it, or neither."""
STEERS_UP_TO = 1.3
"""The temperature up to which bounds can be close enough to be worth a request."""


@dataclass(eq=False)
class Prefix:
    """The beginning of an answer: its tokens, and what it weighs at T temperatures, at least and likely."""

    tokens: tuple[TopKToken, ...]
    text: bytes
    lower: Floats
    likely: Floats
    logprobs: Floats
    taken: float = RIGHT_OTHERWISE
    """How probable a right answer is taken to be with this beginning."""
    children: dict[int | bytes, "Prefix"] = field(default_factory=dict)


class TopKTree:
    """The tree of answers of at most ``depth`` tokens; what is ``waiting`` can be asked for."""

    def __init__(
        self,
        matcher: Matcher,
        depth: int,
        temperatures: Sequence[float],
        wanted: Sequence[float],
        coverage: TopKCoverage,
        chat: bool,
    ) -> None:
        self.temperatures = tuple(temperatures)
        steers = [place for place, t in enumerate(temperatures) if t in wanted and t <= STEERS_UP_TO]
        self._steers = steers or [0]
        self._matcher, self.depth, self._coverage, self._chat = matcher, depth, coverage, chat
        ones = np.ones(len(self.temperatures))
        self.root = Prefix((), b"", ones, ones, np.zeros((0, len(ones))))
        self.waiting: list[Prefix] = [self.root]
        self.answers: list[EnumeratedAnswers[TopKToken]] = []
        self._resolved = Resolved(0 * ones, 0 * ones)
        self._right = 0 * ones
        self._hidden = 0 * ones

    def heaviest(self, number: int, least: float) -> list[Prefix]:
        """Take out of those that are waiting the heaviest ones, each of which weighs something at a temperature."""
        self.waiting.sort(key=self._weight, reverse=True)
        taken = [prefix for prefix in self.waiting[:number] if self._weight(prefix) >= least]
        self.waiting = self.waiting[len(taken) :]
        return taken

    def _weight(self, prefix: Prefix) -> float:
        return float(prefix.likely[self._steers].max())

    def grow(self, prefix: Prefix, positions: Sequence[Position]) -> None:
        """Add what a server said of the places that follow on a prefix which was taken, with the likeliest token at
        each place before the next. Where that is nothing, what comes of the prefix stays unknown.
        """
        if not positions:
            self._hidden = self._hidden + prefix.likely * prefix.taken
            return
        position, *following = positions
        largest = position.largest
        bounds = self._coverage.bounds(largest, self.temperatures)
        last = len(prefix.tokens) == self.depth - 1
        kinds = classify_topk_tokens(self._matcher, prefix.text, largest, last, self._chat)
        unknown = np.array([token.unnamed for token in largest], dtype=bool)
        kinds = kinds._replace(settled=kinds.settled & ~unknown)
        self._count(prefix, largest, bounds, kinds, last)
        self._hidden = self._hidden + prefix.likely * bounds.likely[unknown].sum(axis=0) * RIGHT_OTHERWISE
        for index in np.flatnonzero(~kinds.settled & ~unknown).tolist():
            taken = RIGHT_ALREADY if kinds.right[index] else RIGHT_BEGUN if kinds.begun[index] else RIGHT_OTHERWISE
            token = largest[index]
            child = Prefix(
                (*prefix.tokens, token),
                prefix.text + token.text,
                prefix.lower * bounds.lower[index],
                prefix.likely * bounds.likely[index],
                np.vstack([prefix.logprobs, _log(bounds.likely[index])]),
                taken,
            )
            prefix.children[token.name] = child
            self.waiting.append(child)
        child_of = prefix.children.get(position.chosen.name)
        if following and child_of is not None:
            self.waiting.remove(child_of)
            self.grow(child_of, following)

    def _count(
        self, prefix: Prefix, tokens: Sequence[TopKToken], bounds: TokenBounds, kinds: TokenOutcomes, last: bool
    ) -> None:
        """Count the tokens that end the answer or settle it, and those that are not seen."""
        settled = self._resolved
        for is_right, sum_of in ((True, settled.right), (False, settled.wrong)):
            mask = kinds.settled & (kinds.right == is_right)
            if not mask.any():
                continue
            sum_of += prefix.lower * bounds.lower[mask].sum(axis=0)
            likely = prefix.likely * bounds.likely[mask].sum(axis=0)
            if is_right:
                self._right = self._right + likely
            place = int(mask.argmax())  # tokens are in order
            token = tokens[place]
            reason = "length" if last else "stop" if token.ends or b"\n" in token.text else "closed"
            path = np.vstack([prefix.logprobs, _log(bounds.likely[place])])
            self.answers.append(EnumeratedAnswers(is_right, likely, (*prefix.tokens, token), reason, path))
        already = self._matcher.right(prefix.text.decode("utf-8", "replace"))
        unseen = RIGHT_ALREADY if already else RIGHT_OTHERWISE
        self._hidden = self._hidden + prefix.likely * bounds.unseen_likely * unseen

    @property
    def bounds(self) -> Resolved:
        """What is certain."""
        return self._resolved

    @property
    def likely(self) -> Floats:
        """(T,) the probability of a right answer, as far as it is known, and what else it is taken for."""
        waiting = sum((prefix.likely * prefix.taken for prefix in self.waiting), np.zeros(len(self.temperatures)))
        found = self._right + self._hidden + waiting
        return np.asarray(np.clip(found, self._resolved.lower, self._resolved.upper))


def _log(probability: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(probability)

"""The probability of a right answer at every temperature, from draws at all of them together.

A path drawn at one temperature says something about every other, for its probability is known at each. Two variance
reductions, neither of which needs another forward pass:

- *Balance heuristic* (Veach & Guibas, SIGGRAPH 1995): a path p drawn from a mixture of temperatures counts at t with
  P_t(p) / mean over s of P_s(p).
- *Next-token sums* (Rao-Blackwell): at every prefix visited, the probability that the next token ends the answer
  rightly, or settles it, is summed over the vocabulary instead of awaiting a draw; so is that of ending it wrongly.

The accuracy is the part that is right of what is right or wrong, both so estimated: a self-normalised estimate, which
lies between 0 and 1, and is 1 where no wrong answer was seen. Its bias falls with one over the number of draws (Owen,
Monte Carlo theory, methods and examples, 2013, §9.2).

Of a right answer, only the token counts that first settles it; what is drawn after it does not.
"""

from collections.abc import Sequence

import numpy as np

from robust_eval.model.base import COMMON, Curve, Floats, Request
from robust_eval.model.local.tempered import offset_logprobs
from robust_eval.model.local.token_outcomes import Kinds, next_kinds
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids, Mask

_NONE: Ids = np.empty(0, dtype=np.intp)


class CombinedEstimates:
    """Gathers what the draws to a block of prompts say about every temperature.

    Greedy answers have no estimate, and what has no matcher. All others are asked at the same T temperatures.
    """

    def __init__(self, requests: Sequence[Request], vocabulary: Vocabulary) -> None:
        self._requests = requests
        self._vocabulary = vocabulary
        self._matchers = [None if 0 in request.temperatures else request.matcher for request in requests]
        asked = {request.temperatures for request, own in zip(requests, self._matchers, strict=True) if own}
        assert len(asked) <= 1
        self.temperatures: Sequence[float] = next(iter(asked), ())
        self._first = np.cumsum([0, *(request.answers for request in requests)])
        self._by_draw = np.zeros((2, self._first[-1] if asked else 0, len(self.temperatures)))  # right, wrong
        self._logprobs = np.zeros((len(requests), len(self.temperatures)))  # of the level's prefixes
        self._settled = np.zeros(len(requests), dtype=bool)
        self._following: list[tuple[Floats, Mask]] = []

    def __bool__(self) -> bool:
        return bool(self.temperatures)

    def kinds(self, question: int, text: bytes, last: bool) -> Kinds | None:
        """Return what each next token makes of an answer, where there is an estimate; ``last``: no other follows."""
        matcher = self._matchers[question]
        return None if matcher is None else next_kinds(matcher, self._vocabulary, text, last)

    def visit(
        self, first: int, kinds: Sequence[Kinds | None], lasts: Sequence[bool]
    ) -> tuple[Ids, list[tuple[Ids, Ids]]]:
        """Take the n prefixes of the level from ``first`` on, with the ``kinds`` of their next tokens, which are the
        ``lasts`` or not.

        Returns those (m,) of the n whose totals are wanted, and for each the tokens whose probability is.
        """
        self._rows = slice(first, first + len(kinds))
        settled = self._settled[self._rows]
        self._right, wrong = (
            [_NONE if kind is None or done else getattr(kind, side) for kind, done in zip(kinds, settled, strict=True)]
            for side in ("right", "wrong")
        )
        self._ends = np.array(
            [kind is not None and last and not done for kind, last, done in zip(kinds, lasts, settled, strict=True)]
        )
        # After the last token and where the answer is settled, only what ends rightly here is wanted.
        self._wanted = np.flatnonzero(
            [
                kind is not None and (len(ids) > 0 if last else not done)
                for kind, ids, done, last in zip(kinds, self._right, settled, lasts, strict=True)
            ]
        )
        return self._wanted, [(self._right[row], wrong[row]) for row in self._wanted]

    def count(self, log_total: Floats, shares: Floats, draws: Ids, rows: Ids) -> None:
        """Count what ends rightly or wrongly after the prefixes visited.

        ``log_total`` (m, T) and ``shares`` (m, 2, T) are those of what :meth:`visit` wanted; ``draws`` (a,) are the
        draws, of all in the block, that reach the prefixes, and ``rows`` (a,) the prefix at which each is.
        """
        logprobs = self._logprobs[self._rows]
        self._log_total = np.zeros_like(logprobs)
        self._log_total[self._wanted] = log_total
        share = np.zeros((2, *logprobs.shape))
        if len(self._wanted):
            share[:, self._wanted] = shares.transpose(1, 0, 2)
        share[1, self._ends] = np.maximum(1 - share[0, self._ends], 0)  # after the last token nothing else follows
        mixture = np.exp(logprobs).mean(axis=1, keepdims=True)
        ratio = np.divide(np.exp(logprobs), mixture, out=np.zeros_like(logprobs), where=mixture > 0)
        self._by_draw[:, draws] += (ratio * share)[:, rows]

    def descend(self, rows: Ids, tokens: Ids, offsets: Floats, possible: Mask | None) -> None:
        """Add prefixes of the next level: ``tokens`` (m,) after the rows (m,) of those that were visited last.

        ``offsets`` (m,) and ``possible`` (m, T) are those of :func:`offset_logprobs`.
        """
        step = offset_logprobs(offsets, self._log_total[rows], self.temperatures, possible)
        right = [token in self._right[row] for row, token in zip(rows, tokens, strict=True)]
        settled = self._settled[self._rows][rows] | np.array(right, dtype=bool)
        self._following.append((self._logprobs[self._rows][rows] + step, settled))

    def go_on(self) -> None:
        """Make the next level, whose prefixes are complete, the level."""
        self._logprobs, self._settled = (np.concatenate(part) for part in zip(*self._following, strict=True))
        self._following = []

    def curve(self, question: int) -> Curve | None:
        """Return the estimate at each temperature.

        Its standard error is that of a ratio (by the delta method) of draws in strata, one for each temperature; where
        the draws of a trial share their random numbers, of whole trials.
        """
        if self._matchers[question] is None:
            return None
        trials, count = self._requests[question].trials, len(self.temperatures)
        right, wrong = self._by_draw[:, self._first[question] : self._first[question + 1]]
        whole = right + wrong
        accuracy = np.clip(right.sum(axis=0) / whole.sum(axis=0), 0, 1)  # of rounding alone
        by_draw = (right - accuracy * whole) / whole.mean(axis=0)
        strata = by_draw.reshape(count, trials, -1)
        error = np.full(count, np.nan)
        if trials > 1 and self._requests[question].coupling == COMMON:
            error = strata.mean(axis=0).std(axis=0, ddof=1) / np.sqrt(trials)
        elif trials > 1:
            error = np.sqrt((strata.var(axis=1, ddof=1) * trials).sum(axis=0)) / len(by_draw)
        bounds = np.zeros(count), np.ones(count)
        return Curve(np.array(self.temperatures), accuracy, error, *bounds)

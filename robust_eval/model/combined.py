"""The probability of a right answer at every temperature, from draws at all of them together.

A path drawn at one temperature says something about every other, for its probability is known at each. Two variance
reductions, neither of which needs another forward pass:

- *Balance heuristic* (Veach & Guibas, SIGGRAPH 1995): a path p drawn from a mixture of temperatures counts at t with
  P_t(p) / mean over s of P_s(p).
- *Next-token sums* (Rao-Blackwell): at every prefix visited, the probability that the next token ends the answer
  rightly, or settles it, is summed over the vocabulary instead of awaiting a draw.

Of a right answer, only the token counts that first settles it; what is drawn after it does not.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from robust_eval.model.base import Curve, Matcher
from robust_eval.model.generation import Generation
from robust_eval.model.kinds import next_kinds
from robust_eval.model.tempered import tempered_logprobs, tempered_masses
from robust_eval.model.token_texts import Ids
from robust_eval.model.vocabulary import Vocabulary


class CombinedEstimate:
    """Gathers what the draws to one prompt, k at each of T temperatures, say about every temperature."""

    def __init__(self, matcher: Matcher, temperatures: Sequence[float], trials: int, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._temperatures = temperatures
        self._trials = trials
        self._vocabulary = vocabulary
        self._logprobs = np.zeros((1, len(temperatures)))
        self._settled = np.zeros(1, dtype=bool)
        self._log_total = np.empty((1, len(temperatures)))
        self._by_draw = np.zeros((len(temperatures) * trials, len(temperatures)))

    def visit(
        self, logits: Tensor, texts: Sequence[bytes], draws: Ids, rows: Ids, generation: Generation, last: bool
    ) -> list[Ids]:
        """Count what ends rightly after each prefix of a level.

        ``logits`` (n, V) and ``texts`` (n) belong to the prefixes; ``draws`` (a,) are the draws still alive, of all
        T × k in the order of temperatures, and ``rows`` (a,) the prefix at which each is. Returns for each prefix the
        tokens after which the answer is right whatever follows.
        """
        kinds = [next_kinds(self._matcher, self._vocabulary, text, last) for text in texts]
        none = np.empty(0, dtype=np.intp)
        counted = [none if settled else kind.right for kind, settled in zip(kinds, self._settled, strict=True)]
        masses = tempered_masses(logits, self._temperatures, [(ids,) for ids in counted], generation)
        self._log_total = masses.log_total
        self._right = counted
        mixture = np.exp(self._logprobs).mean(axis=1, keepdims=True)
        ratio = np.divide(np.exp(self._logprobs), mixture, out=np.zeros_like(self._logprobs), where=mixture > 0)
        self._by_draw[draws] += (ratio * masses.shares[:, 0])[rows]
        return [kind.closed for kind in kinds]

    def descend(self, logits: Tensor, rows: Ids, tokens: Ids, generation: Generation) -> None:
        """Go on to the prefixes of the next level: ``tokens`` (m,) after the rows (m,) of this one."""
        step = tempered_logprobs(logits, rows, tokens, self._log_total, self._temperatures, generation)
        self._logprobs = self._logprobs[rows] + step
        right = [token in self._right[row] for row, token in zip(rows, tokens, strict=True)]
        self._settled = self._settled[rows] | np.array(right, dtype=bool)

    def curve(self) -> Curve:
        """The estimate at each temperature; its standard error is that of draws in strata, one for each temperature."""
        strata = self._by_draw.reshape(len(self._temperatures), self._trials, -1)
        error = np.full(len(self._temperatures), np.nan)
        if self._trials > 1:
            error = np.sqrt((strata.var(axis=1, ddof=1) * self._trials).sum(axis=0)) / len(self._by_draw)
        bounds = np.zeros(len(self._temperatures)), np.ones(len(self._temperatures))
        return Curve(np.array(self._temperatures), self._by_draw.mean(axis=0), error, *bounds)

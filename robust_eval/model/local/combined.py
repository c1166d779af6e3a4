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
import torch
from torch import Tensor

from robust_eval.model.base import COMMON, INDEPENDENT, Curve, Floats, Matcher
from robust_eval.model.generation import Generation
from robust_eval.model.local.tempered import tempered_logprobs, tempered_masses
from robust_eval.model.local.token_outcomes import next_kinds
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import Ids, Mask


class CombinedEstimate:
    """Gathers what the draws to one prompt, k at each of T temperatures, say about every temperature."""

    def __init__(
        self,
        matcher: Matcher,
        temperatures: Sequence[float],
        trials: int,
        vocabulary: Vocabulary,
        coupling: str = INDEPENDENT,
    ) -> None:
        self._matcher = matcher
        self._temperatures = temperatures
        self._trials = trials
        self._vocabulary = vocabulary
        self._coupling = coupling
        self._by_draw = np.zeros((len(temperatures) * trials, len(temperatures)))
        self._logprobs = np.zeros((1, len(temperatures)))  # of the level's prefixes
        self._settled = np.zeros(1, dtype=bool)
        self._begins = self._ends = 0  # which of them were visited last
        self._following: list[tuple[Floats, Mask]] = []

    def visit(
        self, logits: Tensor, texts: Sequence[bytes], draws: Ids, rows: Ids, generation: Generation, last: bool
    ) -> list[Ids]:
        """Count what ends rightly after the next n prefixes of the level.

        ``logits`` (n, V) and ``texts`` (n) are theirs; ``draws`` (a,) are the draws that reach them, of all T × k in
        the order of temperatures, and ``rows`` (a,) the prefix at which each is. Returns for each prefix the tokens
        after which the answer is right whatever follows.
        """
        self._begins, self._ends = self._ends, self._ends + len(texts)
        logprobs, settled = self._logprobs[self._begins : self._ends], self._settled[self._begins : self._ends]
        kinds = [next_kinds(self._matcher, self._vocabulary, text, last) for text in texts]
        none = np.empty(0, dtype=np.intp)
        self._right = [none if known else kind.right for kind, known in zip(kinds, settled, strict=True)]
        # After the last token and where the answer is settled, only what ends rightly here is wanted.
        wanted = np.flatnonzero(
            [len(ids) > 0 if last else not known for ids, known in zip(self._right, settled, strict=True)]
        )
        sets = [(self._right[row],) for row in wanted]
        masses = tempered_masses(
            logits[torch.from_numpy(wanted).to(logits.device)], self._temperatures, sets, generation
        )
        self._log_total = np.zeros_like(logprobs)
        self._log_total[wanted] = masses.log_total
        share = np.zeros_like(logprobs)
        share[wanted] = masses.shares.sum(axis=1)
        mixture = np.exp(logprobs).mean(axis=1, keepdims=True)
        ratio = np.divide(np.exp(logprobs), mixture, out=np.zeros_like(logprobs), where=mixture > 0)
        self._by_draw[draws] += (ratio * share)[rows]
        return [kind.closed for kind in kinds]

    def descend(self, logits: Tensor, rows: Ids, tokens: Ids, generation: Generation) -> None:
        """Add prefixes of the next level: ``tokens`` (m,) after the rows (m,) of those that were visited last."""
        step = tempered_logprobs(logits, rows, tokens, self._log_total, self._temperatures, generation)
        right = [token in self._right[row] for row, token in zip(rows, tokens, strict=True)]
        settled = self._settled[self._begins + rows] | np.array(right, dtype=bool)
        self._following.append((self._logprobs[self._begins + rows] + step, settled))

    def go_on(self) -> None:
        """Make the next level, whose prefixes are complete, the level."""
        if self._following:
            self._logprobs, self._settled = (np.concatenate(part) for part in zip(*self._following, strict=True))
        self._begins = self._ends = 0
        self._following = []

    def curve(self) -> Curve:
        """Return the estimate at each temperature.

        Its standard error is that of draws in strata, one for each temperature; where the draws of a trial share their
        random numbers, that of whole trials.
        """
        strata = self._by_draw.reshape(len(self._temperatures), self._trials, -1)
        error = np.full(len(self._temperatures), np.nan)
        if self._trials > 1 and self._coupling == COMMON:
            error = strata.mean(axis=0).std(axis=0, ddof=1) / np.sqrt(self._trials)
        elif self._trials > 1:
            error = np.sqrt((strata.var(axis=1, ddof=1) * self._trials).sum(axis=0)) / len(self._by_draw)
        bounds = np.zeros(len(self._temperatures)), np.ones(len(self._temperatures))
        return Curve(np.array(self._temperatures), self._by_draw.mean(axis=0), error, *bounds)

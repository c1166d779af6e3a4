"""How much of a model's vocabulary a server shows at each place."""

from collections.abc import Sequence
from dataclasses import dataclass

from robust_eval.model.served.seen_tokens import SeenToken, unnamed
from robust_eval.model.tail_bounds import MOST_TOKENS, TokenBounds, precision, token_bounds


@dataclass(frozen=True)
class SeenVocabulary:
    """The ``shown`` likeliest tokens, which may be all that there are (``whole``); fewer where several that write the
    same were named as one.
    """

    shown: int
    whole: bool = False

    @property
    def most(self) -> int:
        """How many tokens the model has at most."""
        return self.shown if self.whole else MOST_TOKENS

    def bounds(self, tokens: Sequence[SeenToken], temperatures: Sequence[float]) -> TokenBounds:
        """Return what the tokens of one place weigh at each temperature, at least and at most, and all others."""
        logprobs = [token.logprob for token in tokens]
        largest = len(tokens) >= self.shown and not any(map(unnamed, tokens))
        return token_bounds(logprobs, temperatures, self.most, precision(logprobs), largest)

"""The sizes of a transformer, and what follows from them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer: ``groups`` of ``heads`` share keys and values, each of ``size``."""

    layers: int
    hidden: int
    heads: int
    groups: int
    size: int
    inner: int
    vocabulary: int
    item: int = 2
    """Bytes of a weight."""

    @property
    def weights(self) -> int:
        """The weights of all layers."""
        attention = self.hidden * self.size * 2 * (self.heads + self.groups)
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def head(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def cached(self) -> int:
        """Bytes of the keys and values of a token."""
        return 2 * self.layers * self.groups * self.size * self.item

    def flop(self, tokens: float, rows: float, attended: float) -> float:
        """FLOP of ``tokens`` through the layers and ``rows`` through the head; pairs of tokens that attend."""
        return 2 * self.weights * tokens + 2 * self.head * rows + 4 * self.layers * self.heads * self.size * attended

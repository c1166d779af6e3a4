"""Cost of the tokens that a service counts, and the budget of a run."""

from dataclasses import dataclass, field

MILLION = 1_000_000


@dataclass
class Spending:
    """Tokens used, cost reserved for requests under way, prices and the budget.

    ``prompt_price``, ``completion_price`` and ``cached_price`` (of prompt tokens that the service had in its cache) are
    for a million tokens, in the currency of ``budget``. A price of None is unknown, but that of cached tokens is then
    the one of prompt tokens; a budget of None is no limit. ``share`` of the prices is paid: batches cost less.

    Raises
    ------
    ValueError
        A price or the budget is negative, or there is a budget without prices.
    """

    prompt_price: float | None
    completion_price: float | None
    budget: float | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_price: float | None = None
    cached_tokens: int = 0
    """Number of prompt tokens from the cache of the service."""
    share: float = 1.0
    reserved: list[float] = field(default_factory=list)
    """Maximum cost of each request in flight."""

    def __post_init__(self) -> None:
        for name in ("prompt_price", "completion_price", "cached_price", "budget"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be 0 or more, not {value:g}")
        if self.budget is not None and not self.has_prices:
            raise ValueError("budget needs prices to count with: prompt_price and completion_price")

    @property
    def has_prices(self) -> bool:
        """Whether both prices are known."""
        return self.prompt_price is not None and self.completion_price is not None

    @property
    def spent(self) -> float:
        """The cost of the tokens used; 0 without prices."""
        return self.price(self.prompt_tokens, self.completion_tokens, self.cached_tokens)

    def price(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0) -> float:
        """Return the cost of these tokens; 0 unless both prices are known. ``cached_tokens`` are prompt tokens.

        >>> Spending(0.15, 0.6, None).price(2_000_000, 500_000)
        0.6
        >>> Spending(0.15, 0.6, None, cached_price=0.075, share=0.5).price(2_000_000, 500_000, 1_000_000)
        0.2625
        """
        if self.prompt_price is None or self.completion_price is None:
            return 0.0
        saved = 0.0 if self.cached_price is None else cached_tokens * (self.prompt_price - self.cached_price)
        whole = prompt_tokens * self.prompt_price - saved + completion_tokens * self.completion_price
        return self.share * whole / MILLION

    def allows(self, price: float) -> bool:
        """Return whether the budget covers the cost so far, the cost reserved and this price."""
        return self.budget is None or self.spent + sum(self.reserved) + price <= self.budget

    def use(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> None:
        """Count tokens that a service counted."""
        self.cached_tokens += min(cached_tokens, prompt_tokens)
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

"""Generation settings: truncation of the model's distribution for sampling; by default none."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from robust_eval.runtime.text import enumerated

if TYPE_CHECKING:  # these are settings too, and reading settings need not wait for torch
    from torch import Tensor

PRESETS = ("full", "repository", "library_defaults")


@dataclass
class Generation:
    """Generation settings: truncation at the sampling temperature, in the order temperature → top_k → top_p → min_p.

    Everything is off by default: a library's silent top_k = 50 cuts the tail that high temperatures probe
    (docs/methods.md, §1).
    """

    preset: str = "full"
    """full: only the settings below. repository: the model's generation_config overrides them. library_defaults: the
    same, with top_k = 50 if the repository sets none."""
    top_k: int = 0
    """Keep only the k most probable tokens; 0: all."""
    top_p: float = 1.0
    """Keep only the most probable tokens that together reach this probability; 1: all."""
    min_p: float = 0.0
    """Keep only tokens at least this fraction as probable as the most probable one; 0: all."""
    repetition_penalty: float = 1.0
    """Divide positive and multiply negative logits of earlier tokens by this number (Keskar et al. 2019); 1: off."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be {enumerated(PRESETS)}, not {self.preset}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or more, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be between 0 and 1, not {self.min_p}")
        if not self.repetition_penalty > 0:
            raise ValueError(f"repetition_penalty must be above 0, not {self.repetition_penalty}")

    def effective(self, repository: Any) -> "Generation":
        """Return the effective generation settings for a model with the generation_config ``repository``; ValueError
        for one with invalid values.
        """
        if self.preset == "full":
            return self
        defaults = {name: getattr(repository, name, None) for name in ("top_k", "top_p", "min_p", "repetition_penalty")}
        if self.preset == "library_defaults" and defaults["top_k"] is None:
            defaults["top_k"] = 50
        numbers = {name: value for name, value in defaults.items() if value is not None}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or (name == "top_k" and value % 1):
                raise ValueError(f"{name} must be a {'whole ' * (name == 'top_k')}number, not {value!r}")
        if "top_k" in numbers:
            numbers["top_k"] = int(numbers["top_k"])
        return replace(self, **numbers)

    @property
    def truncates(self) -> bool:
        """True if the generation settings may truncate the distribution."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def changes_distribution(self) -> bool:
        """True if any generation setting may change the model's distribution."""
        return self.preset != "full" or self.truncates or self.repetition_penalty != 1

    def truncated(self, scaled: "Tensor") -> "Tensor":
        """Return logits divided by the temperature, (n, V), with those that top_k, top_p or min_p cuts set to −inf."""
        if 0 < self.top_k < scaled.shape[-1]:
            cutoff = scaled.topk(self.top_k, dim=-1).values[:, -1:]
            scaled = scaled.masked_fill(scaled < cutoff, -math.inf)
        if self.top_p < 1:
            ordered, index = scaled.sort(dim=-1, descending=True)
            p = ordered.double().softmax(dim=-1)
            cut = p.cumsum(dim=-1) - p >= self.top_p  # what lies before a token already reaches top_p
            scaled = scaled.masked_fill(cut.new_zeros(cut.shape).scatter(-1, index, cut), -math.inf)
        if self.min_p > 0:
            cutoff = scaled.amax(dim=-1, keepdim=True) + math.log(self.min_p)
            scaled = scaled.masked_fill(scaled < cutoff, -math.inf)
        return scaled

    def penalized(self, logits: "Tensor", occurred: list[list[int]]) -> "Tensor":
        """Return logits (n, V) after the repetition penalty on the token ids that occurred before each row."""
        if self.repetition_penalty == 1.0:
            return logits
        logits = logits.clone()
        for row, ids in zip(logits, occurred, strict=True):
            tokens = sorted(set(ids))
            values = row[tokens]
            row[tokens] = (values / self.repetition_penalty).where(values > 0, values * self.repetition_penalty)
        return logits

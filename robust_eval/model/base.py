"""What a sampler asks of a language model, and what it gets back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from robust_eval.prompt.prompt import Prompt


@dataclass(frozen=True)
class Request:
    """All answers that are wanted to one prompt.

    Temperature 0 is greedy decoding. Every (seed, question, rewrite, temperature, trial) has a stream of random
    numbers of its own, so the same answers come whatever is asked beside them.
    """

    question_id: str
    rewrite: int
    prompt: Prompt
    temperatures: tuple[float, ...]
    trials: int
    max_new_tokens: int
    seed: int
    top_logprobs: int = 0
    """How many of the largest log-probabilities of each position are wanted; 0 for none."""

    @property
    def answers(self) -> int:
        return len(self.temperatures) * self.trials


@dataclass(frozen=True)
class Completion:
    """One answer. Log-probabilities are natural; ``top_logprobs`` is (tokens, k), largest first, at temperature 1.

    ``token_ids`` holds all generated tokens, also the one that ends the answer; ``answer_tokens`` counts the leading
    ones that carry answer text.
    """

    temperature: float
    trial: int
    text: str
    token_ids: list[int]
    token_logprobs: list[float]
    sampling_logprobs: list[float]
    top_logprobs: list[list[float]] | None
    answer_tokens: int
    finish_reason: str
    prompt_tokens: int


class LanguageModel(Protocol):
    """A model that is loaded and ready."""

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, list[Completion]]]:
        """Answer every request, in an order of the model's choice; answers come as soon as a block of them is done."""

    def description(self) -> dict[str, Any]:
        """What was loaded and the generation settings in effect, flat, for the record of the run."""


class ModelConfig(Protocol):
    """Settings from which a model is loaded; a dataclass whose fields are its configuration."""

    name: str

    def load(self) -> LanguageModel:
        """Load the model; UserError if that is not possible."""

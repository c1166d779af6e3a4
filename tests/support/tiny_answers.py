"""Answers of tiny models, and the probability of each by the definition."""

from functools import cache

import numpy as np
import torch
from architectures import tiny

from robust_eval.model.generation import Generation
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import TokenTexts

PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 11, 3]]
ENDS = (2, 13)


def read_texts() -> TokenTexts:
    raise AssertionError("nothing here depends on what tokens write")


def vocabulary(size: int) -> Vocabulary:
    ends = np.zeros(size, dtype=bool)
    ends[list(ENDS)] = True
    return Vocabulary(ends, ~ends, read_texts)


def plain_logits(model: torch.nn.Module, sequence: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0, -1].double()


@cache
def tiny_logits(architecture: str, sequence: tuple[int, ...]) -> torch.Tensor:
    """What a tiny model makes of a sequence, which is asked for at every temperature and with every cut."""
    return plain_logits(kept_tiny(architecture), list(sequence))


kept_tiny = cache(tiny)


def enumerated(architecture: str, prompt: list[int], temperature: float, depth: int, cut: Generation) -> dict:
    """Probability of every answer, by the definition: the product of softmax(logits / t) along its tokens."""
    leaves = {}
    stack = [((), 1.0)]
    while stack:
        prefix, probability = stack.pop()
        if len(prefix) == depth or (prefix and prefix[-1] in ENDS):
            leaves[prefix] = probability
            continue
        scaled = tiny_logits(architecture, (*prompt, *prefix)) / temperature
        p = cut.truncated(scaled[None])[0].softmax(-1)
        stack += [((*prefix, token), probability * share) for token, share in enumerate(p.tolist()) if share > 0]
    return leaves

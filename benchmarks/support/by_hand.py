"""The library driven by hand, as a careful engineer would who has no answer tree."""

import copy
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from robust_eval.model.base import Request


@torch.inference_mode()
def by_hand(model: Any, tokenizer: Any, ends: Tensor, requests: Sequence[Request]) -> list[list[str]]:
    """The texts of the answers to each request, temperature-major.

    What all prompts begin with is evaluated once, the rest of each prompt once; then every answer to a question, at
    every temperature, is a row of one batch.
    """
    prompts = [tokenizer(request.prompt.text()).input_ids for request in requests]
    columns = zip(*[prompt[:-1] for prompt in prompts], strict=False)
    shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    beginning = DynamicCache(config=model.config)
    model.base_model(input_ids=torch.tensor([shared]), past_key_values=beginning, use_cache=True)
    texts = []
    for request, prompt in zip(requests, prompts, strict=True):
        tokens = answer_tokens(model, ends, request, prompt[len(shared) :], copy.deepcopy(beginning))
        tokens[tokens < 0] = tokenizer.pad_token_id
        decoded = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        texts.append([text.split("\n", 1)[0].strip() for text in decoded])
    return texts


def answer_tokens(model: Any, ends: Tensor, request: Request, own: list[int], cache: DynamicCache) -> Tensor:
    """Token ids (answers, new tokens) after a prompt, −1 behind an answer's end; ``own`` is what the cache lacks."""
    logits = last_logits(model, torch.tensor([own]), cache)
    levels = torch.tensor(request.temperatures)
    temperature = levels.repeat_interleave(request.trials)
    tokens = torch.full((request.max_answers, request.max_new_tokens), -1)
    rows = torch.arange(request.max_answers)
    drawn = (logits / levels[:, None]).softmax(dim=-1).multinomial(request.trials, replacement=True).flatten()
    tokens[:, 0] = drawn
    cache.batch_repeat_interleave(request.max_answers)
    for step in range(1, request.max_new_tokens):
        goes_on = ~ends[drawn]
        if not goes_on.all():
            rows, drawn = rows[goes_on], drawn[goes_on]
            cache.batch_select_indices(goes_on)
        if len(rows) == 0:
            break
        logits = last_logits(model, drawn[:, None], cache)
        probabilities = (logits / temperature[rows, None]).softmax(dim=-1)
        # For a single draw torch.multinomial takes a random number for every token of the vocabulary; for two it
        # inverts the cumulative distribution, which is some 25 times as fast: draw two and keep the first.
        drawn = probabilities.multinomial(2, replacement=True)[:, 0]
        tokens[rows, step] = drawn
    return tokens


def last_logits(model: Any, tokens: Tensor, cache: DynamicCache) -> Tensor:
    """Logits (rows, V) after some more tokens (rows, n)."""
    output = model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
    logits: Tensor = output.logits[:, -1].float()
    return logits

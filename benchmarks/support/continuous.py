"""transformers' continuous batching: answers to many prompts, at many temperatures, in a batch that refills itself."""

from collections.abc import Sequence
from typing import Any

import torch
from support.counted_model import CountedModel
from transformers import ContinuousBatchingConfig, GenerationConfig

from robust_eval.model.base import Request

PAGE = 16
"""Tokens of a page of its cache: a prompt's whole pages are shared. The built-in questions have about 55 tokens."""

OWN_PAGES = 2
"""Pages that an answer may have for itself: the end of the prompt and its own tokens."""


def continuous(model: CountedModel, size: int, requests: Sequence[Request]) -> list[list[str]]:
    """The texts of the answers to each request, temperature-major; so many questions at once."""
    return [
        texts for start in range(0, len(requests), size) for texts in together(model, requests[start : start + size])
    ]


@torch.no_grad()
def together(model: CountedModel, requests: Sequence[Request]) -> list[list[str]]:
    """As :func:`continuous`, of questions whose answers at all temperatures are in one batch.

    It is what ``generate_batch`` does, with a temperature for each prompt.
    """
    first = requests[0]
    prompts = [model.tokenizer(request.prompt.text()).input_ids for request in requests]
    drawing = GenerationConfig(
        do_sample=True,
        temperature=2.0,  # any but 1, at which none could be named for a prompt
        top_k=0,
        top_p=1.0,
        num_return_sequences=first.trials,
        max_new_tokens=first.max_new_tokens,
        eos_token_id=torch.nonzero(model.ends).flatten().tolist(),
        pad_token_id=model.tokenizer.pad_token_id,
    )
    answers = len(requests) * len(first.temperatures) * first.trials
    longest = max(map(len, prompts)) + first.max_new_tokens
    settings = ContinuousBatchingConfig(
        page_size=PAGE,
        num_blocks=OWN_PAGES * answers + len(requests) * len(first.temperatures) * -(-longest // PAGE),
        max_batch_tokens=max(answers, longest) + longest,
        per_request_processors=True,
    )
    came: dict[str, Any] = {}
    session = model.network.continuous_batching_context_manager(
        drawing, continuous_batching_config=settings, warmup=False
    )
    with session as manager:
        asked = [
            [manager.add_request(prompt, temperature=temperature) for temperature in first.temperatures]
            for prompt in prompts
        ]
        while len(came) < answers:
            output = manager.get_result(timeout=60)
            if output is None or output.error is not None:
                raise RuntimeError(f"continuous batching ended early: {output and output.error}")
            if output.is_finished():
                came[output.request_id] = output.generated_tokens
    return [
        [
            model.tokenizer.decode(came[name], skip_special_tokens=True).split("\n", 1)[0].strip()
            for request_id in names
            for name in (request_id, *(f"{request_id}__child#{child}" for child in range(first.trials - 1)))
        ]
        for names in asked
    ]

"""Ways of drawing the answers of a temperature sweep: the answer tree, and what there is beside it."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from support.by_hand import by_hand
from support.counted_model import GRADER, CountedModel, answered
from support.llama_server import LlamaServer

from robust_eval.model.base import Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact

Texts = list[list[str]]
"""The answers to each request, temperature-major."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Search:
    """What is tried to find the best settings of each way: numbers of questions at once, and of slots."""

    generate_sizes: tuple[int, ...] = (1, 4, 16)
    server_slots: tuple[int, ...] = (10, 20, 50, 100)
    server_trials: int = 40
    """Trials at each temperature with which the number of slots is chosen: 4 questions for k = 10, one for k = 100."""
    rounds: int = 2

    def fastest(self, settings: Sequence[int], seconds: Callable[[int], float]) -> int:
        """The setting with the shortest of its times; they take turns."""
        rounds = [{setting: seconds(setting) for setting in settings} for _ in range(self.rounds)]
        return min(settings, key=lambda setting: min(times[setting] for times in rounds))


@dataclass(frozen=True)
class Way:
    """One way of answering requests: ``answer`` gives texts, or the probability (requests, temperatures) of right ones.

    ``work`` counts at least the "tokens" that went through its model so far. Both need the context of ``ready``.
    """

    label: str
    answer: Callable[[Sequence[Request]], Texts | NDArray[np.float64]]
    work: Callable[[], Counter[str]]
    ready: Callable[[], AbstractContextManager[None]] = nullcontext


def other_ways(
    search: Search, gguf: Path, model: CountedModel, skipped: Sequence[str], requests: Sequence[Request]
) -> dict[str, Way]:
    """What there is beside the tree, each with its best settings for such requests."""
    makers: dict[str, Callable[[], Way]] = {
        "generate": lambda: best_generate(search, model, requests),
        "by_hand": lambda: hand(model),
        "server": lambda: best_server(search, gguf, requests[: max(1, search.server_trials // requests[0].trials)]),
    }
    return {key: make() for key, make in makers.items() if key not in skipped}


def best_generate(search: Search, model: CountedModel, block: Sequence[Request]) -> Way:
    """The library's generate with the number of questions at once that is fastest at one temperature."""
    sizes = sorted({min(size, len(block)) for size in search.generate_sizes})
    trial = [replace(request, temperatures=(1.0,)) for request in block]
    generate(model, 1, trial[:1])
    best = search.fastest(sizes, lambda size: timed(partial(generate, model, size, trial))[0])
    return Way(f"generate, batch size {best}", partial(generate, model, best), model.work)


@torch.inference_mode()
def generate(
    model: CountedModel, size: int, requests: Sequence[Request], cache_implementation: str | None = None
) -> Texts:
    """One call of the library for each temperature and batch of questions."""
    ends = torch.nonzero(model.ends).flatten().tolist()
    texts: dict[str, list[str]] = defaultdict(list)
    for start in range(0, len(requests), size):
        block = requests[start : start + size]
        prompts = [request.prompt.text() for request in block]
        inputs = model.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        inputs = inputs.to(model.network.device)
        for temperature in block[0].temperatures:
            sequences = model.network.generate(
                **inputs,
                do_sample=True,
                temperature=temperature,
                top_k=0,
                top_p=1.0,
                num_return_sequences=block[0].trials,
                max_new_tokens=block[0].max_new_tokens,
                eos_token_id=ends,
                pad_token_id=model.tokenizer.pad_token_id,
                cache_implementation=cache_implementation,
            )
            new = sequences[:, inputs.input_ids.shape[1] :]
            decoded = iter(model.tokenizer.batch_decode(new, skip_special_tokens=True))
            for request in block:
                texts[request.question_id] += [next(decoded).split("\n", 1)[0] for _ in range(request.trials)]
    return [texts[request.question_id] for request in requests]


def hand(model: CountedModel) -> Way:
    loop = partial(by_hand, model.network, model.tokenizer, model.ends)
    return Way("hand-written loop, one row per answer", loop, model.work)


def best_server(search: Search, gguf: Path, requests: Sequence[Request]) -> Way:
    """llama.cpp's server of the file that the model was converted from, with the fastest number of slots."""
    start = partial(LlamaServer, gguf, threads=torch.get_num_threads())

    def seconds(slots: int) -> float:
        server = start(slots)
        with server.running():
            server.complete(requests[:1])
            return timed(partial(server.complete, requests))[0]

    server = start(search.fastest(search.server_slots, seconds))
    return Way(f"llama.cpp, {server.slots} slots", server.complete, server.work, server.running)


def tree(model: CountedModel, requests: Sequence[Request], trials: int | None = None) -> Texts:
    """The answer tree, as the program calls it; it also gives the log-probabilities, which no other way does."""
    asked = [replace(request, trials=trials or request.trials) for request in requests]
    answers = {
        reply.request.question_id: [completion.text for completion in reply.completions]
        for reply in answered(model.loaded, asked)
    }
    return [answers[request.question_id] for request in requests]


def exact(
    model: CountedModel, questions: Sequence[Question], nodes: int, requests: Sequence[Request]
) -> NDArray[np.float64]:
    """The enumeration, as sampler=exact asks for it: probabilities of right answers in place of texts."""
    names = {request.question_id for request in requests}
    chosen = [question for question in questions if question.id in names]
    asked = Exact(nodes=nodes).requests(chosen, GRADER, 0)
    replies = {reply.request.question_id: reply for reply in answered(model.loaded, asked)}
    curves = [replies[request.question_id].curve for request in requests]
    at = [list(curve.temperatures).index(t) for curve in curves[:1] for t in requests[0].temperatures]
    return np.stack([curve.accuracy[at] for curve in curves])


def variants(
    search: Search,
    settings: Transformers,
    tree_model: CountedModel,
    plain_model: CountedModel,
    block: Sequence[Request],
) -> dict[str, Way]:
    """What the parts of the tree bring by themselves, and what the other ways gain from its linear layers."""
    half = CountedModel(replace(settings, dtype="bfloat16"))
    generate_same, hand_same = best_generate(search, tree_model, block), hand(tree_model)
    return {
        "tree_rows": Way("tree, a row per prefix", partial(tree_in_rows, tree_model), tree_model.work),
        "tree_torch_linear": Way("tree, torch's linear", partial(tree, plain_model), plain_model.work),
        "tree_bfloat16": Way("tree, bfloat16", partial(tree, half), half.work),
        "generate_same_linear": replace(generate_same, label=f"{generate_same.label}, tree's linear"),
        "by_hand_same_linear": replace(hand_same, label="by hand, tree's linear"),
    }


def tree_in_rows(model: CountedModel, requests: Sequence[Request]) -> Texts:
    """The tree as for a model whose attention cannot be replaced."""
    with patch.object(model.loaded, "_can_pack", return_value=False):
        return tree(model, requests)


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result

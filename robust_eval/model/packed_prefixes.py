"""Prefixes of many questions packed in one row, with tree attention: each token of an answer attends to its own
question's prompt and to its ancestors, and the prompt's keys and values are not copied for any answer.

The linear layers, where the time goes, then see one dense row without padding. Two kinds of keys are attended
together under one softmax: those of the prompts, which all prefixes of a question share, by matrix products, and the
few ancestors of each prefix, gathered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from robust_eval.model.prefix_rows import SharedPrompt

ATTENTION = "answer_tree"


@dataclass
class Level:
    """Where the n packed tokens of one forward pass belong.

    ``place`` (n,) is each token's place in a (questions × width) rectangle, ``ancestors`` (n, depth) the positions of
    its ancestors and itself in ``keys`` and ``values``, which hold all answer tokens of the block so far, by layer.
    ``prompt`` holds the prompts' keys and values by layer, ``padding`` (n, longest prompt) is true at those that do not
    belong to a token's own prompt; None where all prompts are equally long.
    """

    questions: int
    width: int
    place: Tensor
    ancestors: Tensor
    prompt: list[tuple[Tensor, Tensor]]
    padding: Tensor | None
    keys: dict[int, Tensor]
    values: dict[int, Tensor]


class PackedPrefixes:
    """The prompts but for their last tokens in a rectangle, padded on the right, where causal attention does not see
    it; then those last tokens, and after them all prefixes of each level of the answers, in one packed row.

    For models whose every layer attends to the whole sequence: see :func:`agrees_with_plain_passes`.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self._model = model
        self._shared = SharedPrompt(model, shared)

    @torch.inference_mode()
    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Logits (prompts, V) after whole prompts, which begin with the shared tokens and have at least one more."""
        device = self._model.device
        cache = self._shared.repeated(len(prompts))
        own = [list(prompt)[self._shared.length : -1] for prompt in prompts]
        width = max(map(len, own))
        if width:
            padded = torch.tensor([[*tokens, *[0] * (width - len(tokens))] for tokens in own], device=device)
            self._model.base_model(input_ids=padded, past_key_values=cache, use_cache=True)
        self._prompt = [(layer.keys, layer.values) for layer in cache.layers]
        self._lengths = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
        self._padded = len(set(map(len, own))) > 1
        self._question = torch.arange(len(prompts), device=device)
        self._ancestors = torch.empty((len(prompts), 0), dtype=torch.long, device=device)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._stored = 0
        return self.children(self._question, torch.tensor([prompt[-1] for prompt in prompts], device=device))

    @torch.inference_mode()
    def children(self, parents: Tensor, tokens: Tensor) -> Tensor:
        """Logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits, and
        ``tokens`` continues them.
        """
        count = len(tokens)
        self._question = self._question[parents]
        position = self._lengths[self._question] + self._ancestors.shape[1]
        own = torch.arange(self._stored, self._stored + count, device=tokens.device)
        self._ancestors = torch.cat([self._ancestors[parents], own[:, None]], dim=1)
        self._stored += count
        sizes = torch.bincount(self._question, minlength=len(self._lengths))
        first = sizes.cumsum(0) - sizes
        width = int(sizes.max())
        level = Level(
            questions=len(self._lengths),
            width=width,
            place=self._question * width + torch.arange(count, device=tokens.device) - first[self._question],
            ancestors=self._ancestors,
            prompt=self._prompt,
            padding=self._padding() if self._padded else None,
            keys=self._keys,
            values=self._values,
        )
        before = self._model.config._attn_implementation
        self._model.set_attn_implementation(ATTENTION)
        try:
            output = self._model(input_ids=tokens[None], position_ids=position[None], use_cache=False, tree=level)
        finally:
            self._model.set_attn_implementation(before)
        logits: Tensor = output.logits[0]
        return logits.float()

    def _padding(self) -> Tensor:
        places = torch.arange(int(self._lengths.max()), device=self._lengths.device)
        return places >= self._lengths[self._question][:, None]


@torch.inference_mode()
def agrees_with_plain_passes(model: Any, shared: Sequence[int], prompts: Sequence[Sequence[int]]) -> bool:
    """Whether packed prefixes give this model's own logits, on a small tree over these prompts.

    What a model's library says it supports is not to be trusted: sliding windows, recurrent layers and attention with
    extra terms can differ in silence. Compared are the logits two tokens deep with passes over the whole sequences,
    without a cache. Give the longest prompts, which exceed a sliding window first, of different lengths.
    """
    prompts = [list(prompt) for prompt in prompts[:2]]
    device = model.device
    parents = torch.tensor([0, 0, len(prompts) - 1], device=device)
    try:
        packed = PackedPrefixes(model, shared)
        first = packed.roots(prompts)[parents].topk(3, dim=-1).indices[torch.arange(3), torch.arange(3)]
        second = packed.children(parents, first).argmin(dim=-1)  # any token will do; an unlikely one tests as well
        found = packed.children(torch.arange(3, device=device), second)
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    tails = torch.stack([first, second], dim=1).tolist()
    plain = []
    for parent, tail in zip(parents.tolist(), tails, strict=True):
        sequence = torch.tensor([[*prompts[parent], *tail]], device=device)
        plain.append(model(input_ids=sequence, use_cache=False, logits_to_keep=1).logits[0, -1].float())
    expected = torch.stack(plain)
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
    error = (found - expected).square().mean().sqrt()
    return bool(error <= tolerance * expected.std())


def tree_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree: Level,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of n tokens: query (1, heads, n, size), key and value (1, groups, n, size) → (1, n, heads, size)."""
    layer = module.layer_idx
    heads, n, size = query.shape[1:]
    groups = key.shape[1]
    scale = size**-0.5 if scaling is None else scaling
    new_keys, new_values = key[0].transpose(0, 1), value[0].transpose(0, 1)
    tree.keys[layer] = torch.cat([tree.keys[layer], new_keys]) if layer in tree.keys else new_keys
    tree.values[layer] = torch.cat([tree.values[layer], new_values]) if layer in tree.values else new_values
    prompt_keys, prompt_values = tree.prompt[layer]  # (questions, groups, length, size)

    q = query[0].view(groups, heads // groups, n, size) * scale
    rectangle = q.new_zeros((groups, heads // groups, tree.questions * tree.width, size)).index_copy_(2, tree.place, q)
    by_question = _by_question(rectangle, tree.questions)
    prompt_scores = _packed(by_question @ prompt_keys.transpose(2, 3), tree)  # (groups, heads/groups, n, length)

    if tree.padding is not None:
        prompt_scores = prompt_scores.masked_fill(tree.padding, -torch.inf)

    own_keys = tree.keys[layer][tree.ancestors].permute(2, 0, 1, 3)  # (groups, n, depth, size)
    own_values = tree.values[layer][tree.ancestors].permute(2, 0, 1, 3)
    own_scores = (q.unsqueeze(3) * own_keys.unsqueeze(1)).sum(-1)  # (groups, heads/groups, n, depth)

    scores = torch.cat([prompt_scores, own_scores], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    length = prompt_keys.shape[2]
    rectangle = q.new_zeros((groups, heads // groups, tree.questions * tree.width, length))
    rectangle.index_copy_(2, tree.place, weights[..., :length])
    output = _packed(_by_question(rectangle, tree.questions) @ prompt_values, tree)
    output = output + (weights[..., length:].unsqueeze(-1) * own_values.unsqueeze(1)).sum(3)
    return output.reshape(heads, n, -1).transpose(0, 1)[None], None


def _by_question(rectangle: Tensor, questions: int) -> Tensor:
    """(groups, heads/groups, questions × width, x) → (questions, groups, heads/groups × width, x)."""
    groups, heads, places, size = rectangle.shape
    split = rectangle.view(groups, heads, questions, places // questions, size)
    return split.permute(2, 0, 1, 3, 4).reshape(questions, groups, -1, size)


def _packed(batch: Tensor, tree: Level) -> Tensor:
    """(questions, groups, heads/groups × width, x) → (groups, heads/groups, n, x): the inverse, without the gaps."""
    questions, groups, rows, size = batch.shape
    heads = rows // tree.width
    rectangle = batch.view(questions, groups, heads, tree.width, size).permute(1, 2, 0, 3, 4)
    return rectangle.reshape(groups, heads, -1, size).index_select(2, tree.place)


def _no_mask(*_: Any, **__: Any) -> None:
    """Tree attention needs no mask: every key that a token is shown is one that it may attend to."""


AttentionInterface.register(ATTENTION, tree_attention)
AttentionMaskInterface.register(ATTENTION, _no_mask)

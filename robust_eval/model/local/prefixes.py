"""Evaluators of prefixes: a row of a batch each, or many questions packed in one row with tree attention.

In a packed row each token of an answer attends to its own question's prompt and to its ancestors, and no answer copies
the prompt's keys and values. The linear layers, which take most of the time, then process one dense row without
padding. One softmax covers two sets of keys: those of the prompts, shared by all prefixes of a question, by matrix
products, and the few ancestors of each prefix, gathered.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer

from robust_eval.model.local.batching import PromptTree
from robust_eval.model.local.device import to_device
from robust_eval.model.token_texts import Ids


class Logits(Protocol):
    """Logits (n, V) after n prefixes, read in batches of rows, because all of them may exceed the memory."""

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


class Prefixes(Protocol):
    """Evaluator of the prefixes of the answers to a block of prompts, level by level."""

    def roots(self, prompts: Sequence[Sequence[int]]) -> Logits:
        """Return logits (prompts, V) after whole prompts, the roots of all prefixes."""

    def children(self, parents: Ids, tokens: Ids) -> Logits:
        """Return logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits,
        and ``tokens`` continues them.
        """


class OutputHead:
    """Logits (n, V), in float32, of the first n tokens whose hidden states a model's layers have computed.

    The model itself computes everything after the layers: besides the output head, some models scale or cap the logits.
    Meanwhile the finished output replaces the layers.
    """

    def __init__(self, model: Any, layers_output: Any, n: int) -> None:
        self._model = model
        self._output = layers_output
        self._hidden: Tensor = layers_output.last_hidden_state.flatten(0, 1)[:n]

    @property
    def device(self) -> torch.device:
        return self._hidden.device

    def __len__(self) -> int:
        return len(self._hidden)

    @torch.inference_mode()
    def __getitem__(self, rows: slice) -> Tensor:
        part = copy.copy(self._output)
        part.last_hidden_state = self._hidden[None, rows]
        name = self._model.base_model_prefix
        layers = getattr(self._model, name)
        setattr(self._model, name, _PrecomputedLayers(part))
        try:
            logits: Tensor = self._model(use_cache=False).logits[0]
        finally:
            setattr(self._model, name, layers)
        return logits.float()


class _PrecomputedLayers(nn.Module):
    """Replacement of a model's layers that returns their earlier output."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self._output


class SharedPrompt:
    """Common prefix of all prompts, evaluated once."""

    @torch.inference_mode()
    def __init__(self, model: Any, tokens: Sequence[int]) -> None:
        self.length = len(tokens)
        self._device = model.device
        self._cache = DynamicCache(config=model.config)
        if tokens:
            ids = torch.tensor([list(tokens)], device=model.device)
            model.base_model(input_ids=ids, past_key_values=self._cache, use_cache=True)

    def repeated(self, rows: int) -> DynamicCache:
        """Return a key-value cache for ``rows`` rows of prefixes that begin with the shared tokens."""
        if self.length and all(type(layer) is DynamicLayer for layer in self._cache.layers):
            cache = copy.copy(self._cache)
            cache.layers = [copy.copy(layer) for layer in cache.layers]
            for layer in cache.layers:  # views: keys and values are copied where the next ones follow
                layer.keys, layer.values = (states.expand(rows, -1, -1, -1) for states in (layer.keys, layer.values))
            return cache
        cache = copy.deepcopy(self._cache)
        if self.length:
            cache.reorder_cache(torch.zeros(rows, dtype=torch.long, device=self._device))
        return cache


class PrefixRows:
    """Evaluator of prefixes, one row of a batch each, with a key-value cache that is reordered from parent to child.

    All rows of a batch have the same length, without padding or mask. The library's cache is wrong for some recurrent
    architectures: see :func:`cache_agrees_with_plain_passes`.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self._model = model
        self._shared = SharedPrompt(model, shared)

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (prompts, V) after whole prompts of one length that begin with the shared tokens."""
        self._cache = self._shared.repeated(len(prompts))
        suffixes = [list(prompt)[self._shared.length :] for prompt in prompts]
        return self._forward(to_device(np.array(suffixes), self._model.device))

    def children(self, parents: Ids, tokens: Ids) -> Tensor:
        """Return logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits,
        and ``tokens`` continues them.
        """
        self._cache.reorder_cache(to_device(parents, self._model.device))
        return self._forward(to_device(tokens[:, None], self._model.device))

    @torch.inference_mode()
    def _forward(self, tokens: Tensor) -> Tensor:
        output = self._model(input_ids=tokens, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        logits: Tensor = output.logits[:, -1]
        return logits.float()


class WholeSequences:
    """Evaluator of prefixes by plain passes over the whole sequences, without a cache: slow, and right for all."""

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self._model = model

    def roots(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Return logits (prompts, V) after whole prompts of one length."""
        self._sequences = np.array([list(prompt) for prompt in prompts])
        return self._forward()

    def children(self, parents: Ids, tokens: Ids) -> Tensor:
        """Return logits (m, V) after m prefixes; see :meth:`PrefixRows.children`."""
        self._sequences = np.concatenate([self._sequences[parents], tokens[:, None]], axis=1)
        return self._forward()

    @torch.inference_mode()
    def _forward(self) -> Tensor:
        sequences = to_device(self._sequences, self._model.device)
        logits: Tensor = self._model(input_ids=sequences, use_cache=False, logits_to_keep=1).logits[:, -1]
        return logits.float()


ATTENTION = "answer_tree"
ROW_MULTIPLE = 32
"""The packed row is padded to a multiple of this: oneDNN caches a kernel for every number of rows."""


@dataclass
class Level:
    """Layout of the n packed tokens of one forward pass over prefixes.

    ``place`` (n,) is each token's place in a (questions × width) rectangle, ``ancestors`` (n, depth) the positions of
    its ancestors and itself in ``keys`` and ``values``, (groups, all answer tokens of the block so far, size) by layer.
    ``prompt`` holds the prompts' keys and values by layer, (groups × questions, longest prompt, size); ``padding`` (n,
    longest prompt) marks those outside a token's own prompt; None if there are none.
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
    """Evaluator of packed prefixes of many questions in one row, with tree attention.

    The prompts without their last tokens are a tree; each of its stages is a rectangle, padded on the right, where
    causal attention ignores it. The last tokens, and then all prefixes of each level of the answers, are one packed
    row. All layers of the model must attend to the whole sequence: see :func:`agrees_with_plain_passes`.
    """

    def __init__(self, model: Any, shared: Sequence[int]) -> None:
        self._model = model
        self._shared = SharedPrompt(model, shared)

    @torch.inference_mode()
    def roots(self, prompts: Sequence[Sequence[int]], deepest: bool = False) -> OutputHead:
        """Return logits (prompts, V) after whole prompts, which continue the shared tokens by at least one.

        A common prefix of several of them is evaluated once if that is cheaper, or always with ``deepest``.
        """
        suffixes = [prompt[self._shared.length : -1] for prompt in prompts]
        self._read(PromptTree.of(suffixes, cheapest=not deepest))
        self._lengths = np.array([len(prompt) - 1 for prompt in prompts])
        self._question = np.arange(len(prompts))
        self._ancestors = np.empty((len(prompts), 0), dtype=np.intp)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._stored = 0
        return self.children(self._question, np.array([prompt[-1] for prompt in prompts]))

    def _read(self, tree: PromptTree) -> None:
        """Evaluate the tokens after the shared prompt; store keys, values and padding of each sequence."""
        cache = self._shared.repeated(len(tree.stages[0].tokens))
        padding = np.zeros((len(tree.stages[0].tokens), self._shared.length), dtype=bool)
        for number, stage in enumerate(tree.stages):
            if number:
                cache.reorder_cache(self._on_device(np.array(stage.parents)))
                padding = padding[stage.parents]
            if not stage.width:
                continue
            places = np.arange(stage.width)
            gaps: dict[str, Tensor] = {}
            if padding.any():
                attended = np.pad(~padding, ((0, 0), (0, stage.width)), constant_values=True)
                positions = (~padding).sum(axis=1, keepdims=True) + places
                gaps = {"attention_mask": self._on_device(attended), "position_ids": self._on_device(positions)}
            tokens = np.array([[*run, *[0] * (stage.width - len(run))] for run in stage.tokens])
            self._model.base_model(input_ids=self._on_device(tokens), past_key_values=cache, use_cache=True, **gaps)
            lengths = np.array([[len(run)] for run in stage.tokens])
            padding = np.concatenate([padding, places >= lengths], axis=1)
        if not padding.shape[1]:  # prompts of one token: a pass over any token, to which none attends, fills the cache
            padding = np.ones((len(padding), 1), dtype=bool)
            ids = self._on_device(np.zeros(padding.shape, dtype=np.intp))
            self._model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
        if tree.leaves != list(range(len(padding))):
            cache.reorder_cache(self._on_device(np.array(tree.leaves)))
            padding = padding[tree.leaves]
        keys, values = (_by_group([getattr(layer, name) for layer in cache.layers]) for name in ("keys", "values"))
        self._prompt = [*zip(keys, values, strict=True)]
        self._padding = self._on_device(padding) if padding.any() else None

    def _on_device(self, array: NDArray[Any]) -> Tensor:
        return to_device(array, self._model.device)

    @torch.inference_mode()
    def children(self, parents: Ids, tokens: Ids) -> OutputHead:
        """Return logits (m, V) after m prefixes: ``parents`` (ascending) indexes the rows of the last call's logits,
        and ``tokens`` continues them.
        """
        prefixes = len(tokens)
        count = prefixes + -prefixes % ROW_MULTIPLE
        padded = np.minimum(np.arange(count), prefixes - 1)  # with repeats of the last prefix
        parents, tokens = parents[padded], tokens[padded]
        question = self._question[parents]
        position = self._lengths[question] + self._ancestors.shape[1]
        stored_positions = np.arange(self._stored, self._stored + count)
        ancestors = np.concatenate([self._ancestors[parents], stored_positions[:, None]], axis=1)
        self._stored += count
        sizes = np.bincount(question, minlength=len(self._lengths))
        first = sizes.cumsum() - sizes
        width = int(sizes.max())
        place = question * width + np.arange(count) - first[question]
        layout = self._on_device(np.stack([question, place, tokens, position]))
        level = Level(
            questions=len(self._lengths),
            width=width,
            place=layout[1],
            ancestors=self._on_device(ancestors),
            prompt=self._prompt,
            padding=None if self._padding is None else self._padding[layout[0]],
            keys=self._keys,
            values=self._values,
        )
        config = self._model.config
        before, config._attn_implementation = config._attn_implementation, ATTENTION
        try:
            output = self._model.base_model(
                input_ids=layout[2:3], position_ids=layout[3:4], use_cache=False, tree=level
            )
        finally:
            config._attn_implementation = before
        self._question, self._ancestors = question[:prefixes], ancestors[:prefixes]
        return OutputHead(self._model, output, prefixes)


@torch.inference_mode()
def agrees_with_plain_passes(model: Any, shared: Sequence[int], prompts: Sequence[Sequence[int]]) -> bool:
    """Return whether packed prefixes reproduce this model's logits, on a small tree over these prompts.

    Support declared by a model's library is unreliable: sliding windows, recurrent layers and attention with extra
    terms can differ silently. The logits two tokens deep are compared with passes over the whole sequences, without a
    cache. Pass the longest prompts, which exceed a sliding window first, of different lengths. A copy of the longest,
    with another token before its last, shares its prefix.
    """
    prompts = [list(prompt) for prompt in prompts[:2]]
    prompts.append([*prompts[-1][:-2], prompts[-1][0], prompts[-1][-1]])
    parents = np.array([0, len(prompts) - 2, len(prompts) - 1])
    try:
        packed = PackedPrefixes(model, shared)
        likeliest = packed.roots(prompts, deepest=True)[:].topk(3, dim=-1).indices.cpu().numpy()
        first = likeliest[parents, np.arange(3)]
        # any token will do after it; an unlikely one tests as well
        second = packed.children(parents, first)[:].argmin(dim=-1).cpu().numpy()
        packed_logits = packed.children(np.arange(3), second)[:]
    except _UNSUPPORTED:
        return False
    tails = np.stack([first, second], axis=1).tolist()
    plain = []
    for parent, tail in zip(parents.tolist(), tails, strict=True):
        sequence = torch.tensor([[*prompts[parent], *tail]], device=model.device)
        plain.append(model(input_ids=sequence, use_cache=False, logits_to_keep=1).logits[0, -1].float())
    return _agree(packed_logits, torch.stack(plain), model)


@torch.inference_mode()
def cache_agrees_with_plain_passes(model: Any, prompt: Sequence[int]) -> bool:
    """Return whether :class:`PrefixRows` reproduces this model's logits, on a small tree over this prompt.

    Several recurrent architectures ignore the cache, or continue it wrongly by more than one token.
    """
    shared, prompts = prompt[: len(prompt) // 2], [[*prompt], [*prompt[:-2], prompt[0], prompt[-1]]]
    plain = WholeSequences(model, shared)
    expected = [plain.roots(prompts)]
    steps = []
    for parents in (np.array([1, 1]), np.array([0, 1])):
        steps.append((parents, expected[-1][parents].topk(2, dim=-1).indices[[0, 1], [0, 1]].cpu().numpy()))
        expected.append(plain.children(*steps[-1]))
    try:
        rows = PrefixRows(model, shared)
        logits = [rows.roots(prompts), *(rows.children(*step) for step in steps)]
    except _UNSUPPORTED:
        return False
    return _agree(torch.cat(logits), torch.cat(expected), model)


@torch.inference_mode()
def is_causal(model: Any) -> bool:
    """Return whether this model's logits are independent of later tokens; those of an encoder are not."""
    tokens = torch.arange(8, device=model.device)[None]
    try:
        longer, shorter = (model(input_ids=ids, use_cache=False).logits.float() for ids in (tokens, tokens[:, :-1]))
    except _UNSUPPORTED:
        return True
    return _agree(longer[:, :-1], shorter, model) or not bool(longer.isfinite().all())


_UNSUPPORTED = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Errors of a model that an evaluator of prefixes does not support."""


def _agree(logits: Tensor, expected: Tensor, model: Any) -> bool:
    """Return whether logits of a model are the expected ones, but for rounding, or both are undefined."""
    if not (logits < torch.inf).all() and not (expected < torch.inf).all():
        return True  # drawing from them ends the run
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
    return bool((logits - expected).square().mean().sqrt() <= tolerance * expected.std())


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
    """Return the tree attention (1, n, heads, size) of n packed tokens; the query is (1, heads, n, size).

    ``shared`` heads of queries share each group of keys and values, which are (1, groups, n, size).
    """
    layer = module.layer_idx
    heads, n, size = query.shape[1:]
    groups = key.shape[1]
    shared = heads // groups
    scale = size**-0.5 if scaling is None else scaling
    tree.keys[layer] = torch.cat([tree.keys[layer], key[0]], dim=1) if layer in tree.keys else key[0]
    tree.values[layer] = torch.cat([tree.values[layer], value[0]], dim=1) if layer in tree.values else value[0]
    prompt_keys, prompt_values = tree.prompt[layer]  # (groups × questions, length, size)

    def by_question(packed: Tensor) -> Tensor:
        """Return tokens by question, with gaps: (groups, n, shared, x) → (groups × questions, width × shared, x)."""
        rectangle = packed.new_zeros((groups, tree.questions * tree.width, *packed.shape[2:]))
        return rectangle.index_copy_(1, tree.place, packed).view(groups * tree.questions, -1, packed.shape[-1])

    def packed(by_question: Tensor) -> Tensor:
        """Return the inverse of ``by_question``: packed tokens, without the gaps."""
        return by_question.view(groups, -1, shared, by_question.shape[-1]).index_select(1, tree.place)

    def of_ancestors(stored: Tensor) -> Tensor:
        """Return ancestors of packed tokens: (groups, all answer tokens, size) → (groups × n, depth, size)."""
        return stored.index_select(1, tree.ancestors.flatten()).view(groups * n, -1, size)

    q = (query[0] * scale).view(groups, shared, n, size).transpose(1, 2)
    prompt_scores = packed(by_question(q) @ prompt_keys.transpose(1, 2))
    if tree.padding is not None:
        prompt_scores = prompt_scores.masked_fill(tree.padding[:, None], -torch.inf)
    ancestor_scores = q.reshape(groups * n, shared, size) @ of_ancestors(tree.keys[layer]).transpose(1, 2)
    scores = torch.cat([prompt_scores, ancestor_scores.view(groups, n, shared, -1)], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)  # (groups, n, shared, length + depth)

    length = prompt_keys.shape[1]
    output = packed(by_question(weights[..., :length]) @ prompt_values)
    ancestor_output = weights[..., length:].reshape(groups * n, shared, -1) @ of_ancestors(tree.values[layer])
    output = output + ancestor_output.view_as(output)
    return output.transpose(0, 1).reshape(1, n, heads, -1), None


def _by_group(cached: Sequence[Tensor]) -> Iterable[Tensor]:
    """Return cache layers (questions, groups, length, size) as (groups × questions, length, size), with one copy."""
    together = torch.cat([layer.transpose(0, 1) for layer in cached])
    return (layer.flatten(0, 1) for layer in torch.split(together, [layer.shape[1] for layer in cached]))


# No mask is registered: a token may attend to every key that it gets.
AttentionInterface.register(ATTENTION, tree_attention)

"""Trials decoded by a loop written for a GPU: an upper bound for engines that run trials.

All answers to a block of questions are one batch. Each prompt is evaluated once, and its keys and values are read by
all answers to it; an answer keeps those of its own tokens alone. On CUDA a step, drawing included, is one CUDA graph,
and half as many answers a question are computed as soon as no question needs more.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from support.counted_model import CountedModel
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, DynamicCache

from robust_eval.model.base import Request

ATTENTION = "answers_to_prompts"


class Graphed:
    """Answers to blocks of Q questions, each with A answers of at most N tokens after a prompt of at most P.

    Every request has the temperatures, trials and tokens of ``like``; ``longest`` is P. The graphs are recorded here,
    before the first answer.
    """

    def __init__(self, model: CountedModel, questions: int, like: Request, longest: int) -> None:
        network = self._network = model.network
        self._tokenizer, self._like = model.tokenizer, like
        config, device = network.config, network.device
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        groups, layers = config.num_key_value_heads, range(config.num_hidden_layers)
        answers, tokens = like.max_answers, like.max_new_tokens

        def cached(*shape: int) -> list[tuple[Tensor, Tensor]]:
            empty = torch.zeros(shape, dtype=network.dtype, device=device)
            return [(empty.clone(), empty.clone()) for _ in layers]

        self.prompt = cached(questions, groups, longest, size)
        self.own = cached(tokens, questions, groups, answers, size)
        self.gaps = torch.zeros((questions, longest), dtype=torch.bool, device=device)
        self.step = torch.zeros((), dtype=torch.long, device=device)
        self._lengths = torch.zeros(questions, dtype=torch.long, device=device)
        self._ends = pad(model.ends, (0, config.vocab_size - len(model.ends))).to(device)
        levels = torch.tensor(like.temperatures, device=device).repeat_interleave(like.trials)
        self._levels = levels.expand(questions, answers)
        each = torch.zeros((questions, answers), dtype=torch.long, device=device)
        self._last, self._origin = each.clone(), each.clone()
        self._temperature = self._levels.clone()
        self._ended = each.bool()
        self._drawn = each.expand(tokens, *each.shape).clone()
        self._steps: dict[int, Callable[[], None]] = {}
        width = answers
        while width:
            self._steps[width] = self._recorded(width)
            width //= 2

    @torch.inference_mode()
    def __call__(self, requests: Sequence[Request]) -> list[list[str]]:
        """The texts of the answers to each of Q requests, temperature-major."""
        self._begin(requests)
        width = self._like.max_answers
        for _ in range(1, self._like.max_new_tokens):
            needed = int((~self._ended[:, :width]).sum(dim=1).max())
            if needed == 0:
                break
            fewer = min(each for each in self._steps if each >= needed)
            if fewer < width:
                self._to_the_front(width)
                width = fewer
            self._steps[width]()
        tokens = torch.empty_like(self._drawn).scatter_(2, self._origin.expand_as(self._drawn), self._drawn)
        tokens[tokens < 0] = self._tokenizer.pad_token_id
        decoded = self._tokenizer.batch_decode(tokens.permute(1, 2, 0).flatten(0, 1), skip_special_tokens=True)
        texts = [text.split("\n", 1)[0].strip() for text in decoded]
        return [texts[start : start + self._like.max_answers] for start in range(0, len(texts), self._like.max_answers)]

    def _begin(self, requests: Sequence[Request]) -> None:
        """Evaluate the prompts, and draw the first token of each answer."""
        device, longest = self._network.device, self.gaps.shape[1]
        asked = self._tokenizer(
            [request.prompt.text() for request in requests],
            return_tensors="pt",
            padding="max_length",
            max_length=longest,
            padding_side="left",
        ).to(device)
        self.gaps.copy_(asked.attention_mask == 0)
        self._lengths.copy_(asked.attention_mask.sum(dim=1))
        self.step.zero_()
        self._ended.zero_()
        self._drawn.fill_(-1)
        self._temperature.copy_(self._levels)
        self._origin.copy_(torch.arange(self._like.max_answers, device=device))
        cache = DynamicCache(config=self._network.config)
        positions = (asked.attention_mask.cumsum(dim=1) - 1).clamp_min(0)
        output = self._network(**asked, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for (keys, values), layer in zip(self.prompt, cache.layers, strict=True):
            keys.copy_(layer.keys)
            values.copy_(layer.values)
        self._draw(output.logits.expand(-1, self._like.max_answers, -1), self._like.max_answers)

    def _recorded(self, width: int) -> Callable[[], None]:
        """A step of the first ``width`` answers to each question; on CUDA a graph that is recorded now."""
        if self._network.device.type != "cuda":
            return lambda: self._decode(width)
        beside = torch.cuda.Stream()
        with torch.cuda.stream(beside):
            for _ in range(2):
                self.step.zero_()
                self._decode(width)
        torch.cuda.current_stream().wait_stream(beside)
        self.step.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._decode(width)
        return graph.replay

    @torch.inference_mode()
    def _decode(self, width: int) -> None:
        usual = self._network.config._attn_implementation
        self._network.set_attn_implementation(ATTENTION)
        positions = (self._lengths + self.step)[:, None].expand(-1, width)
        logits = self._network(
            input_ids=self._last[:, :width], position_ids=positions, use_cache=False, answers=self
        ).logits
        self._network.set_attn_implementation(usual)
        self.step += 1
        self._draw(logits, width)

    def _draw(self, logits: Tensor, width: int) -> None:
        """Draw a token of each answer from logits (Q, width, V): the largest after Gumbel noise."""
        scores = logits.float() / self._temperature[:, :width, None]
        drawn = scores.sub_(torch.empty_like(scores).exponential_().log_()).argmax(dim=-1)
        ended = self._ended[:, :width]
        self._drawn[:, :, :width].index_copy_(0, self.step[None], drawn.masked_fill(ended, -1)[None])
        self._last[:, :width] = drawn
        ended |= self._ends[drawn]

    def _to_the_front(self, width: int) -> None:
        """Bring the answers that have not ended to the front of the first ``width`` of their question."""
        order = self._ended[:, :width].byte().argsort(dim=1, stable=True)
        for each in (self._last, self._temperature, self._origin, self._ended, self._drawn):
            each[..., :width] = each[..., :width].take_along_dim(order.expand(*each.shape[:-1], -1), dim=-1)
        for cached in self.own:
            for each in cached:
                each[..., :width, :] = each[..., :width, :].take_along_dim(order[None, :, None, :, None], dim=3)


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    answers: Graphed,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one token of each answer: query (Q, heads, width, size), key, value (Q, groups, width, size)."""
    count, _, width, size = query.shape
    groups = key.shape[1]
    prompt_keys, prompt_values = answers.prompt[module.layer_idx]
    own_keys, own_values = (each[..., :width, :] for each in answers.own[module.layer_idx])
    own_keys.index_copy_(0, answers.step[None], key[None])
    own_values.index_copy_(0, answers.step[None], value[None])
    q = (query * scaling).view(count, groups, -1, width, size)
    on_prompt = (q.flatten(2, 3) @ prompt_keys.transpose(2, 3)).view(count, groups, -1, width, prompt_keys.shape[2])
    on_prompt = on_prompt.masked_fill(answers.gaps[:, None, None, None], -torch.inf)
    on_own = torch.einsum("qghws,nqgws->qghwn", q, own_keys)
    later = torch.arange(len(own_keys), device=q.device) > answers.step
    scores = torch.cat([on_prompt, on_own.masked_fill(later, -torch.inf)], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    of_prompt, of_own = weights.split([prompt_keys.shape[2], len(own_keys)], dim=-1)
    output = (of_prompt.flatten(2, 3) @ prompt_values).view_as(q)
    output = output + torch.einsum("qghwn,nqgws->qghws", of_own, own_values)
    return output.flatten(1, 2).transpose(1, 2).contiguous(), None


# No mask is registered: the function masks by itself.
AttentionInterface.register(ATTENTION, attention)

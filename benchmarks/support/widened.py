"""A small model in the shape of a large one: it computes the same, and costs what the large one costs."""

from dataclasses import dataclass
from typing import Any

import torch
from support.shape import Shape
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel

MARK, RAISED, LOWERED = 1e-3, 1e4, 1e4
"""One more number of every hidden state is MARK, which nothing changes. The last normalisation makes it RAISED times as
large against the others, and the logit of each token that the small model lacks is lowered by LOWERED times that."""


@dataclass(frozen=True)
class Widened:
    """The settings of a model of Llama's architecture, and the shape that it is to have."""

    settings: Transformers
    shape: Shape

    def load(self) -> TransformersModel:
        """Load the small model, and return the large one."""
        small = self.settings.load()
        network = widened(small.model, self.shape)
        return TransformersModel(self.settings, network, small.tokenizer)


@torch.inference_mode()
def widened(small: Any, shape: Shape) -> LlamaForCausalLM:
    """Return a model of the ``shape`` with the logits of a small one; tokens that it lacks have next to no probability.

    Its other weights are random where nothing comes of them, and else 0. Layers that are too many change nothing. The
    shape must be at least that of the small model in each of its sizes, also in heads that share keys and values.
    """
    config = small.config
    torch.manual_seed(0)
    with torch.device(small.device):
        large: LlamaForCausalLM = AutoModelForCausalLM.from_config(of_shape(config, shape), dtype=small.dtype).eval()
    large.generation_config = small.generation_config
    hidden, tokens = config.hidden_size, config.vocab_size
    embedding = large.model.embed_tokens.weight.zero_()
    embedding[:, hidden] = MARK
    embedding[:tokens, :hidden] = small.get_input_embeddings().weight
    head = large.lm_head.weight
    head[tokens:] = 0
    head[:, hidden] = 0
    head[tokens:, hidden] = -LOWERED
    head[:tokens, :hidden] = small.get_output_embeddings().weight
    for index, layer in enumerate(large.model.layers):
        for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
            linear.weight.zero_()
        if index < config.num_hidden_layers:
            fill(layer, small.model.layers[index], config, shape)
    large.model.norm.weight.copy_(normalisation(small.model.norm.weight, shape))
    large.model.norm.weight[hidden] = RAISED
    return large


def of_shape(config: Any, shape: Shape) -> LlamaConfig:
    """The configuration of the large model."""
    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        head_dim=shape.size,
        rms_norm_eps=config.rms_norm_eps * config.hidden_size / shape.hidden,
        rope_parameters=config.rope_parameters,
        max_position_embeddings=config.max_position_embeddings,
        tie_word_embeddings=False,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )


def fill(large: Any, small: Any, config: Any, shape: Shape) -> None:
    """Give a layer the weights of a small one."""
    hidden, inner, groups = config.hidden_size, config.intermediate_size, config.num_key_value_heads
    size = small.self_attn.head_dim
    shared, more = config.num_attention_heads // groups, shape.heads // shape.groups
    turned, plain = places(size, shape.size)
    head = torch.tensor([group * more + one for group in range(groups) for one in range(shared)])
    queries, keys = rows(head, turned, shape.size), rows(torch.arange(groups), turned, shape.size)
    values, outputs = rows(torch.arange(groups), plain, shape.size), rows(head, plain, shape.size)
    attention, old = large.self_attn, small.self_attn
    attention.k_proj.weight[: groups * shape.size] = 0
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, large.mlp.gate_proj, large.mlp.up_proj):
        linear.weight[:, hidden] = 0
    attention.q_proj.weight[queries, :hidden] = old.q_proj.weight * (shape.size / size) ** 0.5
    attention.k_proj.weight[keys, :hidden] = old.k_proj.weight
    attention.v_proj.weight[values, :hidden] = old.v_proj.weight
    attention.o_proj.weight[:hidden, outputs] = old.o_proj.weight
    large.mlp.gate_proj.weight[:inner, :hidden] = small.mlp.gate_proj.weight
    large.mlp.up_proj.weight[:inner, :hidden] = small.mlp.up_proj.weight
    large.mlp.down_proj.weight[:hidden, :inner] = small.mlp.down_proj.weight
    large.input_layernorm.weight.copy_(normalisation(small.input_layernorm.weight, shape))
    large.post_attention_layernorm.weight.copy_(normalisation(small.post_attention_layernorm.weight, shape))


def places(size: int, large: int) -> tuple[Tensor, Tensor]:
    """Where the numbers of a small head lie in a large one: those that rotary positions turn, at equal frequencies, in
    pairs half a head apart; and those that they do not.
    """
    half, times = torch.arange(size // 2), large // size
    return torch.cat([half * times, large // 2 + half * times]), torch.arange(size)


def rows(heads: Tensor, place: Tensor, size: int) -> Tensor:
    return (heads[:, None] * size + place).flatten()


def normalisation(weight: Tensor, shape: Shape) -> Tensor:
    """The weights of a normalisation over more numbers, all but the first of which are 0."""
    scaled = torch.ones(shape.hidden, dtype=weight.dtype, device=weight.device)
    scaled[: len(weight)] = weight * (len(weight) / shape.hidden) ** 0.5
    return scaled

"""Tiny language models with random weights, one for each architecture that the tests cover."""

import copy
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    FalconH1Config,
    Gemma3TextConfig,
    GPT2Config,
    JambaConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
)

VOCABULARY = 48
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

FULL_ATTENTION = {
    "llama": LlamaConfig(**_COMMON),
    "qwen2": Qwen2Config(**_COMMON),
    "qwen3": Qwen3Config(**_COMMON, head_dim=8),
    "mistral": MistralConfig(**_COMMON, sliding_window=None),
    "phi3": Phi3Config(**_COMMON),
    "gemma3": Gemma3TextConfig(**_COMMON, head_dim=8, sliding_window=64),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, eos_token_id=2),
}
OTHERS = {
    "mistral_short_window": MistralConfig(**_COMMON, sliding_window=6),
    "gemma3_short_window": Gemma3TextConfig(**_COMMON, head_dim=8, sliding_window=6),
    "qwen3_next": Qwen3NextConfig(
        **_COMMON,
        head_dim=8,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        num_experts=0,
        mlp_only_layers=[0, 1],
    ),
    "lfm2": Lfm2Config(**_COMMON, layer_types=["conv", "full_attention"]),
    "falcon_h1": FalconH1Config(
        **_COMMON, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1
    ),
}
WRONG_WITH_A_CACHE = {
    "mamba": MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=8, num_hidden_layers=2, pad_token_id=0, eos_token_id=2
    ),
    "jamba": JambaConfig(
        **_COMMON, num_experts=2, attn_layer_period=2, attn_layer_offset=1, mamba_d_state=8, use_mamba_kernels=False
    ),
}


def tiny(
    architecture: str, sharpness: float = 8.0, vocabulary: int = VOCABULARY, positions: int = 128
) -> PreTrainedModel:
    """A model with random weights; ``sharpness`` scales its logits, so that its answers are not all equally likely."""
    config = copy.deepcopy((FULL_ATTENTION | OTHERS | WRONG_WITH_A_CACHE)[architecture])
    config.vocab_size, config.max_position_embeddings = vocabulary, positions
    torch.manual_seed(sum(map(ord, architecture)))
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.25)
        if architecture == "gpt2":
            model.tie_weights()
        head = model.get_output_embeddings()
        head.weight = torch.nn.Parameter(torch.randn_like(head.weight) * sharpness / config.hidden_size)
    return model

"""A tiny random Llama as a GGUF file, with a tokenizer of bytes and one merge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import torch
from architectures import tiny
from tokenizers import pre_tokenizers

SPECIAL = ["<pad>", "<s>", "</s>", "<end>"]
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk",
}
LAYOUT = {
    "llama.context_length": 512,
    "llama.embedding_length": 32,
    "llama.block_count": 2,
    "llama.feed_forward_length": 48,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.dimension_count": 8,
}


def save_tiny_gguf(file: Path, rope_freqs: Sequence[float] = (), **tokenizer: Any) -> Path:
    """Write the file; ``tokenizer`` are its metadata below tokenizer.ggml, or ``chat_template``."""
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "12"]
    model = tiny("llama", vocabulary=len(tokens), positions=512)
    writer = gguf.GGUFWriter(file, "llama")
    for name, value in LAYOUT.items():
        writer.add_uint32(name, value)
    writer.add_float32("llama.rope.freq_base", 500_000.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", model.config.rms_norm_eps)
    writer.add_name("tiny")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["1 2"])
    for name, value in {"model": "gpt2", "pre": "gpt-2", "bos_token_id": 1, "eos_token_id": 2, **tokenizer}.items():
        key = f"tokenizer.{name}" if name == "chat_template" else f"tokenizer.ggml.{name}"
        {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}[type(value)](key, value)
    for name, weight in model.state_dict().items():
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        writer.add_tensor(name, _in_pairs(name, weight).numpy())
    if rope_freqs:
        writer.add_tensor("rope_freqs.weight", torch.tensor(rope_freqs).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _in_pairs(name: str, weight: torch.Tensor) -> torch.Tensor:
    """The rows of queries and keys as llama.cpp rotates them: neighbours, not halves."""
    heads = {"attn_q": 4, "attn_k": 2}.get(name.split(".")[-2])
    if heads is None:
        return weight.contiguous()
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return rows.swapaxes(1, 2).reshape(weight.shape).contiguous()

"""Tiny random models, in a folder as a user has them: of language with a tokenizer of bytes, and a cross-encoder."""

from pathlib import Path
from string import ascii_lowercase, digits

import torch
from architectures import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    BertTokenizerFast,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

VOCABULARY = 259
KNOWN = [f"dataset.path={Path(__file__).with_name('tiny_facts.jsonl')}", "dataset.limit=12"]
"""Built-in facts, with what a tiny model of letters answers to all of them greedily in place of what is right."""
CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
)


def plain_settings(folder: Path) -> list[str]:
    """Settings of a run of the model in a folder, asked with plain text."""
    return ["model=transformers", f"model.path={folder}", "model.name=tiny", "model.prompt_style=plain"]


def byte_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """One token for each byte; the ids 0 to 2 are special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {letter: index + 3 for index, letter in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=chat_template
    )


def save_tiny_model(folder: Path, letters: bool = False) -> Path:
    """Write weights, configuration and tokenizer; prompts may have 512 bytes.

    With ``letters`` it writes little but small letters, so that a reader of its replies finds an answer in each.
    """
    model, tokenizer = tiny("llama", vocabulary=VOCABULARY, positions=512), byte_tokenizer(CHAT_TEMPLATE)
    if letters:
        _prefer(model, tokenizer.convert_tokens_to_ids([*ascii_lowercase]))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _prefer(model: PreTrainedModel, tokens: list[int]) -> None:
    """Give all embeddings one component in common that no layer changes, and add it to the logits of these tokens."""
    with torch.no_grad():
        model.get_input_embeddings().weight[:, 0] = 3.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0
            layer.mlp.down_proj.weight[0] = 0
        model.get_output_embeddings().weight[tokens, 0] += 4.0


def save_tiny_cross_encoder(folder: Path, labels: int = 1) -> Path:
    """Write a BERT over letters that gives ``labels`` scores; it reads 64 tokens."""
    return _save_tiny_bert(folder, BertForSequenceClassification, labels)


def save_tiny_encoder(folder: Path) -> Path:
    """Write the same without the layer that gives scores."""
    return _save_tiny_bert(folder, BertModel, 1)


def _save_tiny_bert(folder: Path, kind: type[BertPreTrainedModel], labels: int) -> Path:
    letters = [*ascii_lowercase, *digits]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters), "?", ".", "!"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(
            BertConfig(
                vocab_size=len(pieces),
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=64,
                num_labels=labels,
                initializer_range=0.5,
            )
        )
    model.save_pretrained(folder)
    BertTokenizerFast(vocab={piece: number for number, piece in enumerate(pieces)}).save_pretrained(folder)
    return folder

"""A tiny random language model with a tokenizer of bytes, in a folder as a user has one."""

from pathlib import Path

from architectures import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 259
CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
)


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


def save_tiny_model(folder: Path) -> Path:
    """Write weights, configuration and tokenizer; prompts may have 512 bytes."""
    tiny("llama", vocabulary=VOCABULARY, positions=512).save_pretrained(folder)
    byte_tokenizer(CHAT_TEMPLATE).save_pretrained(folder)
    return folder

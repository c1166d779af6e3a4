"""Settings of a local model, and their validation."""

import ctypes
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robust_eval.model.generation import Generation
from robust_eval.model.local.batching import BLOCK_SIZES, BlockSizes
from robust_eval.model.local.prompt_encoder import ChatTemplate, PromptEncoder, ReasoningFormat
from robust_eval.model.model_config import PROMPT_STYLES
from robust_eval.runtime.text import enumerated

DTYPES = ("auto", "float32", "bfloat16", "float16")
MAX_ANSWERS_AT_ONCE = {False: 1600, True: 25_600}
"""Maximum number of answers in a block: on a CPU more are not faster; on CUDA (True) the memory decides."""


@dataclass
class TransformersSettings:
    """Settings of a local model: its source, and how it is run."""

    name: str
    """The name of the model in logs, tables and the tracker."""
    path: str
    """A hub id, a local folder, a GGUF file, or embedded:PACKAGE/FILE.gguf for weights from the package index."""
    revision: str | None = None
    """Branch, tag or commit of a hub model; null: its main branch."""
    sha256: str | None = None
    """Checksum of a GGUF file; required for an embedded one."""
    prompt_style: str = "chat"
    """plain: the prompt "Question: … Answer:", and an answer ends at its first line break. chat: the chat template; a
    GGUF file without one gets plain prompts."""
    dtype: str = "auto"
    """auto: bfloat16 on CUDA, and float32 on the CPU, where bfloat16 is 1.3 times as fast but moves the accuracy curves
    (benchmarks/sampling.py)."""
    device: str = "auto"
    """auto: CUDA if available, else the CPU; or a torch device such as cuda:1."""
    trust_remote_code: bool = False
    """Run the Python code of a model repository. The configured models do not need it."""
    batch_size: int | None = None
    """Maximum number of answers whose prefixes are evaluated together (those of one question always are), which bounds
    the memory. The answers do not depend on it. null: as many as are useful and fit into half of the free memory;
    after an out-of-memory error, fewer."""
    stop: list[str] = field(default_factory=list)
    """Strings before which an answer ends, in addition to the model's end-of-text tokens and, in plain text, line
    breaks."""
    chat_template: ChatTemplate = field(default_factory=ChatTemplate)
    """Parameters of the chat template."""
    thinking_budget: int | None = None
    """Maximum number of reasoning tokens before each answer; then the end of the reasoning is inserted. 0: no
    reasoning. null: no intervention."""
    generation: Generation = field(default_factory=Generation)

    def __post_init__(self) -> None:
        if self.thinking_budget is not None and self.prompt_style != "chat":
            raise ValueError("thinking_budget needs prompt_style=chat: models reason only in the chat format")
        if self.thinking_budget is not None and self.thinking_budget < 0:
            raise ValueError(f"thinking_budget must be 0 or more, not {self.thinking_budget}")
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be {enumerated(DTYPES)}, not {self.dtype}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")
        if "" in self.stop:
            raise ValueError("stop must not contain an empty string, which ends every answer")
        if self.path.startswith("embedded:") and not self.sha256:
            raise ValueError("sha256 must be set for an embedded model")
        if self.sha256 and not self.path.endswith(".gguf"):
            raise ValueError(f"sha256 applies only to GGUF files, but path={self.path} is not one: set it to null")
        if self.revision and (self.path.startswith("embedded:") or Path(self.path).exists()):
            raise ValueError(f"revision applies only to hub models, but path={self.path} is local: set it to null")
        if self.prompt_style == "plain" and self.chat_template != ChatTemplate():
            raise ValueError("chat_template needs prompt_style=chat: plain prompts have no template")

    def reply_tokens(self, max_new_tokens: int) -> int:
        """Return the maximum number of tokens of a reply whose answer may have ``max_new_tokens``."""
        return max_new_tokens + (self.thinking_budget or 0)

    @property
    def max_answers_at_once(self) -> int:
        """Maximum number of answers in a block, if the memory holds them."""
        return self.batch_size or MAX_ANSWERS_AT_ONCE[self.effective_device.startswith("cuda")]

    @property
    def block_sizes(self) -> BlockSizes:
        """Limits of blocks on the model's device."""
        return BLOCK_SIZES[self.effective_device.startswith("cuda")]

    @property
    def effective_device(self) -> str:
        """Torch device on which the model runs: the setting ``device``, with ``auto`` resolved."""
        if self.device != "auto":
            return self.device
        return "cuda" if has_cuda() else "cpu"

    @property
    def effective_dtype(self) -> str:
        """Number format of the weights: the setting ``dtype``, with ``auto`` resolved."""
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if self.effective_device.startswith("cuda") else "float32"

    def encoder(self, tokenizer: Any) -> PromptEncoder:
        """Return the prompt encoder of these settings for a tokenizer; it opens the reasoning of a reasoning model."""
        thinking = self.thinking(tokenizer)
        opened = str if thinking is None else thinking.opened
        return PromptEncoder(tokenizer, self.prompt_style, self.chat_template, opened)

    def thinking(self, tokenizer: Any) -> ReasoningFormat | None:
        """Return the format of the local model's reasoning; None without a reasoning budget."""
        if self.thinking_budget is None:
            return None
        return ReasoningFormat(tokenizer, self.thinking_budget, self.chat_template.thinking_end)


def has_cuda() -> bool:
    """Return whether torch can use a CUDA device; torch is imported only where a driver is installed."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    import torch

    return torch.cuda.is_available()

"""Any causal language model that transformers can load: from a hub, a folder, a GGUF file, or a package."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Request
from robust_eval.model.local.batching import BatchContext, blocks, group_by_question
from robust_eval.model.local.gguf_model import (
    CONVERSION,
    converted_folder,
    converted_model,
    gguf_prompt_style,
)
from robust_eval.model.local.model_files import EMBEDDED, file_hash, folder_hash, hub_commit, no_model
from robust_eval.model.local.prompt_encoder import ChatTemplate, ReasoningPrompts, are_traces
from robust_eval.model.local.settings import TransformersSettings
from robust_eval.model.model_config import ModelConfig, Shards
from robust_eval.model.workload import ServiceLimits

if TYPE_CHECKING:
    from robust_eval.model.local.transformers_model import TransformersModel

log = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
VERSION = 4
"""Version of the answers. A change that gives other answers to the same request raises it; stored answers of other
versions are not used."""


@dataclass
class Transformers(TransformersSettings, ModelConfig):
    """Configuration of a local model of transformers, with the settings of :class:`TransformersSettings`."""

    uses_torch = True
    seedless_greedy = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._is_file and self.prompt_style == "chat" and gguf_prompt_style(self.path) == "plain":
            log.info("model %s: %s has no chat template; its prompts are plain text", self.name, self.path)
            self.prompt_style, self.chat_template = "plain", ChatTemplate()

    def service_limits(self) -> ServiceLimits:
        """Return limits without prices for a local model of transformers; see ModelConfig."""
        return ServiceLimits(chat=self.prompt_style == "chat", reply_tokens=self.reply_tokens)

    def identity(self) -> dict[str, Any]:
        """Return the files of the transformers model, its number format, and its prompt style; see ModelConfig."""
        if self._is_gguf:
            files = f"{self._gguf_hash} {CONVERSION}"
        elif reason := no_model(self.path):
            raise UserError(f"model.path of {self.name}: {reason}")
        elif Path(self.path).is_dir():
            files = folder_hash(Path(self.path))
        else:
            files = f"{self.path} {hub_commit(self.path, self.revision)}"
        return {
            "version": VERSION,
            "files": files,
            "dtype": self.effective_dtype,
            "device": self.effective_device.partition(":")[0],
            "prompt_style": self.prompt_style,
            "stop": self.stop,
            "generation": asdict(self.generation),
            **({} if self.chat_template == ChatTemplate() else {"chat_template": asdict(self.chat_template)}),
            **({} if self.thinking_budget is None else {"thinking_budget": self.thinking_budget}),
        }

    def tokenizer_file(self) -> Path | None:
        """Return the tokenizer's file of a transformers model that was loaded before; None if it has another format."""
        if self._is_gguf:
            file = converted_folder(Path(self.path).stem, self._gguf_hash) / TOKENIZER
        elif Path(self.path).is_dir():
            file = Path(self.path, TOKENIZER)
        else:
            from huggingface_hub import try_to_load_from_cache

            cached = try_to_load_from_cache(self.path, TOKENIZER, revision=self.revision)
            file = Path(cached) if isinstance(cached, str) else Path()
        return file if file.is_file() else None

    def load(self) -> "TransformersModel":
        """Load weights and tokenizer with transformers; UserError names a missing part."""
        import torch
        from transformers import AutoModelForCausalLM

        from robust_eval.model.local.prefixes import is_causal  # both import torch
        from robust_eval.model.local.transformers_model import TransformersModel

        device, dtype = self.effective_device, self.effective_dtype
        where = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        try:
            torch.zeros(1, device=device).item()
        except (AssertionError, RuntimeError) as problem:
            raise UserError(
                f"model.device={device} cannot be used: {first_line(problem)}; use model.device=cpu"
            ) from problem
        tokenizer = self._tokenizer()
        folder = str(self._folder())
        try:
            model, info = AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, dtype), output_loading_info=True, **where
            )
            model = model.to(device).eval()
        except Exception as problem:  # the library, and the model's own code, raise many kinds
            raise UserError(f"model {self.name}: {self.path} cannot be loaded: {first_line(problem)}") from problem
        if missing := sorted(info["missing_keys"]):  # the library draws weights at random, and leaves buffers undefined
            names = f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}"
            raise UserError(
                f"model {self.name}: {self.path} cannot be loaded: it lacks weights of a causal language "
                f"model ({names})"
            )
        if not is_causal(model):
            raise UserError(
                f"model {self.name}: {self.path} cannot be loaded: it is not a causal language model ("
                f"{type(model).__name__}): its logits depend on later tokens, as those of an encoder do"
            )
        if device.startswith("cuda"):
            # cuDNN's attention plans every new shape of a batch of prompts, which took 1 s for 16 questions
            torch.backends.cuda.enable_cudnn_sdp(False)
        loaded = TransformersModel(self, model, tokenizer)
        log.info("model %s: %s on %s", self.name, dtype, device)
        return loaded

    def shard(self, requests: Sequence[Request]) -> Shards:
        """Divide requests into blocks by prompt length; this loads the tokenizer, not the model. See ModelConfig."""
        tokenizer = self._tokenizer()
        if requests[0].reasoning is None:
            encode = self.encoder(tokenizer)
            encoded = encode.in_order(requests)
        elif are_traces(requests):
            encoded = ReasoningPrompts(tokenizer, self.chat_template).in_order(requests)
        else:
            return Shards(group_by_question(requests), None)
        divided = blocks(encoded, lambda: self.max_answers_at_once, self.block_sizes)
        return Shards([[request for _, request in block] for block in divided], BatchContext.of(encoded))

    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        if self.trust_remote_code:
            log.warning(
                "model %s: Python code of %s runs on this machine (model.trust_remote_code)", self.name, self.path
            )
        where = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        folder = str(self._folder())
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **where)
        except Exception as problem:  # the library, and the model's own code, raise many kinds
            reason = first_line(problem)
            if "instantiate the backend tokenizer" in reason or isinstance(problem, KeyError):
                reason = "it has no readable tokenizer (tokenizer.json, tokenizer.model); save one next to it"
            raise UserError(f"model {self.name}: {self.path} cannot be loaded: {reason}") from problem
        if self.prompt_style == "chat" and not tokenizer.chat_template:
            raise UserError(f"model {self.name} has no chat template: set model.prompt_style=plain")
        return tokenizer

    def for_probabilities(self) -> "Transformers":
        """Return the configuration with float32 in place of ``dtype=auto``."""
        return replace(self, dtype="float32") if self.dtype == "auto" else self

    def on(self, device: str) -> "Transformers":
        """Return the configuration with this device in place of ``device=auto``."""
        return replace(self, device=device) if self.device == "auto" else self

    @property
    def _is_gguf(self) -> bool:
        return self.path.startswith(EMBEDDED) or self._is_file

    @property
    def _is_file(self) -> bool:
        """True if ``path`` is that of a GGUF file."""
        return self.path.endswith(".gguf") and Path(self.path).is_file()

    @property
    def _gguf_hash(self) -> str:
        return str(self.sha256) if self.path.startswith(EMBEDDED) else file_hash(Path(self.path))

    def _folder(self) -> str | Path:
        return converted_model(self.path, self.sha256) if self._is_gguf else self.path

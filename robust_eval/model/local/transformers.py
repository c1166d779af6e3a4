"""Any causal language model that transformers can load: from a hub, a folder, or an embedded package."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Request
from robust_eval.model.config import ModelConfig, Shards
from robust_eval.model.local.batching import BatchContext, growing_blocks
from robust_eval.model.local.embedded import CONVERSION, converted_model, package_folder
from robust_eval.model.local.fingerprint import folder_hash, hub_commit, no_model
from robust_eval.model.local.prompt_encoder import ChatTemplate
from robust_eval.model.local.settings import TransformersSettings
from robust_eval.model.local.thinking import ThoughtPrompts, alone, by_question
from robust_eval.model.local.tokenizer_file import tokenizer_file
from robust_eval.model.workload import ServiceLimits

if TYPE_CHECKING:
    from robust_eval.model.local.transformers_model import TransformersModel

log = logging.getLogger(__name__)

VERSION = 1
"""To be raised with a change that gives other answers to the same request: stored ones then count no longer."""


@dataclass
class Transformers(TransformersSettings, ModelConfig):
    """A model that is loaded here; its settings are those of :class:`TransformersSettings`."""

    def service_limits(self) -> ServiceLimits:
        """Return that it costs nothing but time, and how it is prompted."""
        return ServiceLimits(chat=self.prompt_style == "chat", reply_tokens=self.reply_tokens)

    def identity(self) -> dict[str, Any]:
        """Return the files of the model, its number format, and how it is prompted; see ModelConfig."""
        if self.path.startswith("embedded:"):
            files = f"{self.sha256} {CONVERSION}"
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
        """Return the file of a model that was loaded on this machine before; see ModelConfig."""
        return tokenizer_file(self.path, self.revision, self.sha256)

    def load(self) -> "TransformersModel":
        """Load weights and tokenizer; UserError names what is missing."""
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        from robust_eval.model.local.transformers_model import TransformersModel  # it imports torch

        device, dtype = self.effective_device, self.effective_dtype
        where = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError) as problem:
            raise UserError(f"model.device={device} cannot be used: {first_line(problem)}") from problem
        tokenizer = self._tokenizer()
        folder = str(self._folder())
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), **where)
            model = model.to(device).eval()
        except (ImportError, OSError, RuntimeError, SafetensorError, UnpicklingError, ValueError) as problem:
            raise UserError(f"model {self.name}: {self.path} cannot be loaded: {first_line(problem)}") from problem
        if device.startswith("cuda"):
            # cuDNN's attention makes a plan for every new shape of a batch of prompts, which took 1 s for 16 questions
            torch.backends.cuda.enable_cudnn_sdp(False)
        loaded = TransformersModel(self, model, tokenizer)
        log.info("model %s: %s on %s", self.name, dtype, device)
        return loaded

    def shard(self, requests: Sequence[Request]) -> Shards:
        """See ModelConfig; the tokenizer is loaded for it, and not the model."""
        tokenizer = self._tokenizer()
        if requests[0].thought is None:
            encode = self.encoder(tokenizer)
            encoded = encode.in_order(requests)
        elif alone(requests):
            encoded = ThoughtPrompts(tokenizer, self.chat_template).in_order(requests)
        else:
            return Shards(by_question(requests), None)
        divided = growing_blocks(encoded, self.most_answers_at_once)
        return Shards([[request for _, request in block] for block in divided], BatchContext.of(encoded))

    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        if self.trust_remote_code:
            log.warning(
                "model %s: Python code that %s brings runs here (model.trust_remote_code)", self.name, self.path
            )
        where = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        folder = str(self._folder())
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **where)
        except (ImportError, OSError, RuntimeError, ValueError) as problem:
            reason = first_line(problem)
            if "instantiate the backend tokenizer" in reason:
                reason = "it brings no tokenizer that can be read (tokenizer.json, tokenizer.model); save one beside it"
            raise UserError(f"model {self.name}: {self.path} cannot be loaded: {reason}") from problem
        if self.prompt_style == "chat" and not tokenizer.chat_template:
            raise UserError(f"model {self.name} has no chat template: set model.prompt_style=plain")
        return tokenizer

    def for_probabilities(self) -> "Transformers":
        """Return the settings with float32, where they leave it open."""
        return replace(self, dtype="float32") if self.dtype == "auto" else self

    def on(self, device: str) -> "Transformers":
        """Return the settings with this device, where theirs is ``auto``."""
        return replace(self, device=device) if self.device == "auto" else self

    def _folder(self) -> str | Path:
        if not self.path.startswith("embedded:"):
            return self.path
        package, _, file = self.path.removeprefix("embedded:").partition("/")
        return converted_model(package_folder(package) / file, str(self.sha256))

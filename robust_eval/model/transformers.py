"""Any causal language model that transformers can load: from a hub, a folder, or an embedded package."""

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Completion, Request
from robust_eval.model.embedded import converted_model, package_folder
from robust_eval.model.generation import Generation
from robust_eval.prompt.prompt import Prompt

if TYPE_CHECKING:
    from robust_eval.model.answer_tree import Paths, Vocabulary

log = logging.getLogger(__name__)

DTYPES = ("auto", "float32", "bfloat16", "float16")
PROMPT_STYLES = ("plain", "chat")
TODAY = "26 Jul 2024"
"""The date for chat templates that write one (Llama 3): today's would change the answers from day to day."""


@dataclass
class Transformers:
    """Where the model comes from and how it is run."""

    name: str
    """What the model is called in logs, tables and the tracker."""
    path: str
    """A hub id, a local folder, or embedded:PACKAGE/FILE.gguf for weights from the package index."""
    revision: str | None = None
    """Branch, tag or commit of a hub model; null: its main branch."""
    sha256: str | None = None
    """Checksum of an embedded file; required for one."""
    prompt_style: str = "chat"
    """plain: continue "Question: … Answer:", and an answer ends at its first line break. chat: the chat template."""
    dtype: str = "auto"
    """auto: bfloat16 on CUDA; float32 on the CPU, where bfloat16 was measured to be 1.3 times as fast and to move the
    accuracy curves (benchmarks/sampling.py)."""
    device: str = "auto"
    """auto: CUDA where there is one, else the CPU; or a torch device such as cuda:1."""
    trust_remote_code: bool = False
    """Run Python code that a model repository brings. Never needed for the models configured here."""
    answers_at_once: int = 1600
    """Answers whose prefixes are evaluated together at most (those of one question always are): bounds the memory; the
    answers do not depend on it."""
    generation: Generation = field(default_factory=Generation)

    def __post_init__(self) -> None:
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype}")
        if self.answers_at_once < 1:
            raise ValueError(f"answers_at_once must be at least 1, not {self.answers_at_once}")
        if self.path.startswith("embedded:") and not self.sha256:
            raise ValueError("sha256 must be given for an embedded model")

    def load(self) -> "TransformersModel":
        """Load weights and tokenizer; UserError names what is missing."""
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as library_log

        if not sys.stderr.isatty():
            library_log.disable_progress_bar()
        device = self.device if self.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = self.dtype if self.dtype != "auto" else ("bfloat16" if device.startswith("cuda") else "float32")
        where = {"revision": self.revision, "trust_remote_code": self.trust_remote_code}
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError) as problem:
            raise UserError(f"model.device={device} cannot be used: {first_line(problem)}") from problem
        try:
            source = str(self._folder())
            tokenizer = AutoTokenizer.from_pretrained(source, **where)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype), **where).to(device)
        except (ImportError, OSError, RuntimeError, SafetensorError, ValueError) as problem:
            raise UserError(f"model {self.name}: {self.path} cannot be loaded: {first_line(problem)}") from problem
        if self.prompt_style == "chat" and not tokenizer.chat_template:
            raise UserError(f"model {self.name} has no chat template: set model.prompt_style=plain")
        loaded = TransformersModel(self, model.eval(), tokenizer)
        log.info("model %s: %s on %s", self.name, dtype, device)
        return loaded

    def _folder(self) -> str | Path:
        if not self.path.startswith("embedded:"):
            return self.path
        package, _, file = self.path.removeprefix("embedded:").partition("/")
        return converted_model(package_folder(package) / file, str(self.sha256))


class TransformersModel:
    """A loaded model; see :class:`robust_eval.model.base.LanguageModel`."""

    def __init__(self, config: Transformers, model: Any, tokenizer: Any) -> None:
        from robust_eval.model.cpu_linear import use_faster_linear

        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.generation = config.generation.effective(model.generation_config)
        self._parameters = model.num_parameters()
        self._linear = use_faster_linear(model)
        self._system_role = config.prompt_style == "chat" and _takes_system_role(tokenizer)
        self._vocabulary = self._read_vocabulary()
        self._packs: bool | None = None
        self._checked_length = 0

    def description(self) -> dict[str, Any]:
        """What was loaded and the generation settings in effect."""
        return {
            "name": self.config.name,
            "path": self.config.path,
            "revision": getattr(self.model.config, "_commit_hash", None) or self.config.sha256 or "local files",
            "class": type(self.model).__name__,
            "parameters": self._parameters,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
            "linear": self._linear,
            "prefixes": {None: "not asked yet", True: "packed", False: "a row each"}[self._packs],
            "attention": self.model.config._attn_implementation,
            "prompt_style": self.config.prompt_style,
            **{f"generation.{name}": value for name, value in asdict(self.generation).items()},
        }

    def complete(self, requests: Sequence[Request]) -> Iterator[tuple[Request, list[Completion]]]:
        """Answer the requests in blocks of prompts of about the same length."""
        import torch

        from robust_eval.model.answer_tree import sample_answers
        from robust_eval.model.packed_prefixes import PackedPrefixes
        from robust_eval.model.prefix_rows import PrefixRows

        if not requests:
            return
        encoded = sorted(
            ((self._encode(request.prompt), request) for request in requests), key=lambda pair: len(pair[0])
        )
        shared = _common_prefix([ids for ids, _ in encoded])[: len(encoded[0][0]) - 1]
        packs = self._can_pack(shared, [ids for ids, _ in encoded])
        prefixes = PackedPrefixes(self.model, shared) if packs else PrefixRows(self.model, shared)
        for block in _blocks(encoded, self.config.answers_at_once, PADDING if packs else 0):
            prompts, asked = [ids for ids, _ in block], [request for _, request in block]
            try:
                answers = sample_answers(prefixes, asked, prompts, self._vocabulary, self.generation)
            except torch.OutOfMemoryError as problem:
                reason = f"model {self.config.name}: out of memory with {len(prompts)} questions at once"
                raise UserError(f"{reason}; set model.answers_at_once lower") from problem
            for request, prompt, paths in zip(asked, prompts, answers, strict=True):
                yield request, self._completions(paths, len(prompt))

    def _can_pack(self, shared: Sequence[int], prompts: Sequence[Sequence[int]]) -> bool:
        """Whether packed prefixes give this model's own logits at these lengths; ``prompts`` ascend in length."""
        from robust_eval.model.packed_prefixes import agrees_with_plain_passes

        longest = prompts[-1]
        if len(longest) > self._checked_length:
            shorter = [prompt for prompt in prompts if len(prompt) < len(longest)]
            self._packs = agrees_with_plain_passes(self.model, shared, [*shorter[-1:], longest])
            self._checked_length = len(longest)
            if not self._packs:
                log.info(
                    "model %s: tree attention differs from plain passes; using a row for each prefix", self.config.name
                )
        return bool(self._packs)

    def _encode(self, prompt: Prompt) -> list[int]:
        if self.config.prompt_style == "plain":
            text, special = prompt.text(), True
        else:  # the template writes the special tokens itself
            messages = prompt.messages(self._system_role)
            options = {"tokenize": False, "add_generation_prompt": True, "date_string": TODAY}
            text = self.tokenizer.apply_chat_template(messages, **options)
            special = False
        return list(self.tokenizer(text, add_special_tokens=special).input_ids)

    def _completions(self, paths: "Paths", prompt_tokens: int) -> list[Completion]:
        read: dict[tuple[int, ...], tuple[str, int]] = {}
        completions = []
        for row, length in enumerate(paths.lengths.tolist()):
            ids = tuple(paths.tokens[row, :length].tolist())
            if ids not in read:
                read[ids] = self._read(ids)
            text, answer_tokens = read[ids]
            top = paths.top_logprobs
            completions.append(
                Completion(
                    temperature=float(paths.temperatures[row]),
                    trial=int(paths.trials[row]),
                    text=text,
                    token_ids=list(ids),
                    token_logprobs=paths.token_logprobs[row, :length].tolist(),
                    sampling_logprobs=paths.sampling_logprobs[row, :length].tolist(),
                    top_logprobs=None if top is None else top[row, :length].tolist(),
                    answer_tokens=answer_tokens,
                    finish_reason="stop" if paths.stopped[row] else "length",
                    prompt_tokens=prompt_tokens,
                )
            )
        return completions

    def _read(self, ids: tuple[int, ...]) -> tuple[str, int]:
        """The text of an answer up to its first line break, and how many leading tokens carry it."""
        carrying = len(ids)
        if self._vocabulary.ends[ids[-1]] and not self._vocabulary.carries[ids[-1]]:
            carrying -= 1
        text = self._text(ids[:carrying])
        if self.config.prompt_style == "plain":
            return text.split("\n", 1)[0].strip(), carrying
        # A chat reply may open with line breaks, and go on after the line that is its answer.
        answer = text.strip().split("\n", 1)[0].strip()
        while carrying and self._text(ids[: carrying - 1]).strip().split("\n", 1)[0].strip() == answer:
            carrying -= 1
        return answer, carrying

    def _text(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _read_vocabulary(self) -> "Vocabulary":
        """Which token ids end an answer and which carry text of it, read off the tokenizer and generation config."""
        import torch

        from robust_eval.model.answer_tree import Vocabulary

        size = self.model.get_output_embeddings().weight.shape[0]
        ends = torch.zeros(size, dtype=torch.bool)
        carries = torch.ones(size, dtype=torch.bool)
        eos = self.model.generation_config.eos_token_id
        end_ids = {*(eos if isinstance(eos, list) else [eos]), self.tokenizer.eos_token_id} - {None}
        for token in end_ids:
            ends[token], carries[token] = True, False
        if self.config.prompt_style == "plain":
            ids = [[token] for token in range(min(size, len(self.tokenizer)))]
            texts = self.tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=False)
            for token, text in enumerate(texts):
                if "\n" in text:
                    ends[token] = True
                    carries[token] = bool(text.split("\n", 1)[0].strip())
        return Vocabulary(ends.to(self.model.device), carries.to(self.model.device))


def _takes_system_role(tokenizer: Any) -> bool:
    """Whether the chat template shows a system line; some raise, and some drop it in silence."""
    from jinja2 import TemplateError

    messages = Prompt("SYSTEM LINE", (), "question").messages()
    try:
        return "SYSTEM LINE" in tokenizer.apply_chat_template(messages, tokenize=False)
    except TemplateError:
        return False


def _common_prefix(sequences: Sequence[list[int]]) -> list[int]:
    """The longest beginning that all sequences share: that of the first and the last in lexical order."""
    first, last = min(sequences), max(sequences)
    differ = (index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(differ, len(first))]


PROMPT_TOKENS_AT_ONCE = 8192
"""Prompt tokens that are evaluated together at most."""
PADDING = 4
"""Prompts in a block differ by at most so many tokens, so that little is computed for nothing."""


def _blocks(
    encoded: list[tuple[list[int], Request]], answers_at_once: int, padding: int
) -> Iterator[list[tuple[list[int], Request]]]:
    """Prompts, sorted by length, as many together as bring no more than ``answers_at_once`` answers (one at least)."""
    block: list[tuple[list[int], Request]] = []
    answers = 0
    for ids, request in encoded:
        answers += request.answers
        tokens = (len(block) + 1) * len(ids)
        longer = bool(block) and len(ids) > len(block[0][0]) + padding
        if block and (longer or answers > answers_at_once or tokens > PROMPT_TOKENS_AT_ONCE):
            yield block
            block, answers = [], request.answers
        block.append((ids, request))
    if block:
        yield block

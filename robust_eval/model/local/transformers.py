"""Any causal language model that transformers can load: from a hub, a folder, or an embedded package."""

import logging
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request
from robust_eval.model.config import PROMPT_STYLES, Division, ModelConfig
from robust_eval.model.generation import Generation
from robust_eval.model.local.batching import PADDING, Beside, blocks, growing_blocks
from robust_eval.model.local.embedded import CONVERSION, converted_model, package_folder
from robust_eval.model.local.fingerprint import folder_hash, hub_commit, no_model
from robust_eval.model.local.memory import bytes_per_question, cuda_is_there, free_memory, out_of_memory
from robust_eval.model.local.prompt_encoder import ChatTemplate, PromptEncoder
from robust_eval.model.local.thinking import Thinking
from robust_eval.model.local.tokenizer_file import tokenizer_file
from robust_eval.model.token_texts import token_texts
from robust_eval.model.workload import Terms

if TYPE_CHECKING:
    from robust_eval.model.local.answer_tree import Paths, Prefixes
    from robust_eval.model.local.exact_tree import Enumerated
    from robust_eval.model.local.vocabulary import Vocabulary

log = logging.getLogger(__name__)

VERSION = 1
"""To be raised with a change that gives other answers to the same request: stored ones then count no longer."""
DTYPES = ("auto", "float32", "bfloat16", "float16")
MOST_ANSWERS_AT_ONCE = {False: 1600, True: 25_600}
"""On a CPU more were measured not to pay; on CUDA (True) there is no such measurement, and the memory decides."""


@dataclass
class Transformers(ModelConfig):
    """Where the model comes from and how it is run."""

    name: str
    """The name of the model in logs, tables and the tracker."""
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
    answers_at_once: int | None = None
    """Answers whose prefixes are evaluated together at most (those of one question always are): bounds the memory; the
    answers do not depend on it. null: as many as pay and fit into half of the free memory, fewer if that was too
    many."""
    stop: list[str] = field(default_factory=list)
    """Strings before which an answer ends, besides the model's end-of-text tokens and, in plain text, line breaks."""
    chat_template: ChatTemplate = field(default_factory=ChatTemplate)
    """How the chat template is filled."""
    thinking_budget: int | None = None
    """Tokens that the model may think before each answer; then the end of its reasoning is written for it. 0: it
    answers without thinking. null: nothing is done about thinking."""
    generation: Generation = field(default_factory=Generation)

    def __post_init__(self) -> None:
        if self.thinking_budget is not None and self.prompt_style != "chat":
            raise ValueError("thinking_budget needs prompt_style=chat: a model does not think on plain text")
        if self.thinking_budget is not None and self.thinking_budget < 0:
            raise ValueError(f"thinking_budget must be 0 or more, not {self.thinking_budget}")
        if self.prompt_style not in PROMPT_STYLES:
            raise ValueError(f"prompt_style must be plain or chat, not {self.prompt_style}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype}")
        if self.answers_at_once is not None and self.answers_at_once < 1:
            raise ValueError(f"answers_at_once must be at least 1, not {self.answers_at_once}")
        if "" in self.stop:
            raise ValueError("stop must not hold an empty string, which ends every answer")
        if self.path.startswith("embedded:") and not self.sha256:
            raise ValueError("sha256 must be given for an embedded model")

    def terms(self) -> Terms:
        """It costs nothing but time."""
        return Terms(chat=self.prompt_style == "chat", reply_tokens=self.reply_tokens)

    def reply_tokens(self, max_new_tokens: int) -> int:
        """Return how many tokens a reply has at most whose answer may have ``max_new_tokens``."""
        return max_new_tokens + (self.thinking_budget or 0)

    def identity(self) -> dict[str, Any]:
        """Return the files of the model, its number format, and how it is prompted; see ModelConfig."""
        device = self._device()
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
            "dtype": self._dtype(device),
            "device": device.partition(":")[0],
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

        device = self._device()
        dtype = self._dtype(device)
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
        loaded = TransformersModel(self, model, tokenizer)
        log.info("model %s: %s on %s", self.name, dtype, device)
        return loaded

    def divide(self, requests: Sequence[Request]) -> Division:
        """See ModelConfig; the tokenizer is loaded for it, and not the model."""
        tokenizer = self._tokenizer()
        encode = PromptEncoder(tokenizer, self.prompt_style, self.chat_template, self.thinking(tokenizer))
        encoded = encode.by_length(requests)
        divided = growing_blocks(encoded, self.most_answers_at_once)
        return Division([[request for _, request in block] for block in divided], Beside.of(encoded))

    def thinking(self, tokenizer: Any) -> Thinking | None:
        """Return how the model thinks; None where it does not."""
        if self.thinking_budget is None:
            return None
        return Thinking(tokenizer, self.thinking_budget, self.chat_template.thinking_end)

    @property
    def most_answers_at_once(self) -> int:
        """Answers in a block at most, where the memory holds them."""
        return self.answers_at_once or MOST_ANSWERS_AT_ONCE[self._device().startswith("cuda")]

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

    def on(self, device: str) -> "Transformers":
        """Return the settings with this device, where theirs is ``auto``."""
        return replace(self, device=device) if self.device == "auto" else self

    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if cuda_is_there() else "cpu"

    def _dtype(self, device: str) -> str:
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if device.startswith("cuda") else "float32"

    def _folder(self) -> str | Path:
        if not self.path.startswith("embedded:"):
            return self.path
        package, _, file = self.path.removeprefix("embedded:").partition("/")
        return converted_model(package_folder(package) / file, str(self.sha256))


class TransformersModel(LanguageModel):
    """A loaded model; see :class:`robust_eval.model.base.LanguageModel`."""

    def __init__(self, config: Transformers, model: Any, tokenizer: Any) -> None:
        from robust_eval.model.local.cpu_linear import use_faster_linear

        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.generation = config.generation.effective(model.generation_config)
        self._parameters = model.num_parameters()
        self._linear = use_faster_linear(model)
        self._thinking = config.thinking(tokenizer)
        self._encode = PromptEncoder(tokenizer, config.prompt_style, config.chat_template, self._thinking)
        self._vocabularies = {first_line: self._read_vocabulary(first_line) for first_line in (True, False)}
        self._at_once = config.answers_at_once  # less once that was too many
        self._packs: bool | None = None
        self._prefixes: tuple[tuple[list[int], bool], Prefixes] | None = None
        self._checked_length = 0
        self._bytes_per_question = 0

    def description(self) -> dict[str, Any]:
        """Return what was loaded and the generation settings in effect."""
        import torch

        return {
            "name": self.config.name,
            "path": self.config.path,
            "revision": getattr(self.model.config, "_commit_hash", None) or self.config.sha256 or "local files",
            "class": type(self.model).__name__,
            "parameters": self._parameters,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
            "threads": torch.get_num_threads(),
            "linear": self._linear,
            "prefixes": {None: "not asked yet", True: "packed", False: "a row each"}[self._packs],
            "attention": "answer_tree" if self._packs else self.model.config._attn_implementation,
            "bytes_per_question_at_most": self._bytes_per_question,
            "prompt_style": self.config.prompt_style,
            "thinking_budget": self.config.thinking_budget,
            **{f"generation.{name}": value for name, value in asdict(self.generation).items()},
        }

    def check(self, requests: Sequence[Request], curves: bool) -> None:
        """Accept all requests but those for the probabilities of answers that follow on thoughts of many kinds."""
        if self._thinks and (curves or any(request.enumeration for request in requests)):
            raise UserError(
                f"model {self.config.name} thinks before it answers (model.thinking_budget), and sampler=exact and "
                "sampler.estimator=combined need the probabilities of its answers whatever it thinks: choose "
                "sampler=temperature_sweep, or model.thinking_budget=0"
            )

    @property
    def _thinks(self) -> bool:
        return self._thinking is not None and self._thinking.budget > 0

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], beside: Beside | None = None
    ) -> Iterator[list[Reply]]:
        """Answer the missing requests in blocks of prompts of about the same length."""
        if not requests:
            return
        requests = [replace(request, known=frozenset()) if request.known else request for request in requests]
        if self._thinks:
            for request in (request for request in requests if request.item in missing):
                yield [Reply(request, self._thoughtful(request))]
            return
        encoded = self._encode.by_length(self._readable(requests))
        divided = [encoded] if beside else growing_blocks(encoded, self.config.most_answers_at_once)
        beside = beside or Beside.of(encoded)
        prefixes, packs = self._prefixes_after(beside)
        self._bytes_per_question = bytes_per_question(
            self.model, packs, len(beside.longest[-1]), beside.answers, beside.new_tokens
        )
        fit = free_memory(self.model.device) // 2 // (self._bytes_per_question // beside.answers)
        for together in divided:
            for block in blocks(together, lambda: self._at_once or max(1, fit), PADDING if packs else 0):
                if wanted := [pair for pair in block if pair[1].item in missing]:
                    yield from self._replies(prefixes, wanted)

    def _thoughtful(self, request: Request) -> list[Completion]:
        """Return the answers to a request, each behind a thought of its own.

        Thoughts of one question are written together, and then the answers. No other question has a part in it, so
        that the numbers do not depend on what is asked beside it.
        """
        thinking = self._thinking
        assert thinking is not None
        prompt = self._encode(request.prompt)
        thoughts = self._written([(prompt, thinking.request(request))], (thinking.end.encode(),))[0]
        behind = [(thinking.prompt(prompt, thought), thinking.answer(request, thought)) for thought in thoughts]
        answers = self._written(behind)
        return [thinking.with_thought(answer, thought) for (answer,), thought in zip(answers, thoughts, strict=True)]

    def _written(
        self, encoded: list[tuple[list[int], Request]], stop: tuple[bytes, ...] = ()
    ) -> list[list[Completion]]:
        """Return the completions of each request, in their order; ``stop`` are strings that end them besides."""
        order = sorted(range(len(encoded)), key=lambda place: len(encoded[place][0]))
        ascending = [encoded[place] for place in order]
        beside = Beside.of(ascending)
        prefixes, packs = self._prefixes_after(beside)
        size = bytes_per_question(self.model, packs, len(beside.longest[-1]), beside.answers, beside.new_tokens)
        fit = max(1, free_memory(self.model.device) // 2 // (size // beside.answers))
        most = self.config.most_answers_at_once
        found: list[list[Completion]] = []
        for block in blocks(ascending, lambda: min(self._at_once or fit, most), PADDING if packs else 0):
            for replies in self._replies(prefixes, block, stop):
                found += [reply.completions for reply in replies]
        return [found[order.index(place)] for place in range(len(encoded))]

    def _prefixes_after(self, beside: Beside) -> "tuple[Prefixes, bool]":
        """Return what evaluates prefixes after the tokens that all prompts share, and whether it packs them."""
        from robust_eval.model.local.packed_prefixes import PackedPrefixes
        from robust_eval.model.local.prefix_rows import PrefixRows

        packs = self._can_pack(beside)
        if self._prefixes is None or self._prefixes[0] != (beside.shared, packs):
            kind = PackedPrefixes if packs else PrefixRows
            self._prefixes = (beside.shared, packs), kind(self.model, beside.shared)
        return self._prefixes[1], packs

    def _readable(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Return the requests without their matchers where these cannot read the tokens; UserError where they must."""
        if not self.config.stop and not any(request.matcher or request.enumeration for request in requests):
            return requests
        try:
            _ = self._vocabularies[True].texts
        except ValueError as problem:
            if self.config.stop:
                raise UserError(f"model {self.config.name}: model.stop cannot be used: {problem}") from problem
            if any(request.enumeration or not request.whole for request in requests):
                raise UserError(f"model {self.config.name}: {problem}; choose sampler=temperature_sweep") from problem
            log.warning("model %s: no combined estimate: %s", self.config.name, problem)
            return [replace(request, matcher=None) for request in requests]
        return requests

    def _replies(
        self, prefixes: "Prefixes", block: Sequence[tuple[list[int], Request]], stop: tuple[bytes, ...] = ()
    ) -> Iterator[list[Reply]]:
        """Yield the replies to a block of requests; where they do not fit into the memory, to one half
        after the other.
        """
        problem = None
        try:
            replies = self._answered(prefixes, block, stop)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            problem = first_line(error)  # the error itself holds on to what was computed
        if problem is None:
            yield replies
            return
        if len(block) == 1:
            reason = f"model {self.config.name}: out of memory with the answers to one question: {problem}"
            raise UserError(f"{reason}; ask for fewer of them, or on a device with more memory")
        self._at_once = max(1, sum(request.answers for _, request in block) // 2)
        log.warning("out of memory with %d prompts at once; going on with half of them", len(block))
        for half in (block[: len(block) // 2], block[len(block) // 2 :]):
            yield from self._replies(prefixes, half, stop)

    def _answered(
        self, prefixes: "Prefixes", block: Sequence[tuple[list[int], Request]], stop: tuple[bytes, ...]
    ) -> list[Reply]:
        from robust_eval.model.local.answer_tree import sample_answers
        from robust_eval.model.local.choice_probabilities import enumerate_choices
        from robust_eval.model.local.exact_tree import enumerate_answers

        prompts, asked = [ids for ids, _ in block], [request for _, request in block]
        enumeration, vocabulary = asked[0].enumeration, self._vocabularies[asked[0].first_line]
        vocabulary = replace(vocabulary, stop=(*vocabulary.stop, *stop)) if stop else vocabulary
        if enumeration is None:
            drawn = sample_answers(prefixes, asked, prompts, vocabulary, self.generation)
            read = [self._drawn(r, paths, len(p)) for r, paths, p in zip(asked, drawn, prompts, strict=True)]
            return [Reply(r, answers, paths.curve) for r, answers, paths in zip(asked, read, drawn, strict=True)]
        enumerate_block = enumerate_choices if enumeration.choices else enumerate_answers
        found = enumerate_block(prefixes, asked, prompts, vocabulary, self.generation)
        read = [self._enumerated(r, tree, len(p)) for r, tree, p in zip(asked, found, prompts, strict=True)]
        return [Reply(r, answers, tree.curve) for r, answers, tree in zip(asked, read, found, strict=True)]

    def _can_pack(self, beside: Beside) -> bool:
        """Tell whether packed prefixes give this model's own logits at the lengths of these prompts.

        A window that the longest answer to the longest prompt does not exceed changes nothing, so one tree of that
        length is compared, when a length is first reached, rather than one beyond any window, which can take minutes.
        """
        from robust_eval.model.local.packed_prefixes import agrees_with_plain_passes

        length = len(beside.longest[-1]) + beside.new_tokens
        if length > self._checked_length:
            answered = [[*prompt, *islice(cycle(prompt), beside.new_tokens)] for prompt in beside.longest]
            self._packs = agrees_with_plain_passes(self.model, beside.shared, answered)
            self._checked_length = length
            if not self._packs:
                log.info(
                    "model %s: tree attention differs from plain passes; using a row for each prefix", self.config.name
                )
        return bool(self._packs)

    def _drawn(self, request: Request, paths: "Paths", prompt_tokens: int) -> list[Completion]:
        read: dict[tuple[int, ...], tuple[str, int]] = {}
        completions = []
        for row, length in enumerate(paths.lengths.tolist()):
            ids = tuple(paths.tokens[row, :length].tolist())
            if ids not in read:
                read[ids] = self._read(ids, request.first_line)
            text, answer_tokens = read[ids]
            top = paths.top_logprobs
            completions.append(
                Completion(
                    temperature=float(paths.temperatures[row]),
                    trial=int(paths.trials[row]),
                    text=text,
                    weight=1 / request.trials,
                    token_ids=list(ids),
                    token_logprobs=paths.token_logprobs[row, :length].tolist(),
                    sampling_logprobs=paths.sampling_logprobs[row, :length].tolist(),
                    top_logprobs=None if top is None else top[row, :length].tolist(),
                    answer_tokens=answer_tokens,
                    finish_reason=paths.finish_reason(row),
                    prompt_tokens=prompt_tokens,
                )
            )
        return completions

    def _enumerated(self, request: Request, enumerated: "Enumerated", prompt_tokens: int) -> list[Completion]:
        columns = [enumerated.curve.temperatures.tolist().index(t) for t in request.temperatures]
        completions = []
        for trial, answers in enumerate(enumerated.answers):
            text, answer_tokens = self._read(answers.tokens, request.first_line)
            at_one = answers.logprobs[:, enumerated.curve.temperatures.tolist().index(1.0)].tolist()
            for temperature, column in zip(request.temperatures, columns, strict=True):
                if answers.weight[column] > 0:
                    completions.append(
                        Completion(
                            temperature=temperature,
                            trial=trial,
                            text=text,
                            weight=float(answers.weight[column]),
                            token_ids=list(answers.tokens),
                            token_logprobs=at_one,
                            sampling_logprobs=answers.logprobs[:, column].tolist(),
                            top_logprobs=None,
                            answer_tokens=answer_tokens,
                            finish_reason=answers.finish_reason,
                            prompt_tokens=prompt_tokens,
                        )
                    )
        return completions

    def _read(self, ids: tuple[int, ...], first_line: bool) -> tuple[str, int]:
        """Return the text of an answer, which its first line break may end, and how many leading tokens carry it."""
        carrying, vocabulary = len(ids), self._vocabularies[first_line]
        if vocabulary.ends[ids[-1]] and not vocabulary.carries[ids[-1]]:
            carrying -= 1
        if not first_line:
            text = self._until_stop(ids)
            while self.config.stop and carrying and self._until_stop(ids[: carrying - 1]) == text:
                carrying -= 1
            return text, carrying
        answer = self._answer(ids[:carrying])
        if self.config.prompt_style == "chat" or self.config.stop:  # either may go on after what is the answer
            while carrying and self._answer(ids[: carrying - 1]) == answer:
                carrying -= 1
        return answer, carrying

    def _answer(self, ids: Sequence[int]) -> str:
        """Return the first line of what the tokens write, up to a stop string; a chat reply may open with
        line breaks.
        """
        text = self._until_stop(ids)
        if self.config.prompt_style == "chat":
            text = text.strip()
        return text.split("\n", 1)[0].strip()

    def _until_stop(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        for stop in self.config.stop:
            text = text.split(stop, 1)[0]
        return text

    def _read_vocabulary(self, first_line: bool) -> "Vocabulary":
        """Return which token ids end an answer, of which the ``first_line`` counts or all, and which carry text of it.

        Read off the tokenizer and the generation config.
        """
        import torch

        from robust_eval.model.local.vocabulary import Vocabulary

        size = self.model.get_output_embeddings().weight.shape[0]
        ends = torch.zeros(size, dtype=torch.bool)
        carries = torch.ones(size, dtype=torch.bool)
        eos = self.model.generation_config.eos_token_id
        end_ids = {*(eos if isinstance(eos, list) else [eos]), self.tokenizer.eos_token_id} - {None}
        for token in end_ids:
            ends[token], carries[token] = True, False
        if first_line and self.config.prompt_style == "plain":
            ids = [[token] for token in range(min(size, len(self.tokenizer)))]
            texts = self.tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=False)
            for token, text in enumerate(texts):
                if "\n" in text:
                    ends[token] = True
                    carries[token] = bool(text.split("\n", 1)[0].strip())
        return Vocabulary(
            ends.to(self.model.device),
            carries.to(self.model.device),
            lambda: token_texts(self.tokenizer, size),
            tuple(stop.encode() for stop in self.config.stop),
            first_line=first_line and self.config.prompt_style == "chat",
        )

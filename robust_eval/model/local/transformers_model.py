"""Loaded causal language model of transformers, which samples answers from their tree."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from functools import cached_property
from itertools import chain, cycle, islice, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request
from robust_eval.model.local.batching import BatchContext, blocks, group_by_question
from robust_eval.model.local.device import bytes_per_question, free_memory, is_out_of_memory, use_faster_linear
from robust_eval.model.local.exact_tree import Enumerated, enumerate_answers, enumerate_choices
from robust_eval.model.local.prefixes import (
    PackedPrefixes,
    Prefixes,
    PrefixRows,
    WholeSequences,
    agrees_with_plain_passes,
    cache_agrees_with_plain_passes,
)
from robust_eval.model.local.prompt_encoder import ReasoningPrompts, are_traces
from robust_eval.model.local.sampled_tree import TokenPaths, sample_answers
from robust_eval.model.local.settings import TransformersSettings
from robust_eval.model.local.vocabulary import AnswerTexts

log = logging.getLogger(__name__)


class TransformersModel(LanguageModel):
    """Loaded transformers model; see :class:`robust_eval.model.base.LanguageModel`.

    ``bytes_per_question`` is the maximum memory of a question of the last block; batch sizes follow from it.
    """

    def __init__(self, config: TransformersSettings, model: Any, tokenizer: Any) -> None:
        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        try:
            self.generation = config.generation.effective(model.generation_config)
        except ValueError as problem:
            raise UserError(
                f"model.generation.preset={config.generation.preset}: in the generation_config of model {config.name}, "
                f"{problem}: set model.generation.preset=full, and the other settings of model.generation"
            ) from problem
        self._parameters = model.num_parameters()
        self._linear = use_faster_linear(model)
        self._thinking = config.thinking(tokenizer)
        self._encode = config.encoder(tokenizer)
        self.texts = AnswerTexts(model, tokenizer, config.prompt_style, config.stop)
        self._max_answers = config.batch_size  # reduced after running out of memory
        self._packs: bool | None = None
        self._rows: type[PrefixRows | WholeSequences] = PrefixRows  # where prefixes are not packed
        self._prefixes: tuple[tuple[list[int], type[Prefixes]], Prefixes] | None = None
        self._checked_length = 0
        self.bytes_per_question = 0

    def description(self) -> dict[str, Any]:
        """Return the transformers model's metadata and effective generation settings."""
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
            "prefixes": {
                None: "not probed yet",
                True: "packed",
                False: "one row per prefix" if self._rows is PrefixRows else "one row per prefix, without a cache",
            }[self._packs],
            "attention": "answer_tree" if self._packs else self.model.config._attn_implementation,
            "prompt_style": self.config.prompt_style,
            "thinking_budget": self.config.thinking_budget,
            **{f"generation.{name}": value for name, value in asdict(self.generation).items()},
        }

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse probabilities of answers after reasoning, and reasoning requests that contradict the settings."""
        if self._thinking is not None and any(request.reasoning for request in requests):
            raise UserError(
                f"sampler=thinking sets the reasoning budget of model {self.config.name}: remove model.thinking_budget"
            )
        if self._thinks and any(request.enumeration for request in requests):
            raise UserError(
                f"model {self.config.name} reasons before it answers (model.thinking_budget), but sampler=exact needs "
                "answers without reasoning: choose sampler=temperature_sweep, or set model.thinking_budget=0"
            )
        if self._thinks and any(request.stop_on_match for request in requests):
            raise UserError(
                f"sampler.stop_on_match=true has no effect on model {self.config.name}, which reasons before it "
                "answers: remove it, or set model.thinking_budget=0"
            )

    @property
    def _thinks(self) -> bool:
        return self._thinking is not None and self._thinking.budget > 0

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: BatchContext | None = None
    ) -> Iterator[list[Reply]]:
        """Yield the transformers model's replies to the missing requests, in blocks of prompts of similar length."""
        if not requests:
            return
        requests = [replace(request, cached=frozenset()) if request.cached else request for request in requests]
        self._check_readable(requests)
        if requests[0].reasoning is not None:
            yield from self._trace_replies(requests, missing, batch_context)
        elif self._thinks:
            for request in (request for request in requests if request.item in missing):
                yield [Reply(request, self._answers_after_reasoning(request))]
        else:
            yield from self._in_blocks(self._encode.in_order(requests), missing, batch_context)

    def _in_blocks(
        self,
        encoded: list[tuple[list[int], Request]],
        missing: Set[Item],
        batch_context: BatchContext | None,
        stop: tuple[str, ...] = (),
    ) -> Iterator[list[Reply]]:
        """Yield the replies to the missing requests in blocks, in their order; ``stop`` are additional stop strings."""
        sizes, max_answers = self.config.block_sizes, self.config.max_answers_at_once
        divided = [encoded] if batch_context else blocks(encoded, lambda: max_answers, sizes)
        batch_context = batch_context or BatchContext.of(encoded)
        prefixes, packs = self._prefixes_after(batch_context, encoded)
        self.bytes_per_question = bytes_per_question(
            self.model, packs, len(batch_context.longest[-1]), batch_context.answers, batch_context.new_tokens
        )
        fit = free_memory(self.model.device) // 2 // (self.bytes_per_question // batch_context.answers)
        within = sizes._replace(ramp_up=1, padding=sizes.padding if packs else 0)
        for together in divided:
            if not packs:  # a block has prompts of one length
                together = sorted(together, key=lambda pair: len(pair[0]))
            for block in blocks(together, lambda: min(self._max_answers or max(1, fit), max_answers), within):
                if pending := [pair for pair in block if pair[1].item in missing]:
                    yield from self._replies(prefixes, pending, stop)

    def _answers_after_reasoning(self, request: Request) -> list[Completion]:
        """Return the loaded model's answers to a request, each after its own reasoning trace.

        The traces of one question are generated together, then the answers, without other questions, so that the
        numbers do not depend on the batch context.
        """
        thinking = self._thinking
        assert thinking is not None
        prompt = self._encode(request.prompt)
        (traced,) = self._generate([(prompt, thinking.request(request))], (thinking.end,))
        traces = traced.completions
        continuations = [(thinking.prompt(prompt, trace), thinking.answer(request, trace)) for trace in traces]
        answers = [answer for reply in self._generate(continuations) for answer in reply.completions]
        return [thinking.with_trace(answer, trace) for answer, trace in zip(answers, traces, strict=True)]

    def _trace_replies(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: BatchContext | None
    ) -> Iterator[list[Reply]]:
        """Yield reasoning traces of several questions together, or the loaded model's answers after traces.

        All answers to one question are generated together, whichever are missing: they share its prompt. Other
        questions are not in the batch.
        """
        trace_prompts = ReasoningPrompts(self.tokenizer, self.config.chat_template)
        if are_traces(requests):
            for replies in self._in_blocks(
                trace_prompts.in_order(requests), missing, batch_context, trace_prompts.stop
            ):
                yield [trace_prompts.read(reply) for reply in replies]
            return
        for together in group_by_question(requests):
            if any(request.item in missing for request in together):
                replies = self._generate([(trace_prompts.prompt(request), request) for request in together])
                yield [trace_prompts.read(reply) for reply in replies if reply.request.item in missing]

    def _generate(self, encoded: list[tuple[list[int], Request]], stop: tuple[str, ...] = ()) -> list[Reply]:
        """Generate the loaded model's reply to each request, in their order; ``stop`` are additional stop strings."""
        order = sorted(range(len(encoded)), key=lambda place: len(encoded[place][0]))
        ascending = [encoded[place] for place in order]
        items = {request.item for _, request in encoded}
        replies = list(chain.from_iterable(self._in_blocks(ascending, items, BatchContext.of(ascending), stop)))
        return [replies[order.index(place)] for place in range(len(encoded))]

    def _prefixes_after(
        self, batch_context: BatchContext, encoded: Sequence[tuple[list[int], Request]]
    ) -> tuple[Prefixes, bool]:
        """Return the loaded model's evaluator of prefixes after the prompts' shared tokens; True if it packs them."""
        self._check_tokens(encoded)
        packs = self._can_pack(batch_context)
        kind: type[PackedPrefixes | PrefixRows | WholeSequences] = PackedPrefixes if packs else self._rows
        if self._prefixes is None or self._prefixes[0] != (batch_context.shared, kind):
            self._prefixes = (batch_context.shared, kind), kind(self.model, batch_context.shared)
        return self._prefixes[1], packs

    def _check_tokens(self, encoded: Sequence[tuple[list[int], Request]]) -> None:
        """Raise UserError for prompts with tokens that the loaded model lacks, or with more than it has positions for.

        A model without a table of positions is only warned of, once.
        """
        size = self.model.get_input_embeddings().weight.shape[0]
        if (largest := max(max(ids) for ids, _ in encoded)) >= size:
            token = self.tokenizer.convert_ids_to_tokens(largest)
            raise UserError(
                f"model {self.config.name}: the token {token!r} of a prompt has id {largest}, but the model's "
                f"vocabulary has only {size} tokens: use the tokenizer that the model was trained with"
            )
        prompt, answer = max(((len(ids), request.max_new_tokens) for ids, request in encoded), key=sum)
        limit, length = self._positions, prompt + answer - 1  # the last token is not evaluated
        if limit is None or length <= limit:
            return
        problem = (
            f"model {self.config.name}: a prompt of {prompt} tokens with an answer of {answer} exceeds the {limit} "
            "tokens of its context"
        )
        if self._has_position_table:
            raise UserError(f"{problem}: leave out long questions, use fewer exemplars, or reduce max_new_tokens")
        if length > self._checked_length:
            log.warning("%s: such answers are unreliable", problem)

    @cached_property
    def _positions(self) -> int | None:
        """Maximum number of tokens that the loaded model is made for; None if unknown."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @cached_property
    def _has_position_table(self) -> bool:
        """True if the loaded model looks up positions in a table, which ends at the last one."""
        assert self._positions is not None
        tokens = self.model.get_input_embeddings()
        tables = [each for each in self.model.modules() if isinstance(each, torch.nn.Embedding) and each is not tokens]
        buffers = [len(each) for name, each in self.model.named_buffers() if name.endswith("embed_positions")]
        sizes = {*buffers, *(table.num_embeddings for table in tables)}
        return bool(sizes & {self._positions, self._positions + 2})  # OPT and BART have two more

    def _check_readable(self, requests: Sequence[Request]) -> None:
        """Raise UserError if the texts of the loaded model's tokens are needed and unreadable."""
        if not self.config.stop and not any(request.stop_on_match or request.enumeration for request in requests):
            return
        try:
            _ = self.texts.vocabularies[True].texts
        except ValueError as problem:
            if self.config.stop:
                raise UserError(f"model {self.config.name}: model.stop cannot be used: {problem}") from problem
            instead = "sampler=temperature_sweep" if requests[0].enumeration else "sampler.stop_on_match=false"
            raise UserError(f"model {self.config.name}: {problem}; choose {instead}") from problem

    def _replies(
        self, prefixes: Prefixes, block: Sequence[tuple[list[int], Request]], stop: tuple[str, ...] = ()
    ) -> Iterator[list[Reply]]:
        """Yield the loaded model's replies to a block; if they exceed the memory, to one half after the other."""
        problem = None
        try:
            replies = self._reply_block(prefixes, block, stop)
        except FloatingPointError as undefined:
            raise UserError(
                f"model {self.config.name}: {undefined} with model.dtype={self.config.effective_dtype}: set "
                "model.dtype=float32, or check its weights"
            ) from undefined
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)  # the error itself references the computed tensors
        if problem is None:
            yield replies
            return
        if len(block) == 1:
            reason = f"model {self.config.name}: out of memory with the answers to one question: {problem.rstrip('.')}"
            raise UserError(f"{reason}; request fewer answers, or use a device with more memory")
        self._max_answers = max(1, sum(request.max_answers for _, request in block) // 2)
        log.warning("out of memory with %d prompts at a time; continuing with half as many", len(block))
        for half in (block[: len(block) // 2], block[len(block) // 2 :]):
            yield from self._replies(prefixes, half, stop)

    def _reply_block(
        self, prefixes: Prefixes, block: Sequence[tuple[list[int], Request]], stop: tuple[str, ...]
    ) -> list[Reply]:
        prompts, requests = [ids for ids, _ in block], [request for _, request in block]
        enumeration, vocabulary = requests[0].enumeration, self.texts.vocabularies[requests[0].first_line]
        if stop:
            vocabulary = self.texts.stopping_at(stop, requests[0].first_line)
        if enumeration is None:
            sampled = sample_answers(prefixes, requests, prompts, vocabulary, self.generation)
            answers = [paths.answers() for paths in sampled]
            texts = self._texts_of(chain.from_iterable(answers), requests[0].first_line)
            return [
                Reply(request, _completions(**_sampled(paths, ids, texts), prompt_tokens=repeat(len(prompt))))
                for request, paths, ids, prompt in zip(requests, sampled, answers, prompts, strict=True)
            ]
        enumerate_block = enumerate_choices if enumeration.choices else enumerate_answers
        trees = enumerate_block(prefixes, requests, prompts, vocabulary, self.generation)
        texts = self._texts_of(chain.from_iterable(tree.tokens for tree in trees), requests[0].first_line)
        return [
            Reply(
                request,
                _completions(**_enumerated(request, tree, texts), prompt_tokens=repeat(len(prompt))),
                tree.curve,
            )
            for request, tree, prompt in zip(requests, trees, prompts, strict=True)
        ]

    def _texts_of(
        self, answers: Iterable[tuple[int, ...]], first_line: bool
    ) -> Mapping[tuple[int, ...], tuple[str, int]]:
        """Return the texts of answers, and the numbers of tokens that carry them; see :meth:`AnswerTexts.read`."""
        distinct = [*dict.fromkeys(answers)]
        return dict(zip(distinct, self.texts.read(distinct, first_line), strict=True))

    def _can_pack(self, batch_context: BatchContext) -> bool:
        """Return whether packed prefixes reproduce the loaded model's logits at the lengths of these prompts.

        A sliding window has no effect up to the length of the longest prompt with the longest answer. So one tree of
        that length is compared when the length first occurs, not one beyond any window, which can take minutes.
        """
        length = len(batch_context.longest[-1]) + batch_context.new_tokens
        if length > self._checked_length:
            limit = self._positions
            is_limited = limit is not None and (length - 1 <= limit or self._has_position_table)
            max_tokens = limit - 2 if limit is not None and is_limited else None  # the comparison appends two tokens
            sequences = [
                [*prompt, *islice(cycle(prompt), batch_context.new_tokens)][:max_tokens]
                for prompt in batch_context.longest
            ]
            shared = batch_context.shared[: min(map(len, sequences)) - 2]
            self._packs = agrees_with_plain_passes(self.model, shared, sequences)
            self._checked_length = length
            if not self._packs:
                message = "model %s: tree attention and separate forward passes differ; using a row for each prefix"
                log.info(message, self.config.name)
                if not cache_agrees_with_plain_passes(self.model, sequences[-1]):
                    self._rows = WholeSequences
                    log.warning(
                        "model %s: its forward passes with a cache give wrong results in this version of transformers; "
                        "using passes over whole sequences, which are slower",
                        self.config.name,
                    )
        return bool(self._packs)


def _completions(**columns: Iterable[Any]) -> list[Completion]:
    """Return completions from the columns of their fields; the other fields have their defaults."""
    columns = {name: repeat(default) for name, default in Completion._field_defaults.items()} | columns
    rows = zip(*(columns.pop(name) for name in Completion._fields), strict=False)  # some repeat a value
    if columns:
        raise TypeError(f"completions have no {', '.join(columns)}")
    return [*map(Completion._make, rows)]


def _sampled(
    paths: TokenPaths, answers: Sequence[tuple[int, ...]], texts: Mapping[tuple[int, ...], tuple[str, int]]
) -> dict[str, Iterable[Any]]:
    """Return the columns of the completions of sampled ``answers``, their tokens."""

    def cut(column: NDArray[Any]) -> list[list[Any]]:
        return [row[: len(answer)] for row, answer in zip(column.tolist(), answers, strict=True)]

    read = [*map(texts.__getitem__, answers)]
    return {
        "temperature": paths.temperatures.tolist(),
        "trial": paths.trials.tolist(),
        "text": [text for text, _ in read],
        "token_ids": map(list, answers),
        "token_logprobs": cut(paths.token_logprobs),
        "sampling_logprobs": cut(paths.sampling_logprobs),
        "top_logprobs": repeat(None) if paths.top_logprobs is None else cut(paths.top_logprobs),
        "answer_tokens": [tokens for _, tokens in read],
        "finish_reason": paths.finish_reasons(),
    }


def _enumerated(
    request: Request, enumerated: Enumerated, texts: Mapping[tuple[int, ...], tuple[str, int]]
) -> dict[str, Iterable[Any]]:
    """Return the columns of the completions of enumerated answers, at each temperature at which they have a weight."""
    answers, columns = np.nonzero(enumerated.weights)
    places, at = answers.tolist(), columns.tolist()
    read, tokens = [*map(texts.__getitem__, enumerated.tokens)], [*map(list, enumerated.tokens)]
    return {
        "temperature": [request.temperatures[column] for column in at],
        "trial": enumerated.trials[answers].tolist(),
        "text": [read[place][0] for place in places],
        "weight": enumerated.weights[answers, columns].tolist(),
        "token_ids": [tokens[place] for place in places],
        "token_logprobs": [enumerated.logprobs[place][0] for place in places],
        "sampling_logprobs": [enumerated.logprobs[place][1 + column] for place, column in zip(places, at, strict=True)],
        "answer_tokens": [read[place][1] for place in places],
        "finish_reason": [enumerated.finish_reasons[place] for place in places],
    }

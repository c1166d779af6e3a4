"""A causal language model of transformers that is loaded, and answers by the tree of its answers."""

import logging
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, replace
from itertools import cycle, islice
from typing import Any

import torch

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request
from robust_eval.model.local.answer_texts import AnswerTexts
from robust_eval.model.local.answer_tree import Paths, Prefixes, sample_answers
from robust_eval.model.local.batching import PADDING, BatchContext, blocks, growing_blocks
from robust_eval.model.local.choice_probabilities import enumerate_choices
from robust_eval.model.local.cpu_linear import use_faster_linear
from robust_eval.model.local.exact_tree import Enumerated, enumerate_answers
from robust_eval.model.local.memory import bytes_per_question, free_memory, out_of_memory
from robust_eval.model.local.packed_prefixes import PackedPrefixes, agrees_with_plain_passes
from robust_eval.model.local.prefix_rows import PrefixRows
from robust_eval.model.local.settings import TransformersSettings
from robust_eval.model.local.thinking import ThoughtPrompts, alone, by_question

log = logging.getLogger(__name__)


class TransformersModel(LanguageModel):
    """A loaded model; see :class:`robust_eval.model.base.LanguageModel`.

    ``bytes_per_question`` is the memory that a question of the last block can take at most; batch sizes follow from it.
    """

    def __init__(self, config: TransformersSettings, model: Any, tokenizer: Any) -> None:
        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.generation = config.generation.effective(model.generation_config)
        self._parameters = model.num_parameters()
        self._linear = use_faster_linear(model)
        self._thinking = config.thinking(tokenizer)
        self._encode = config.encoder(tokenizer)
        self.texts = AnswerTexts(model, tokenizer, config.prompt_style, config.stop)
        self._at_once = config.answers_at_once  # less once that was too many
        self._packs: bool | None = None
        self._prefixes: tuple[tuple[list[int], bool], Prefixes] | None = None
        self._checked_length = 0
        self.bytes_per_question = 0

    def description(self) -> dict[str, Any]:
        """Return what was loaded and the generation settings in effect."""
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
            "prompt_style": self.config.prompt_style,
            "thinking_budget": self.config.thinking_budget,
            **{f"generation.{name}": value for name, value in asdict(self.generation).items()},
        }

    def check(self, requests: Sequence[Request]) -> None:
        """Accept all requests but those for the probabilities of answers that follow on thoughts of many kinds, and
        those with other thoughts than the settings say.
        """
        if self._thinking is not None and any(request.thought for request in requests):
            raise UserError(
                f"model {self.config.name} thinks as model.thinking_budget says, and sampler=thinking has budgets of "
                "its own: leave out model.thinking_budget"
            )
        if self._thinks and any(request.enumeration for request in requests):
            raise UserError(
                f"model {self.config.name} thinks before it answers (model.thinking_budget), and sampler=exact needs "
                "the probabilities of its answers whatever it thinks: choose sampler=temperature_sweep, or "
                "model.thinking_budget=0"
            )

    @property
    def _thinks(self) -> bool:
        return self._thinking is not None and self._thinking.budget > 0

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: BatchContext | None = None
    ) -> Iterator[list[Reply]]:
        """Answer the missing requests in blocks of prompts of about the same length."""
        if not requests:
            return
        requests = [replace(request, known=frozenset()) if request.known else request for request in requests]
        self._check_readable(requests)
        if requests[0].thought is not None:
            yield from self._of_thoughts(requests, missing, batch_context)
        elif self._thinks:
            for request in (request for request in requests if request.item in missing):
                yield [Reply(request, self._thoughtful(request))]
        else:
            yield from self._in_blocks(self._encode.in_order(requests), missing, batch_context)

    def _in_blocks(
        self,
        encoded: list[tuple[list[int], Request]],
        missing: Set[Item],
        batch_context: BatchContext | None,
        stop: tuple[bytes, ...] = (),
    ) -> Iterator[list[Reply]]:
        """Yield the replies to the missing requests, block by block of prompts in their order; ``stop`` are strings
        that end them besides.
        """
        divided = [encoded] if batch_context else growing_blocks(encoded, self.config.most_answers_at_once)
        batch_context = batch_context or BatchContext.of(encoded)
        prefixes, packs = self._prefixes_after(batch_context)
        self.bytes_per_question = bytes_per_question(
            self.model, packs, len(batch_context.longest[-1]), batch_context.answers, batch_context.new_tokens
        )
        fit = free_memory(self.model.device) // 2 // (self.bytes_per_question // batch_context.answers)
        for together in divided:
            if not packs:  # which takes prompts of one length together alone
                together = sorted(together, key=lambda pair: len(pair[0]))
            for block in blocks(together, lambda: self._at_once or max(1, fit), PADDING if packs else 0):
                if wanted := [pair for pair in block if pair[1].item in missing]:
                    yield from self._replies(prefixes, wanted, stop)

    def _thoughtful(self, request: Request) -> list[Completion]:
        """Return the answers to a request, each behind a thought of its own.

        Thoughts of one question are written together, and then the answers. No other question has a part in it, so
        that the numbers do not depend on what is asked beside it.
        """
        thinking = self._thinking
        assert thinking is not None
        prompt = self._encode(request.prompt)
        (written,) = self._written([(prompt, thinking.request(request))], (thinking.end.encode(),))
        thoughts = written.completions
        behind = [(thinking.prompt(prompt, thought), thinking.answer(request, thought)) for thought in thoughts]
        answers = [answer for reply in self._written(behind) for answer in reply.completions]
        return [thinking.with_thought(answer, thought) for answer, thought in zip(answers, thoughts, strict=True)]

    def _of_thoughts(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: BatchContext | None
    ) -> Iterator[list[Reply]]:
        """Yield thoughts alone, of several questions together, or the answers behind thoughts.

        Answers about one question are written together, whichever are missing: they share its prompt. No other question
        has a part in it.
        """
        thoughts = ThoughtPrompts(self.tokenizer, self.config.chat_template)
        if alone(requests):
            for replies in self._in_blocks(thoughts.in_order(requests), missing, batch_context, thoughts.stop):
                yield [thoughts.read(reply) for reply in replies]
            return
        for together in by_question(requests):
            if any(request.item in missing for request in together):
                replies = self._written([(thoughts.prompt(request), request) for request in together])
                yield [thoughts.read(reply) for reply in replies if reply.request.item in missing]

    def _written(self, encoded: list[tuple[list[int], Request]], stop: tuple[bytes, ...] = ()) -> list[Reply]:
        """Return the reply to each request, in their order; ``stop`` are strings that end them besides."""
        order = sorted(range(len(encoded)), key=lambda place: len(encoded[place][0]))
        ascending = [encoded[place] for place in order]
        batch_context = BatchContext.of(ascending)
        prefixes, packs = self._prefixes_after(batch_context)
        size = bytes_per_question(
            self.model, packs, len(batch_context.longest[-1]), batch_context.answers, batch_context.new_tokens
        )
        fit = max(1, free_memory(self.model.device) // 2 // (size // batch_context.answers))
        most = self.config.most_answers_at_once
        found: list[Reply] = []
        for block in blocks(ascending, lambda: min(self._at_once or fit, most), PADDING if packs else 0):
            for replies in self._replies(prefixes, block, stop):
                found += replies
        return [found[order.index(place)] for place in range(len(encoded))]

    def _prefixes_after(self, batch_context: BatchContext) -> tuple[Prefixes, bool]:
        """Return what evaluates prefixes after the tokens that all prompts share, and whether it packs them."""
        packs = self._can_pack(batch_context)
        if self._prefixes is None or self._prefixes[0] != (batch_context.shared, packs):
            kind = PackedPrefixes if packs else PrefixRows
            self._prefixes = (batch_context.shared, packs), kind(self.model, batch_context.shared)
        return self._prefixes[1], packs

    def _check_readable(self, requests: Sequence[Request]) -> None:
        """UserError where the texts of tokens are needed and cannot be read."""
        if not self.config.stop and all(request.whole and not request.enumeration for request in requests):
            return
        try:
            _ = self.texts.vocabularies[True].texts
        except ValueError as problem:
            if self.config.stop:
                raise UserError(f"model {self.config.name}: model.stop cannot be used: {problem}") from problem
            instead = "sampler=temperature_sweep" if requests[0].enumeration else "sampler.whole_answers=true"
            raise UserError(f"model {self.config.name}: {problem}; choose {instead}") from problem

    def _replies(
        self, prefixes: Prefixes, block: Sequence[tuple[list[int], Request]], stop: tuple[bytes, ...] = ()
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
        self, prefixes: Prefixes, block: Sequence[tuple[list[int], Request]], stop: tuple[bytes, ...]
    ) -> list[Reply]:
        prompts, asked = [ids for ids, _ in block], [request for _, request in block]
        enumeration, vocabulary = asked[0].enumeration, self.texts.vocabularies[asked[0].first_line]
        vocabulary = replace(vocabulary, stop=(*vocabulary.stop, *stop)) if stop else vocabulary
        if enumeration is None:
            drawn = sample_answers(prefixes, asked, prompts, vocabulary, self.generation)
            read = [self._drawn(r, paths, len(p)) for r, paths, p in zip(asked, drawn, prompts, strict=True)]
            return [Reply(request, answers) for request, answers in zip(asked, read, strict=True)]
        enumerate_block = enumerate_choices if enumeration.choices else enumerate_answers
        found = enumerate_block(prefixes, asked, prompts, vocabulary, self.generation)
        read = [self._enumerated(r, tree, len(p)) for r, tree, p in zip(asked, found, prompts, strict=True)]
        return [Reply(r, answers, tree.curve) for r, answers, tree in zip(asked, read, found, strict=True)]

    def _can_pack(self, batch_context: BatchContext) -> bool:
        """Tell whether packed prefixes give this model's own logits at the lengths of these prompts.

        A window that the longest answer to the longest prompt does not exceed changes nothing, so one tree of that
        length is compared, when a length is first reached, rather than one beyond any window, which can take minutes.
        """
        length = len(batch_context.longest[-1]) + batch_context.new_tokens
        if length > self._checked_length:
            answered = [[*prompt, *islice(cycle(prompt), batch_context.new_tokens)] for prompt in batch_context.longest]
            self._packs = agrees_with_plain_passes(self.model, batch_context.shared, answered)
            self._checked_length = length
            if not self._packs:
                log.info(
                    "model %s: tree attention differs from plain passes; using a row for each prefix", self.config.name
                )
        return bool(self._packs)

    def _drawn(self, request: Request, paths: Paths, prompt_tokens: int) -> list[Completion]:
        read: dict[tuple[int, ...], tuple[str, int]] = {}
        completions = []
        for row, length in enumerate(paths.lengths.tolist()):
            ids = tuple(paths.tokens[row, :length].tolist())
            if ids not in read:
                read[ids] = self.texts.read(ids, request.first_line)
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

    def _enumerated(self, request: Request, enumerated: Enumerated, prompt_tokens: int) -> list[Completion]:
        columns = [enumerated.curve.temperatures.tolist().index(t) for t in request.temperatures]
        completions = []
        for trial, answers in enumerate(enumerated.answers):
            text, answer_tokens = self.texts.read(answers.tokens, request.first_line)
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

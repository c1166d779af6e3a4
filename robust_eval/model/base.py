"""Base class of language models, the requests to them, and their replies."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import groupby, product
from typing import Any, NamedTuple, Protocol

import numpy as np

from robust_eval.error import UserError
from robust_eval.model.token_texts import Ids, Mask, NextTokenOutcomes, TokenTexts
from robust_eval.prompt.prompt import Prompt
from robust_eval.question import LETTERS
from robust_eval.reader.letters import anchored_letter
from robust_eval.stats.interval import Floats as Floats

Item = tuple[str, int]
"""A question's id and the number of its prompt."""
TrialKey = tuple[float, int]
"""Temperature and trial of an answer."""


_ONE_LETTER = re.compile(rb"[\W_]*[A-Za-z][\W_]*")


@dataclass(frozen=True)
class LetterChoices:
    """Choices of one question as letters, each a reply of a single token."""

    count: int
    correct: int | None
    strict: bool = False

    @property
    def identity(self) -> str:
        """Text that differs for choices whose verdicts may differ."""
        return f"letters {self.count} {self.correct}{' strict' if self.strict else ''}"

    def tokens(self, texts: TokenTexts) -> list[Ids]:
        """Return the ids of the tokens of each choice's letter: "B", " B", "B." and the like."""
        return _tokens_by_letter(texts, self.count, self.strict)


@lru_cache(maxsize=64)
def _tokens_by_letter(texts: TokenTexts, choices: int, strict: bool) -> list[Ids]:
    letters = [
        anchored_letter(raw.decode("utf-8", "replace"), choices, strict) if _ONE_LETTER.fullmatch(raw) else None
        for raw in texts.raw
    ]
    return [np.flatnonzero([chosen == letter for chosen in letters]) for letter in LETTERS[:choices]]


class TokenVerdict(IntEnum):
    """Verdict of a matcher on a next token after a prefix of an answer.

    After ``BEGUN`` an accepted answer has begun, but is not complete. After ``RIGHT`` the answer is right if it ends;
    after ``DECIDED`` it is, and no continuation makes it wrong.
    """

    WRONG = 0
    BEGUN = 1
    RIGHT = 2
    DECIDED = 3


class Matcher(Protocol):
    """Matcher of one question: classifier of unfinished answers as right or wrong."""

    identity: str
    """Identifier, equal for matchers with the same rule."""

    def right(self, reply: str) -> bool:
        """Return whether a whole reply is right."""

    def state(self, prefix: bytes) -> bytes:
        """Return the canonical prefix after which each token has the same outcome as after ``prefix``."""

    def next_state(self, state: bytes, token: bytes) -> bytes | None:
        """Return :meth:`state` of a prefix with one more token if that follows from its ``state`` before; else None."""

    def next_tokens(self, prefix: bytes, texts: TokenTexts) -> NextTokenOutcomes:
        """Return the :class:`TokenVerdict` on each token after ``prefix``, which has no line break."""


@dataclass(frozen=True)
class Enumeration:
    """Enumeration of the answers to a request with their probabilities, in place of draws."""

    nodes: int
    """Maximum number of evaluated prefixes."""
    temperatures: tuple[float, ...]
    """Temperatures of the accuracy curve: 1, those of the request, and others."""
    choices: LetterChoices | None = None
    """Choices of a multiple-choice question, which is answered by one token."""
    draws: int = 8
    """Number of draws at each temperature of the request at which a model with top-k log-probabilities cannot be
    enumerated."""
    precision: float = 0.0
    """Sufficient standard error of an accuracy: a question that reaches it needs fewer nodes. 0: none."""


@dataclass(frozen=True)
class Reasoning:
    """Reasoning of a model before its answer to a request.

    ``tokens`` are a finished trace, which the answer follows. None: the model reasons first; a local model then returns
    its traces only, as replies, and a service also answers. ``most`` is the reasoning budget: a number of tokens, or a
    word of the service; None after a finished trace.
    """

    tokens: tuple[int, ...] | None = None
    most: int | str | None = None


@dataclass(frozen=True)
class Request:
    """Request to a language model for all answers to one prompt.

    Temperature 0 is greedy decoding; :data:`robust_eval.answer.DEFAULT_TEMPERATURE` leaves the temperature to the
    model. Every (seed, question, variant, temperature, trial) has its own stream of random numbers, so the answers do
    not depend on the batch context.

    >>> from robust_eval.prompt.prompt import Prompt
    >>> prompt = Prompt(system="", exemplars=(), question="Capital of Italy?")
    >>> request = Request("q1", 0, prompt, temperatures=(0.5, 1.0), trials=10, max_new_tokens=16, seed=0)
    >>> item: Item = request.item
    >>> item, request.max_answers
    (('q1', 0), 20)
    """

    question_id: str
    variant: int
    """Number of the prompt among those of its question, in the answers' column ``rewrite``: 0 is the question's own
    wording, its rewrites follow, and then other prompts (:data:`robust_eval.sampler.base.ROTATED`)."""
    prompt: Prompt
    temperatures: tuple[float, ...]
    trials: int
    """Number of answers at each temperature."""
    max_new_tokens: int
    """Length limit of an answer, in tokens."""
    seed: int
    top_logprobs: int = 0
    """Number of the largest log-probabilities of each position to return; 0 for none."""
    min_logprobs: int = 0
    """Minimum number of them; a model that returns fewer is refused."""
    matcher: Matcher | None = None
    """Classifier of answers that are enumerated, or that stop once they are right."""
    stop_on_match: bool = False
    """An answer stops as soon as no continuation can make it wrong."""
    enumeration: Enumeration | None = None
    """Enumerate instead of drawing; needs a matcher or choices."""
    first_line: bool = True
    """An answer is the first line of the model's text; False: all of it, as for a list."""
    cached: frozenset[TrialKey] = frozenset()
    """Conditions with answers in the store. Transformers models answer them again, for equal batches in every run."""
    first_trial: int = 0
    """Number of the first of the ``trials``."""
    form: str | None = None
    """Value of the answer table's column ``form``, the form of the question; None: unchanged. Nothing else reads it."""
    reasoning: Reasoning | None = None
    """Reasoning before the answer; None: as in the model's settings."""
    signs: tuple[str, ...] = ()
    """Signs of choices, to one of which a server restricts the reply; empty: a free reply."""

    @property
    def item(self) -> Item:
        """Identifier of the request among those of a sampler."""
        return self.question_id, self.variant

    @property
    def conditions(self) -> list[TrialKey]:
        """Temperature and trial of each requested answer."""
        return list(product(self.temperatures, range(self.first_trial, self.first_trial + self.trials)))

    @property
    def pending(self) -> list[TrialKey]:
        """Temperature and trial of each requested answer that is not cached."""
        untempered = {trial for temperature, trial in self.cached if math.isnan(temperature)}
        return [
            (temperature, trial)
            for temperature, trial in self.conditions
            if (trial not in untempered if math.isnan(temperature) else (temperature, trial) not in self.cached)
        ]

    @property
    def max_answers(self) -> int:
        """Maximum number of pending answers to the request, or of evaluated prefixes."""
        if self.enumeration:
            return self.enumeration.nodes
        return len(self.pending) if self.cached else len(self.temperatures) * self.trials


@dataclass(frozen=True)
class Temperatures:
    """Supported temperatures of a language model; by default all."""

    highest: float = math.inf
    greedy: bool = True
    """Temperature 0 is supported."""
    default_only: bool = False
    """The model has no temperature parameter, and answers at its default."""
    takes_effort: bool = False
    """The model has no temperature parameter, and takes a reasoning effort."""
    has_logprobs: bool = True
    """Its greedy answers have log-probabilities, of two tokens or more at each position."""


ALL = Temperatures()


class Completion(NamedTuple):
    """One answer in a reply. Log-probabilities are natural; ``top_logprobs`` is (tokens, k), largest first, at t = 1.

    ``token_ids`` holds all generated tokens, including the one that ends the answer; ``answer_tokens`` counts the
    leading ones that carry answer text. ``weight`` is the probability of an enumerated answer; the store gives each of
    k draws 1/k. Fields that a server omits are None. ``reasoning`` is the text before the answer, if it is separate.
    ``outcome`` is one of :data:`robust_eval.answer.OUTCOMES`; None means ok, or empty if the text is empty.
    ``prompt_tokens`` are billed with this answer; ``cached_tokens`` of them came from the service's cache.
    ``served_model`` and ``system_fingerprint`` are the service's names of the model that answered.

    >>> Completion(temperature=0.7, trial=3, text="Rome").weight
    1.0
    """

    temperature: float
    trial: int
    text: str
    weight: float = 1.0
    token_ids: list[int] | None = None
    token_logprobs: list[float] | None = None
    sampling_logprobs: list[float] | None = None
    top_logprobs: list[list[float]] | None = None
    answer_tokens: int | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    outcome: str | None = None
    reasoning: str | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    served_model: str | None = None
    system_fingerprint: str | None = None


@dataclass(frozen=True)
class Curve:
    """Accuracy curve of enumerated answers: the probability of a right one at each of T temperatures.

    ``lower`` and ``upper`` are guaranteed bounds, 0 and 1 by default. ``how`` names the estimator of each point, if
    there are several: ``bounds``, or ``draws`` at its temperature.
    """

    temperatures: Floats
    accuracy: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats
    how: Sequence[str] | None = None


class Reply(NamedTuple):
    """Reply to a request: all answers, or a ``share`` of the requested ones; enumerated answers have a curve.

    >>> from robust_eval.prompt.prompt import Prompt
    >>> request = Request("q1", 0, Prompt("", (), "Capital of Italy?"), (0.7,), trials=1, max_new_tokens=16, seed=0)
    >>> Reply(request, [Completion(temperature=0.7, trial=0, text="Rome")]).share
    1.0
    """

    request: Request
    """The request."""
    completions: list[Completion]
    """Answers, in any order."""
    curve: Curve | None = None
    """Accuracy by temperature, of enumerated answers."""
    share: float = 1.0
    """Share of the requested answers."""


class KeyValueStore(Protocol):
    """Entries of a model that outlive this process; see :class:`robust_eval.store.base.Entries`."""

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that are in the store, with their values."""

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Store all of these entries or none."""


class LanguageModel(Protocol):
    """Base class of loaded language models.

    A subclass implements ``complete`` and ``description``, which includes its ``name``.

    >>> class Silent(LanguageModel):
    ...     def complete(self, requests, missing, batch_context=None):
    ...         yield [Reply(request, []) for request in requests if request.item in missing]
    ...     def description(self):
    ...         return {"name": "silent"}
    >>> Silent().temperatures(2.0).greedy
    True
    """

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UserError if the language model cannot answer these requests; the message names an alternative.

        It is called before the first request. By default everything that needs log-probabilities is refused.
        """
        if any(request.reasoning for request in requests):
            raise UserError(
                f"{self.description()['name']} has no reasoning budget: sampler=thinking needs a local or served model"
            )
        if any(request.signs for request in requests):
            raise UserError(
                f"sampler.structured=true: {self.description()['name']} cannot restrict replies to letters, as some "
                "servers can: remove it"
            )
        if any(request.stop_on_match for request in requests):
            raise UserError(
                f"sampler.stop_on_match=true: {self.description()['name']} cannot end its answers early, as local "
                "models can: remove it"
            )
        if any(request.enumeration or request.min_logprobs for request in requests):
            raise UserError(
                f"{self.description()['name']} returns no log-probabilities: choose sampler=repetition or "
                "sampler=perturbation, without metric=frs"
            )

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        """Yield the replies to the requests whose items are ``missing``, a block at a time, in any order.

        ``requests`` also includes requests without missing answers, so that a resumed run forms the same blocks: the
        last digits of its numbers depend on the batch. If the requests are a block of
        :class:`robust_eval.model.model_config.Shards`, ``batch_context`` is that of the shards.
        """

    def complete_adaptively(
        self, requests: Sequence[Request], more: Callable[[], list[Request]]
    ) -> Iterator[list[Reply]]:
        """Yield the replies to the requests, then to those that ``more`` returns, until it returns none.

        By default they are answered in rounds. A concurrent model does not wait for a round.
        """
        while requests:
            yield from self.complete(requests, {request.item for request in requests})
            requests = more()

    def attach_store(self, store: KeyValueStore) -> None:
        """Use this store for the entries that a resumed run needs; by default, ignore it."""
        return

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """Cancel these requests' batches at a service; return a sentence for each. By default, raise UserError."""
        raise UserError(
            "no batch is in progress: cancel_batches=true cancels the batches of the same command with model.batch=true"
        )

    def use_rate_limiter(self, limiter: Any) -> None:
        """Send requests through this rate limiter, which other processes share; by default, ignore it."""
        return

    def batch_context(self) -> Any:
        """Return the batch context for other processes that answer the same requests; by default None."""
        return None

    def temperatures(self, highest: float) -> Temperatures:
        """Return the supported temperatures (default: all). ``highest`` is the highest one that the run needs."""
        return Temperatures()

    def status(self) -> str:
        """Return the language model's status line for the progress display; by default none."""
        return ""

    def description(self) -> dict[str, Any]:
        """Return the language model's metadata and effective generation settings, flat, for the record of the run."""


FURTHER_DRAWS = 2
"""Number of further draws near an accuracy of one half on an exact curve, as a multiple of the first ones."""
TOKENS_PER_PREFIX = 2
"""Number of tokens of the likeliest answer that are requested after each prefix but the first, which gets all."""


class Call(NamedTuple):
    """Part of a request that a server gets at once: one temperature, with consecutive trials."""

    request: Request
    temperature: float
    trials: tuple[int, ...]


def calls(request: Request, choices: int) -> Iterator[Call]:
    """Split a request into calls to a server for its pending answers, of at most ``choices`` answers each.

    Those of one prompt are consecutive, so that the prompt is in the server's cache.
    """
    runs = groupby(enumerate(request.pending), key=lambda each: (each[1][0], each[1][1] - each[0]))
    for (temperature, _), run in runs:  # of consecutive trials
        trials = tuple(trial for _, (_, trial) in run)
        for start in range(0, len(trials), choices):
            yield Call(request, temperature, trials[start : start + choices])


NEGLIGIBLE = 1e-4
"""Weight below which answers are merged into others."""


def normalize_to_accuracy(right: Mask, weights: Floats, accuracy: Floats, prompts: Ids) -> Floats:
    """Return weights (n, T) of enumerated answers to p prompts, scaled so that those of ``right`` (n,) ones add up to
    the ``accuracy`` (p, T) of their prompt, and those of wrong ones to the rest.

    ``prompts`` (n,) are the prompts of the answers, ascending; the right answers to each come first. A negligible
    weight at a temperature is added to the most probable answer with the same verdict.
    """
    if not len(weights):
        return weights
    starts = np.flatnonzero(np.diff(2 * prompts + ~right, prepend=-1))  # of the answers with one verdict
    side = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(weights)))
    target = np.where(right[starts, None], accuracy[prompts[starts]], 1 - accuracy[prompts[starts]])
    total = np.add.reduceat(weights, starts)[side]
    normalized = np.divide(weights * target[side], total, out=np.zeros_like(weights), where=total > 0)
    is_largest = ~(normalized < np.maximum.reduceat(normalized, starts)[side])
    row = np.where(is_largest, np.arange(len(weights))[:, None], len(weights))
    largest = np.minimum.reduceat(row, starts), np.arange(weights.shape[1])
    negligible = np.where(normalized < NEGLIGIBLE, normalized, 0.0)
    negligible[largest] = 0
    normalized -= negligible
    normalized[largest] += np.add.reduceat(negligible, starts)
    return normalized

"""What a sampler asks of a language model, and what it gets back."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from robust_eval.error import UserError
from robust_eval.model.token_texts import Ids, Mask, TokenTexts
from robust_eval.prompt.prompt import Prompt
from robust_eval.stats.interval import Floats as Floats

Item = tuple[str, int]
"""A question's id and the number of its rewrite."""


class Choices(Protocol):
    """The choices of one question, and the tokens that choose them."""

    @property
    def identity(self) -> str:
        """Equal for choices that are the same tokens, of which the same one is right."""

    @property
    def correct(self) -> int | None:
        """Index of the right one."""

    def tokens(self, texts: TokenTexts) -> list[Ids]:
        """Return for each choice the tokens that, as a whole reply, choose it."""


class NextTokens(NamedTuple):
    """What each token of a vocabulary of V makes of an answer that began in some way.

    ``right`` (V,): the answer is right if it ends after this token. ``closed`` (V,): it is right whatever follows.
    ``begun`` are the ids of tokens that begin an accepted answer or go on with one, which are likely to become right.
    """

    right: Mask
    closed: Mask
    begun: Ids


class Matcher(Protocol):
    """Tells right from wrong while an answer is being written."""

    identity: str
    """Equal for matchers that always say the same."""

    def right(self, reply: str) -> bool:
        """Tell whether a whole reply is right."""

    def next_tokens(self, prefix: bytes, texts: TokenTexts) -> NextTokens:
        """Return what each token makes of the answer that begins with ``prefix``, in which there is no line break."""


@dataclass(frozen=True)
class Enumeration:
    """Answers enumerated with their probabilities, in place of drawn ones."""

    nodes: int
    """Prefixes of answers that are evaluated at most."""
    temperatures: tuple[float, ...]
    """Where the accuracy is wanted: 1, those of the request, and others."""
    choices: Choices | None = None
    """Of a multiple-choice question, which is answered by one token."""
    draws: int = 8
    """Answers that are drawn at each temperature of the request at which a model that shows only some of its
    probabilities cannot be enumerated."""
    precision: float = 0.0
    """The standard error of an accuracy that is small enough: a question that reaches it takes fewer nodes. 0: none."""


@dataclass(frozen=True)
class Thought:
    """What a model thinks before it answers.

    ``tokens`` are those that it has thought: it answers behind them. None: it is to think first. Then a model that is
    loaded here gives its thoughts alone, as replies, and a service answers as well. ``most`` is how much it may think:
    a number of tokens, or a word of the service; None where it has thought.
    """

    tokens: tuple[int, ...] | None = None
    most: int | str | None = None


@dataclass(frozen=True)
class Request:
    """All answers that are wanted to one prompt.

    Temperature 0 is greedy decoding; :data:`robust_eval.answer.DEFAULT_TEMPERATURE` leaves the temperature to the
    model. Every (seed, question, rewrite, temperature, trial) has a stream of random
    numbers of its own, so the same answers come whatever is asked beside them.
    """

    question_id: str
    rewrite: int
    prompt: Prompt
    temperatures: tuple[float, ...]
    trials: int
    max_new_tokens: int
    seed: int
    top_logprobs: int = 0
    """How many of the largest log-probabilities of each position are wanted; 0 for none."""
    min_logprobs: int = 0
    """How many of them are needed; a model that gives fewer cannot be asked."""
    matcher: Matcher | None = None
    """Tells which answers are right, where they are enumerated or end once they are right."""
    whole: bool = True
    """False: an answer ends as soon as it is right whatever follows."""
    enumeration: Enumeration | None = None
    """Enumerate instead of drawing; needs a matcher or choices."""
    first_line: bool = True
    """An answer is the first line of what the model writes; False: all of it, as for a list."""
    known: frozenset[tuple[float, int]] = frozenset()
    """Temperature and trial of answers that are there already. A model may give them again."""
    first_trial: int = 0
    """The number of the first trial that is wanted at each temperature."""
    form: str | None = None
    """What the answer table says of how the question is put; None: as it stands. Nothing else reads it."""
    thought: Thought | None = None
    """What the model thinks before it answers; None: it is as its settings say."""

    @property
    def item(self) -> Item:
        """What tells it from the other requests of a sampler."""
        return self.question_id, self.rewrite

    @property
    def wanted(self) -> list[tuple[float, int]]:
        """Temperature and trial of each answer that is wanted and not known."""
        own = {trial for temperature, trial in self.known if math.isnan(temperature)}
        return [
            (temperature, trial)
            for temperature in self.temperatures
            for trial in range(self.first_trial, self.trials)
            if (trial not in own if math.isnan(temperature) else (temperature, trial) not in self.known)
        ]

    @property
    def answers(self) -> int:
        """How many answers are wanted that are not known, or prefixes of answers evaluated, at most."""
        if self.enumeration:
            return self.enumeration.nodes
        return len(self.wanted) if self.known else len(self.temperatures) * (self.trials - self.first_trial)


@dataclass(frozen=True)
class Temperatures:
    """The temperatures that a model takes; by default all."""

    highest: float = math.inf
    greedy: bool = True
    """Whether it takes temperature 0."""
    own: bool = False
    """Whether it takes none, and answers at one of its own."""


ALL = Temperatures()


@dataclass(frozen=True)
class Completion:
    """One answer. Log-probabilities are natural; ``top_logprobs`` is (tokens, k), largest first, at temperature 1.

    ``token_ids`` holds all generated tokens, also the one that ends the answer; ``answer_tokens`` counts the leading
    ones that carry answer text. ``weight`` is 1/k for one of k draws, and the probability of an enumerated answer.
    What a server does not say is None. ``reasoning`` is what the model wrote before its answer, where that comes apart.
    ``outcome`` is one of :data:`robust_eval.answer.OUTCOMES`; None: ok, or empty if
    the text is. ``prompt_tokens`` are those that are billed with this answer,
    ``cached_tokens`` those of them that the service had in its cache. ``served_model`` and ``system_fingerprint`` are
    the service's names for what answered.
    """

    temperature: float
    trial: int
    text: str
    weight: float
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
    """The probability of a right answer at each of T temperatures, of enumerated answers.

    ``lower`` and ``upper`` are bounds that are certain; they are 0 and 1 where nothing is. ``how`` says of each point
    how it was got, where they may be got in several ways: by ``bounds``, or by ``draws`` at its temperature.
    """

    temperatures: Floats
    accuracy: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats
    how: Sequence[str] | None = None


class Reply(NamedTuple):
    """What came of a request: everything, or answers as they are there, a ``share`` of those that were asked for.

    Enumerated answers come with a curve.
    """

    request: Request
    completions: list[Completion]
    curve: Curve | None = None
    share: float = 1.0


class KeyValueStore(Protocol):
    """Entries that outlive this process; see :class:`robust_eval.store.base.Entries`."""

    def get(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]: ...

    def put(self, entries: Mapping[bytes, bytes]) -> None: ...


class LanguageModel(Protocol):
    """A model that is loaded and ready.

    A class that names this one as its base has to ``complete`` requests and give a ``description`` of itself, in which
    its ``name`` stands.
    """

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UserError where the model cannot answer these requests.

        The message says what would work. It is called before anything is asked. By default everything is refused that
        needs log-probabilities.
        """
        if any(request.thought for request in requests):
            raise UserError(
                f"{self.description()['name']} cannot be told how much to think: sampler=thinking asks models that are "
                "loaded here, and servers"
            )
        if any(request.enumeration or request.min_logprobs for request in requests):
            raise UserError(
                f"{self.description()['name']} gives no log-probabilities: choose sampler=repetition or "
                "sampler=perturbation, without metric=frs"
            )

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        """Answer those of the requests whose items are ``missing``, a block of them at a time, in any order.

        The others are named as well, so that a block is the same whether all are asked at once or a run goes on where
        another was stopped: numbers depend in their last digits on what is computed together. Where the requests are
        one block of a :class:`robust_eval.model.config.Shards`, ``batch_context`` is what comes with it.
        """

    def in_waves(self, requests: Sequence[Request], more: Callable[[], list[Request]]) -> Iterator[list[Reply]]:
        """Answer the requests, and those that ``more`` returns once their replies are taken, until it returns none.

        By default they are answered in rounds. A model that answers many at once need not wait for all of them.
        """
        while requests:
            yield from self.complete(requests, {request.item for request in requests})
            requests = more()

    def attach_store(self, store: KeyValueStore) -> None:
        """Keep in this store what a resumed run needs; by default nothing."""
        return

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """Cancel what is under way elsewhere of these requests; return a sentence for each. By default UserError."""
        raise UserError(
            "nothing is under way: cancel_batches=true cancels what the same command with model.batch=true sent"
        )

    def use_rate_limiter(self, limiter: Any) -> None:
        """Send requests through a rate limiter that other processes share; by default nothing is sent."""
        return

    def batch_context(self) -> Any:
        """Return what others that answer the same requests must be told, see :meth:`complete`; by default nothing."""
        return None

    def temperatures(self, wanted: float) -> Temperatures:
        """Return which temperatures it takes; by default all. ``wanted`` is the highest that matters."""
        return Temperatures()

    def status(self) -> str:
        """Return what a person may want to see of the model while it works; by default nothing."""
        return ""

    def description(self) -> dict[str, Any]:
        """Return what was loaded and the generation settings in effect, flat, for the record of the run."""


FURTHER_DRAWS = 2
"""How many times as many answers are drawn once more where an exact curve passes near one half."""
LEVELS = 2
"""Tokens of the likeliest answer that are asked for after each beginning of one but the first, of which all are."""


class Call(NamedTuple):
    """A request to the server: answers to one prompt at one temperature, whose numbers follow on one another."""

    request: Request
    temperature: float
    trials: tuple[int, ...]


def calls(request: Request, choices: int) -> Iterator[Call]:
    """Yield the requests to a server that together ask for what is not known, of at most so many ``choices`` each.

    Those of one prompt come after one another, so that a server finds the prompt in its cache.
    """
    together: list[tuple[float, int]] = []
    for temperature, trial in request.wanted:
        if together and (len(together) == choices or together[-1] != (temperature, trial - 1)):
            yield _call(request, together)
            together = []
        together.append((temperature, trial))
    if together:
        yield _call(request, together)


def _call(request: Request, together: list[tuple[float, int]]) -> Call:
    return Call(request, together[0][0], tuple(trial for _, trial in together))

"""Answers of a model behind a server: many requests at once, none lost, none asked twice."""

import asyncio
import logging
import math
import queue
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from robust_eval.error import OutageError, UserError
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request, Temperatures
from robust_eval.model.calls import Call, calls
from robust_eval.model.logprobs import fault
from robust_eval.model.served.background import Background, run_sync
from robust_eval.model.served.completions import completions, extra_body, request_body, truncation, unanswered
from robust_eval.model.served.draw_watch import CERTAIN, DrawWatch, draw_watch, without_logprobs
from robust_eval.model.served.exact.continuation import (
    Ask,
    Continuation,
    LogprobRequest,
    LogprobSettings,
    find_continuation,
    no_continuation,
)
from robust_eval.model.served.exact.exact_answers import exact_reply, without_answers
from robust_eval.model.served.exact.topk_draws import LogprobClient
from robust_eval.model.served.limits.rate_limiter import EndedError, LocalRateLimiter, RateLimiter
from robust_eval.model.served.limits.retries import Attempts, Patience
from robust_eval.model.served.probe import CACHE, Capabilities, daily_cache_key, probe
from robust_eval.model.served.refusals import (
    draws_otherwise,
    refusal,
    repeats_itself,
    taken_temperatures,
    unfaithful,
)
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.transport.service import Answered, Answering, Service, UnansweredError
from robust_eval.model.workload import prompt_tokens
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.measured_choices import remembered
from robust_eval.runtime.process import allow_connections
from robust_eval.runtime.text import printable

log = logging.getLogger(__name__)
logging.getLogger("httpx2").setLevel(logging.WARNING)  # it reports each request

FEW = 10
"""Questions from which on the share of those that failed is judged."""
PROBED_AGAIN = 3
"""Repetitions of a request that finds out what the server can do: a wrong address should be said soon."""
_GIVEN = 500  # replies that wait to be kept, before nothing more is asked: a fast server would fill the memory
_MOMENT = 0.01  # seconds
_GATHERED = 0.02  # seconds for which replies are gathered: keeping many at once takes a fraction of the time
Got = TypeVar("Got")
_WAITING = 4  # tasks for each request that may be in flight: those that wait to be tried again hold nobody up


def by_prefix(request: Request) -> tuple[Any, ...]:
    """Return what requests are ordered by: prompts that begin alike follow one another, and a service finds in its
    cache what it has just read.
    """
    prompt = request.prompt
    return prompt.system, prompt.exemplars, prompt.question


class ServedModel(LanguageModel):
    """Asks the server in a thread of its own, many requests at once, each answer given on as soon as it is there."""

    def __init__(self, settings: ServiceSettings, key: str | None) -> None:
        allow_connections(settings.at_once, "model.at_once")
        self.settings = settings
        self.spending = settings.spending()
        self._attempts = Attempts(settings, LocalRateLimiter(settings, self.spending))
        self._key = key
        self._capabilities: Capabilities | None = None
        self._answered: set[Item] = set()
        self._failed: set[Item] = set()
        self._continuation: Continuation | None = None
        self._finding = asyncio.Lock()
        self._unknown_ends: list[str] = []
        self._watch: DrawWatch | None = None
        self._drawn_as_at: float | None = None

    @property
    def limiter(self) -> RateLimiter:
        """Rate limiter of the requests: of this process, or shared by several."""
        return self._attempts.limiter

    def check(self, requests: Sequence[Request]) -> None:
        """See LanguageModel; the server is asked what it can do."""
        thoughts = [request.thought for request in requests if request.thought]
        if thoughts and (reason := self.settings.thought_refusal(thoughts)):
            raise UserError(reason)
        enumerated = [request for request in requests if request.enumeration]
        if enumerated and (reason := self.settings.exact_refusal()):
            raise UserError(reason)
        if not all(request.whole for request in requests):
            raise UserError("sampler.whole_answers=false cannot be asked of a server: leave it out")
        hottest = max([t for request in requests for t in request.temperatures if not math.isnan(t)], default=0.0)
        can = self.capabilities(max(hottest, 1.0), requests)
        if reason := refusal(self.settings, can, requests):
            raise UserError(reason)
        if begun := next((request for request in enumerated if request.matcher), None):
            run_sync(partial(self._find_continuation, begun))

    async def _find_continuation(self, request: Request) -> None:
        async with self.settings.showing(self._key) as service, self._probing() as patience:
            self.limiter.begin()
            try:
                await self._continuation_of(service, request, patience)
            except (UnansweredError, EndedError) as problem:
                asked = f"{self.settings.server} failed while it was asked how it goes on with answers"
                raise OutageError(f"{asked}: {problem}") from None

    async def _continuation_of(
        self, service: Service, request: Request, patience: Patience | None = None
    ) -> Continuation | None:
        """Return how the server goes on with answers, found once; None where it need not. UserError where it cannot;
        raises UnansweredError.
        """
        if self._continuation is None and request.matcher is not None:
            found, reason = await find_continuation(
                self._logprob_client(service, request, patience).ask, self._logprob_settings, request.prompt
            )
            if found is None:
                raise UserError(no_continuation(self.settings.server, reason))
            log.info("%s: answers are continued by %s", self.settings.server, found.way)
            self._continuation = found
        return self._continuation

    @property
    def _logprob_settings(self) -> LogprobSettings:
        can = self._capabilities
        assert can is not None
        chat, body = self.settings.prompt_style == "chat", truncation(self.settings, can) | extra_body(self.settings)
        shown = (can.top_logprobs, can.whole_vocabulary)
        return LogprobSettings(chat, can.system_role, body, can.limit, *shown, can.greedy)

    def _logprob_client(self, service: Service, request: Request, patience: Patience | None = None) -> LogprobClient:
        """Return how the server is asked for the probabilities of the answers to a request; with ``patience``, before
        the run.
        """
        can = self._capabilities
        assert can is not None
        about = prompt_tokens(request.prompt, self.settings.prompt_style == "chat")

        async def repeated(once: Callable[[], Coroutine[Any, Any, Got]], name: object) -> Got:
            if patience is not None:
                return await patience.answer(once)
            return await self._attempts.until_answered(once, name, time.monotonic())

        async def positions(sending: LogprobRequest) -> Answered:
            once = partial(
                self._attempts.in_turn, about + sending.depth, sending.completion_tokens, partial(sending.to, service)
            )
            return await repeated(once, (request.item, sending.body))

        async def root(path: str, body: Mapping[str, Any]) -> Any:
            async def once() -> Any:
                return await self._attempts.in_time(service.asked_root(path, body))

            return await repeated(once, (request.item, path))

        return LogprobClient(
            Ask(positions, root), self._logprob_settings, partial(request_body, self.settings, can), can.choices
        )

    def temperatures(self, wanted: float) -> Temperatures:
        """Return what the settings say, or else the server."""
        return taken_temperatures(self.settings, self.capabilities(max(wanted, 1.0)))

    def capabilities(self, temperature: float, requests: Sequence[Request] = ()) -> Capabilities:
        """Return what the server can do, asked once a day; ``temperature`` is the highest that is wanted.

        It is asked again before any of these ``requests`` is refused: a fault may have looked like something that it
        cannot do.
        """

        def usable(can: Capabilities | None) -> bool:
            return can is not None and can.tells_of(temperature) and not refusal(self.settings, can, requests)

        if self._capabilities is None or not usable(self._capabilities):
            found = remembered(
                CACHE,
                daily_cache_key(self.settings.identity()),
                lambda: run_sync(partial(self._probe, temperature)).to_text(),
                lambda text: (known := Capabilities.from_text(text)) is not None and known.faithful and usable(known),
            )
            before, self._capabilities = self._capabilities, Capabilities.from_text(found)
            assert self._capabilities is not None
            log.info("%s: %s %s", self.settings.server, self.settings.model, self._capabilities.in_words())
            for said in unfaithful(self.settings, self._capabilities) if before != self._capabilities else ():
                log.warning("%s", said)
        return self._capabilities

    @asynccontextmanager
    async def _probing(self) -> AsyncIterator[Patience]:
        """Return what repeats the requests of a probe; OutageError where they take more than an answer may."""
        seconds = self.settings.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                yield Patience(self.settings, PROBED_AGAIN, self._attempts.in_time)
        except TimeoutError:
            raise OutageError(
                f"{self.settings.server} did not say within {seconds:g} s what it can do: a faster server, or a longer "
                "model.answer_seconds"
            ) from None

    async def _probe(self, temperature: float) -> Capabilities:
        settings = self.settings
        async with self._service() as service, self._probing() as patience:

            async def ask(prompt: Prompt, system_role: bool, body: Any) -> Answered:
                return await patience.answer(lambda: service.ask(prompt, system_role, extra_body(settings) | body))

            chat = settings.prompt_style == "chat"
            return await probe(ask, settings.server, chat, temperature, settings.top_logprobs)

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        """See LanguageModel; ``batch_context`` is what the server can do, where another process has asked it.

        What is known of a request is not asked again, and each answer comes as it is there.
        Where the run must end (budget, errors, a key that is refused), no request is begun any more, those under way
        are waited for, and UserError says why.
        """
        self._capabilities = batch_context or self._capabilities
        yield from self._stream([request for request in requests if request.item in missing])

    def in_waves(self, requests: Sequence[Request], more: Callable[[], list[Request]]) -> Iterator[list[Reply]]:
        """See LanguageModel. No request waits for the answers to another that it does not follow from."""
        yield from self._stream(requests, more)

    def _stream(
        self, requests: Sequence[Request], more: Callable[[], list[Request]] | None = None
    ) -> Iterator[list[Reply]]:
        wanted: deque[Request | None] = deque()  # the last first: what was begun is ended first
        ready: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        awaited = 0

        def want(requests: Sequence[Request]) -> None:
            nonlocal awaited
            for request in sorted(requests, key=by_prefix, reverse=True):
                wanted.append(request)
                awaited += request.answers

        if more is None:
            wanted.append(None)
        want(requests)  # before the work begins, which would meet the None below them first
        exactly = any(request.enumeration for request in requests)  # or none: they are those of one sampler
        answer_all = partial(self._answer_all, wanted, exactly, ready.put, ready.qsize)
        with Background(answer_all, lambda: ready.put(None)) as work:
            ended = False
            while not ended:
                if more and not awaited:
                    wanted.append(None)
                replies = [ready.get()]
                if more is None and not ended:
                    time.sleep(_GATHERED)
                while not ready.empty():
                    replies.append(ready.get())
                ended = None in replies
                came = [reply for reply in replies if reply is not None]
                awaited -= sum(len(reply.completions) for reply in came)
                yield came
                want(more() if more else [])
            work.result()

    def use_rate_limiter(self, limiter: RateLimiter) -> None:
        """See LanguageModel."""
        self._attempts.limiter = limiter

    def batch_context(self) -> Capabilities:
        """See LanguageModel: what the server can do."""
        return self.capabilities(1.0)

    def description(self) -> dict[str, Any]:
        """Return the address, what the server can do, and how it kept up."""
        can = {} if self._capabilities is None else asdict(self._capabilities)
        return {
            "name": self.settings.name,
            "server": self.settings.server,
            **{f"capability.{name}": value for name, value in can.items()},
            **self.limiter.description(),
            "repeated_requests": self._attempts.repeated,
            **({"unknown_finish_reasons": ", ".join(self._unknown_ends)} if self._unknown_ends else {}),
            **({} if self._drawn_as_at is None else {"drawn_as_at": self._drawn_as_at}),
        }

    def status(self) -> str:
        """Return the text of the progress bar: requests at once, and what was spent."""
        return self.limiter.status()

    def _service(self) -> AbstractAsyncContextManager[Answering]:
        return self.settings.service(self._key)

    async def _answer_all(
        self, wanted: deque[Request | None], exactly: bool, give: Callable[[Reply], None], given: Callable[[], int]
    ) -> None:
        """Answer the requests that come up to None, as many at once as the server bears, and while not too many of the
        replies that were ``given`` wait to be taken; UserError where the run must end. ``exactly``: by the tree of the
        answers to each.
        """
        settings = self.settings
        assert self._capabilities is not None
        self.limiter.begin()
        self._watch = draw_watch(settings, self._capabilities)
        # A tree is many requests, some of them at once, and is kept when it is whole: those that are begun are few.
        room = asyncio.Semaphore(settings.at_once if exactly else _WAITING * settings.at_once)
        async with AsyncExitStack() as services, asyncio.TaskGroup() as group:
            answer: Callable[[Call, Callable[[Reply], None]], Coroutine[Any, Any, None]]
            if exactly:
                service = await services.enter_async_context(settings.showing(self._key))
                answer = partial(self._answer_exactly, service)
            else:
                answer = partial(self._answer, await services.enter_async_context(self._service()))
            async for call in self._calls(wanted):
                await room.acquire()
                while given() > _GIVEN and not self._attempts.ended:
                    await asyncio.sleep(_MOMENT)
                if self._attempts.ended:
                    break
                task = group.create_task(answer(call, give))
                task.add_done_callback(lambda _: room.release())
        await self.limiter.counted(len(self._answered), len(self._failed))
        if self._attempts.ended:
            raise self._attempts.ended

    async def _calls(self, wanted: deque[Request | None]) -> AsyncIterator[Call]:
        """Yield what the server is asked, until nothing is wanted any more or the run must end."""
        assert self._capabilities is not None
        while True:
            while not wanted:
                if self._attempts.ended:
                    return
                await asyncio.sleep(_MOMENT)
            request = wanted.pop()
            if request is None:
                return
            if request.enumeration is not None:
                yield Call(request, math.nan, ())
            for call in calls(request, self._capabilities.choices):
                yield call

    async def _answer(self, service: Answering, call: Call, give: Callable[[Reply], None]) -> None:
        """Ask one call and put its answers where they are awaited; those that do not come in spite of all repetitions
        are errors.
        """
        name = call.request.item, call.temperature, call.trials
        left, began = call.trials, time.monotonic()
        while left:
            try:
                once = partial(self._once, service, call._replace(trials=left))
                came = await self._attempts.until_answered(once, name, began)
            except EndedError:
                return
            except UnansweredError as problem:
                outcome = self._failure(call.request, problem)
                self._give(call.request, [unanswered(call, trial, outcome) for trial in left], give)
                await self._judge(problem)
                return
            self._give(call.request, came, give)
            left = left[len(came) :]

    async def _answer_exactly(self, service: Service, call: Call, give: Callable[[Reply], None]) -> None:
        """Compute the probabilities of the answers to a request and put them where they are awaited, or an error."""
        request = call.request
        try:
            async with self._finding:
                continuation = await self._continuation_of(service, request)
            reply = await exact_reply(request, self._logprob_client(service, request), continuation)
        except EndedError:
            return
        except UserError as reason:
            self._attempts.end_as_told(reason)
            return
        except UnansweredError as problem:
            outcome = self._failure(request, problem)
            self._give(request, without_answers(request, outcome).completions, give)
            await self._judge(problem)
            return
        self._answered.add(request.item)
        give(reply)

    def _failure(self, request: Request, problem: UnansweredError) -> str:
        """Return the outcome of an answer that did not come, and log an error."""
        if problem.kind == "filtered":
            return "filtered_prompt"
        log.warning("question %s: %s", request.question_id, problem)
        return "error"

    async def _once(self, service: Answering, call: Call) -> list[Completion]:
        """Send a call when its turn has come: its answers, or the first of them; raises UnansweredError, or EndedError
        where the run ends before.
        """
        request, number = call.request, len(call.trials)
        about = prompt_tokens(request.prompt, self.settings.prompt_style == "chat")
        completion_tokens = number * self.settings.reply_tokens(request.max_new_tokens)
        can = self._capabilities
        assert can is not None
        body = request_body(self.settings, can, call)
        send = partial(service.ask, request.prompt, can.system_role)
        watch = self._watch if self._watch is not None and self._watch.covers(call) else None
        try:
            ask = partial(send, body | (watch.body if watch else {}))
            answered = await self._attempts.in_turn(about, completion_tokens, ask)
        except UnansweredError as problem:
            if watch is None or problem.kind != "wrong" or "logprob" not in problem.reason:
                raise
            self._watch = watch = None  # it refuses them with these settings
            answered = await self._attempts.in_turn(about, completion_tokens, partial(send, body))
        self._note_ends(answered)
        if watch:
            self._look(watch, call, answered)
        if not request.top_logprobs:  # the same is stored whether draws are watched or not
            answered = without_logprobs(answered)
        came = completions(call, call.trials, answered, self.settings.prompt_style)
        self._check_logprobs(came, min(request.min_logprobs, can.top_logprobs))
        return came

    def _note_ends(self, answered: Answered) -> None:
        """Warn once of each word for the end of a reply that is in no dialect."""
        for word in {printable(choice.unknown_reason[:40]) for choice in answered.choices if choice.unknown_reason}:
            if word not in self._unknown_ends and len(self._unknown_ends) < FEW:
                self._unknown_ends.append(word)
                log.warning(
                    "%s ends replies with finish_reason=%r, which is not known: they are taken as whole",
                    *(self.settings.server, word),
                )

    def _look(self, watch: DrawWatch, call: Call, answered: Answered) -> None:
        """Take the draws of a call into account; EndedError where the server cannot have drawn them."""
        watch.add(call, answered.choices)
        if watch.repetition() >= CERTAIN:
            reason = repeats_itself(self.settings, call.temperature)
            self._attempts.end_as_told(UserError(reason))
            self.limiter.end(reason)
            raise EndedError(reason)
        drawn_at = watch.drawn_as_at()
        if drawn_at is not None and self._drawn_as_at is None:
            self._drawn_as_at = drawn_at
            log.warning("%s", draws_otherwise(self.settings, call.temperature, drawn_at))

    def _check_logprobs(self, came: Sequence[Completion], needed: int) -> None:
        """UnansweredError where log-probabilities cannot be believed, or there are fewer than ``needed`` of a token."""
        for one in came:
            silent = one.outcome is not None or not one.text  # of what is no answer none are needed
            logprobs = one.token_logprobs, one.top_logprobs, one.answer_tokens
            if wrong := fault(*logprobs, 0 if silent else needed, whole_is_enough=False):
                raise UnansweredError("garbled", f"the server sent {wrong}")

    def _give(self, request: Request, completions: list[Completion], give: Callable[[Reply], None]) -> None:
        self._answered.add(request.item)
        if any(completion.outcome == "error" for completion in completions):
            self._failed.add(request.item)
        share = 1.0 if request.enumeration else len(completions) / request.answers
        give(Reply(request, completions, share=share))

    async def _judge(self, problem: UnansweredError) -> None:
        """End the run where too many questions failed."""
        self._judge_by(*await self.limiter.counted(len(self._answered), len(self._failed)), problem)

    def _judge_by(self, answered: int, failed: int, problem: UnansweredError) -> None:
        if answered >= FEW and failed > self.settings.max_error_rate * answered:
            self._attempts.end(
                f"an answer to {failed} of {answered} questions failed, more than "
                f"model.max_error_rate={self.settings.max_error_rate:g}; the last: {problem}"
            )

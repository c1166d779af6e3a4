"""Model behind a server, with concurrent requests or batches."""

import asyncio
import logging
import math
import queue
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from robust_eval.error import OutageError, UserError
from robust_eval.model.base import (
    Call,
    Completion,
    Item,
    KeyValueStore,
    LanguageModel,
    Reply,
    Request,
    Temperatures,
    calls,
)
from robust_eval.model.served.background import Background, run_sync
from robust_eval.model.served.batch_transport import BatchTransport
from robust_eval.model.served.completions import Intake, by_prefix, extra_body, request_body, truncation, unanswered
from robust_eval.model.served.draw_watch import (
    CERTAIN,
    DrawWatch,
    draw_watch,
    draws_otherwise,
    repeats_itself,
    without_logprobs,
)
from robust_eval.model.served.exact.continuation import LogprobClient, LogprobRequest, checked, find_method
from robust_eval.model.served.exact.exact_answers import exact_reply
from robust_eval.model.served.limits.rate_limiter import MAX_BATCHED, EndedError, LocalRateLimiter, RateLimiter
from robust_eval.model.served.limits.retries import Attempts, Patience
from robust_eval.model.served.probe import CACHE, REASONING_LIMIT, SHORT, Capabilities, daily_cache_key, probe
from robust_eval.model.served.refusals import refusal, taken_temperatures, unfaithful
from robust_eval.model.served.service_settings import ServiceSettings
from robust_eval.model.served.structured import find_restriction
from robust_eval.model.served.transport.service import Answering, Service, ServiceResponse, UnansweredError
from robust_eval.model.workload import prompt_tokens
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.cache import get_or_measure, store_choice
from robust_eval.runtime.process import allow_connections

log = logging.getLogger(__name__)
logging.getLogger("httpx2").setLevel(logging.WARNING)  # it reports each request

_MAX_QUEUED = 500  # replies that wait for the store: a fast server would fill the memory
_POLL_SECONDS = 0.01
_GATHER_SECONDS = 0.02  # replies of so many seconds are stored together, in a fraction of the time
_TASKS_PER_REQUEST = 4  # tasks for each concurrent request: those that wait for a retry delay no other


class ServedModel(LanguageModel):
    """Model behind a service, with concurrent requests in a thread of their own, whose answers are yielded as they
    arrive; or with batches, if ``poll_seconds``, the maximum polling interval, is set.
    """

    def __init__(self, settings: ServiceSettings, key: str | None, poll_seconds: float | None = None) -> None:
        allow_connections(settings.max_concurrency, "model.max_concurrency")
        self.settings = settings
        self.spending = settings.spending()
        self._attempts = Attempts(settings, LocalRateLimiter(settings, self.spending))
        self._intake = Intake(settings, self._attempts)
        self._key = key
        self._batches: BatchTransport | None = None
        if poll_seconds is not None:
            self._batches = BatchTransport(
                settings, self._openai_service, self._attempts, self.spending, self._intake, poll_seconds
            )
        self._capabilities: Capabilities | None = None
        self._watch: DrawWatch | None = None
        self._drawn_as_at: float | None = None

    @property
    def limiter(self) -> RateLimiter:
        """Rate limiter of the served model's requests: of this process, or shared by several."""
        return self._attempts.limiter

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UserError if the model cannot answer these requests, after a probe of its server; see LanguageModel."""
        budgets = [request.reasoning for request in requests if request.reasoning]
        if budgets and (reason := self.settings.reasoning_refusal(budgets)):
            raise UserError(reason)
        enumerated = [request for request in requests if request.enumeration]
        if enumerated and (reason := self.settings.exact_refusal()):
            raise UserError(reason)
        if any(request.stop_on_match for request in requests):
            raise UserError("sampler.stop_on_match=true needs a local model, and no server supports it: remove it")
        can = self._capabilities_for(requests)
        if reason := refusal(self.settings, can, requests):
            raise UserError(reason)
        begun = next((request for request in enumerated if request.matcher), None)
        if begun is not None and not can.continuation:
            self._capabilities = replace(can, continuation=run_sync(partial(self._find_continuation, begun)))

    def _capabilities_for(self, requests: Sequence[Request]) -> Capabilities:
        """Return the capabilities that these requests need; the restriction of replies is probed if one needs it."""
        hottest = max([t for request in requests for t in request.temperatures if not math.isnan(t)], default=0.0)
        can = self.capabilities(max(hottest, 1.0), requests)
        if any(request.signs for request in requests) and not can.structured:
            can = self._capabilities = replace(can, structured=run_sync(partial(self._find_restriction, can)))
            store_choice(CACHE, daily_cache_key(self.settings.identity()), can.to_text())
        return can

    async def _find_restriction(self, can: Capabilities) -> str:
        async with self.settings.service(self._key) as service, self._probing() as patience:
            limit = {can.limit: self.settings.reply_tokens(REASONING_LIMIT), **extra_body(self.settings)}

            async def ask(body: Mapping[str, Any]) -> ServiceResponse:
                return await patience.answer(lambda: service.ask(SHORT, can.system_role, {**limit, **body}))

            return await find_restriction(ask, self.settings.server)

    async def _find_continuation(self, request: Request) -> str:
        server = self.settings.server
        async with self._openai_service() as service, self._probing() as patience:
            self.limiter.begin()
            try:
                method = await find_method(
                    self._logprob_client(service, request, patience.answer), request.prompt, server
                )
            except (UnansweredError, EndedError) as problem:
                raise OutageError(f"{server} failed while continuations were tested: {problem}") from None
        log.info("%s: sampler=exact continues a partial answer from %s", server, method)
        return method

    def _openai_service(self) -> Service:
        service = self.settings.service(self._key)
        assert isinstance(service, Service)  # others refuse sampler=exact, and have their own batches
        return service

    def _logprob_client(self, service: Service, request: Request, repeated: Callable[..., Any]) -> LogprobClient:
        """Return the served model's client for probabilities of answers to a request, with these retries."""
        can, chat = self._can, self.settings.chat
        about = prompt_tokens(request.prompt, chat)

        async def positions(sent: LogprobRequest) -> ServiceResponse:
            async def ask() -> ServiceResponse:
                return checked(await service.ask_top_tokens(sent.path, sent.body), can)

            tokens = about + sent.depth, sent.completion_tokens
            response: ServiceResponse = await repeated(partial(self._attempts.in_turn, *tokens, ask))
            return response

        async def root(path: str, body: Mapping[str, Any]) -> Any:
            return await repeated(lambda: self._attempts.in_time(service.ask_root(path, body)))

        body = truncation(self.settings, can) | extra_body(self.settings)
        return LogprobClient(can, chat, body, partial(request_body, self.settings, can), positions, root)

    def temperatures(self, highest: float) -> Temperatures:
        """Return the supported temperatures, by the settings or else by a probe."""
        return taken_temperatures(self.settings, self.capabilities(max(highest, 1.0)))

    def capabilities(self, temperature: float, requests: Sequence[Request] = ()) -> Capabilities:
        """Return the served model's capabilities, probed once a day; ``temperature`` is the highest needed.

        It is probed again before any of these ``requests`` is refused, in case a fault looked like an incapability.
        """

        def usable(can: Capabilities | None) -> bool:
            return can is not None and can.covers(temperature) and not refusal(self.settings, can, requests)

        if self._capabilities is None or not usable(self._capabilities):
            result = get_or_measure(
                CACHE,
                daily_cache_key(self.settings.identity()),
                lambda: run_sync(partial(self._probe, temperature)).to_text(),
                lambda text: (can := Capabilities.from_text(text)) is not None and can.faithful and usable(can),
            )
            before, self._capabilities = self._capabilities, Capabilities.from_text(result)
            log.info("%s: %s %s", self.settings.server, self.settings.model, self._can.in_words())
            for warning in unfaithful(self.settings, self._can) if before != self._capabilities else ():
                log.warning("%s", warning)
        return self._can

    @property
    def _can(self) -> Capabilities:
        assert self._capabilities is not None
        return self._capabilities

    @asynccontextmanager
    async def _probing(self) -> AsyncIterator[Patience]:
        """Yield the retries of a served model's probe; raise OutageError if it takes longer than an answer may."""
        seconds = self.settings.total_timeout
        try:
            async with asyncio.timeout(seconds):
                yield Patience(self.settings, self._attempts)
        except TimeoutError:
            raise OutageError(
                f"the probe of {self.settings.server} took longer than model.total_timeout={seconds:g} s: raise it"
            ) from None

    async def _probe(self, temperature: float) -> Capabilities:
        settings = self.settings
        async with settings.service(self._key) as service, self._probing() as patience:

            async def ask(prompt: Prompt, system_role: bool, body: Any) -> ServiceResponse:
                return await patience.answer(lambda: service.ask(prompt, system_role, extra_body(settings) | body))

            return await probe(ask, settings.server, settings.chat, temperature, settings.top_logprobs)

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: Any = None
    ) -> Iterator[list[Reply]]:
        """Yield replies of the served model; ``batch_context`` are the capabilities, if another process has probed it.

        Cached answers are not requested, and each answer is yielded as it arrives. If the run ends early (budget,
        errors, a refused key), no request is sent, those in flight are awaited, and UserError has the reason.
        """
        self._capabilities = batch_context or self._capabilities
        pending = [request for request in requests if request.item in missing]
        if self._batches is None:
            yield from self._stream(pending)
        else:
            yield from self._batches.complete(pending, self._can)

    def complete_adaptively(
        self, requests: Sequence[Request], more: Callable[[], list[Request]]
    ) -> Iterator[list[Reply]]:
        """Yield replies of the served model. A request waits only for answers it follows from; batches go in rounds."""
        if self._batches is None:
            return self._stream(requests, more)
        return super().complete_adaptively(requests, more)

    def attach_store(self, store: KeyValueStore) -> None:
        """Use the store for the notes of the served model's batches; see LanguageModel."""
        if self._batches is not None:
            self._batches.attach_store(store)

    def cancel(self, requests: Sequence[Request]) -> list[str]:
        """Cancel the served model's batches of these requests; see LanguageModel."""
        return super().cancel(requests) if self._batches is None else self._batches.cancel(requests)

    def _stream(
        self, requests: Sequence[Request], more: Callable[[], list[Request]] | None = None
    ) -> Iterator[list[Reply]]:
        stack: deque[Request | None] = deque()  # questions in progress are finished first
        ready: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        awaited = 0

        def want(requests: Sequence[Request]) -> None:
            nonlocal awaited
            for request in sorted(requests, key=by_prefix, reverse=True):
                stack.append(request)
                awaited += request.max_answers

        if more is None:
            stack.append(None)
        want(requests)  # before the start of the work, which would pop the None first
        exactly = any(request.enumeration for request in requests)  # or none: all are of one sampler
        answer_all = partial(self._answer_all, stack, exactly, ready.put, ready.qsize)
        with Background(answer_all, lambda: ready.put(None)) as work:
            ended = False
            while not ended:
                if more and not awaited:
                    stack.append(None)
                replies = [ready.get()]
                if more is None and not ended:
                    time.sleep(_GATHER_SECONDS)
                while not ready.empty():
                    replies.append(ready.get())
                ended = None in replies
                arrived = [reply for reply in replies if reply is not None]
                awaited -= sum(len(reply.completions) for reply in arrived)
                yield arrived
                want(more() if more else [])
            work.result()

    def use_rate_limiter(self, limiter: RateLimiter) -> None:
        """Send the served model's requests through this rate limiter; see LanguageModel."""
        self._attempts.limiter = limiter

    def batch_context(self) -> Capabilities:
        """Return the served model's capabilities, for other processes."""
        return self.capabilities(1.0)

    def description(self) -> dict[str, Any]:
        """Return the name, server and capabilities of the model, and the counts of the rate limiter."""
        return {
            "name": self.settings.name,
            "server": self.settings.server,
            **({} if self._capabilities is None else self._capabilities.described()),
            **self.limiter.description(),
            "repeated_requests": self._attempts.repeated,
            **({"unknown_finish_reasons": ", ".join(ends)} if (ends := self._intake.unknown_ends) else {}),
            **({} if self._drawn_as_at is None else {"drawn_as_at": self._drawn_as_at}),
            **({} if self._batches is None else {"batches": self._batches.sent}),
        }

    def status(self) -> str:
        """Return the served model's status line: batches, concurrent requests, and the cost."""
        batches = [] if self._batches is None else self._batches.progress()
        return ", ".join(filter(None, [*batches, self.limiter.status()]))

    async def _answer_all(
        self, stack: deque[Request | None], exactly: bool, give: Callable[[Reply], None], queued: Callable[[], int]
    ) -> None:
        """Answer the requests on the stack concurrently, up to None, and pause while too many replies are ``queued``;
        raise UserError if the run ends early. ``exactly``: by the tree of the answers to each.
        """
        settings = self.settings
        self.limiter.begin()
        self._watch = draw_watch(settings, self._can)
        # A tree takes many requests, some of them concurrent, and is stored as a whole: few are begun together.
        tasks = settings.max_concurrency if exactly else _TASKS_PER_REQUEST * settings.max_concurrency
        room = asyncio.Semaphore(MAX_BATCHED if settings.batch else tasks)
        async with AsyncExitStack() as services, asyncio.TaskGroup() as group:
            answer: Callable[[Call, Callable[[Reply], None]], Coroutine[Any, Any, None]]
            if exactly:
                service = await services.enter_async_context(self._openai_service())
                answer = partial(self._answer_exactly, service)
            else:
                answer = partial(self._answer, await services.enter_async_context(settings.service(self._key)))
            async for call in self._calls(stack):
                await room.acquire()
                while queued() > _MAX_QUEUED and not self._attempts.ended:
                    await asyncio.sleep(_POLL_SECONDS)
                if self._attempts.ended:
                    break
                task = group.create_task(answer(call, give))
                task.add_done_callback(lambda _: room.release())
        await self.limiter.counted(len(self._intake.answered), len(self._intake.failed))
        if self._attempts.ended:
            raise self._attempts.ended

    async def _calls(self, stack: deque[Request | None]) -> AsyncIterator[Call]:
        """Yield the calls of the requests on the stack, up to None or until the run ends."""
        while True:
            while not stack:
                if self._attempts.ended:
                    return
                await asyncio.sleep(_POLL_SECONDS)
            request = stack.pop()
            if request is None:
                return
            if request.enumeration is not None:
                yield Call(request, math.nan, ())
            for call in calls(request, self._can.choices):
                yield call

    async def _answer(self, service: Answering, call: Call, give: Callable[[Reply], None]) -> None:
        """Send one call to the served model and pass on its answers; those that fail after all retries are errors."""
        left = call.trials
        while left:
            try:
                once = partial(self._once, service, call._replace(trials=left))
                answers = await self._attempts.until_answered(once)
            except EndedError:
                return
            except UnansweredError as problem:
                outcome = self._intake.failure(call.request, problem)
                give(self._intake.reply(call.request, [unanswered(call, trial, outcome) for trial in left]))
                await self._intake.check_failures(problem)
                return
            give(self._intake.reply(call.request, answers))
            left = left[len(answers) :]

    async def _answer_exactly(self, service: Service, call: Call, give: Callable[[Reply], None]) -> None:
        """Compute the probabilities of the served model's answers to a request and pass them on, or an error."""
        request = call.request
        try:
            reply = await exact_reply(request, self._logprob_client(service, request, self._attempts.until_answered))
        except EndedError:
            return
        except UnansweredError as problem:
            outcome = self._intake.failure(request, problem)
            missing = Completion(0.0, 0, "", 1.0, prompt_tokens=0, completion_tokens=0, outcome=outcome)
            give(self._intake.reply(request, [missing._replace(temperature=t) for t in request.temperatures]))
            await self._intake.check_failures(problem)
            return
        self._intake.answered.add(request.item)
        give(reply)

    async def _once(self, service: Answering, call: Call) -> list[Completion]:
        """Send a permitted call to the server; return its answers, or only the first of them. Raises UnansweredError,
        or EndedError if the run ends first.
        """
        request, number = call.request, len(call.trials)
        can = self._can
        about = prompt_tokens(request.prompt, self.settings.chat)
        completion_tokens = number * self.settings.reply_tokens(request.max_new_tokens)
        body = request_body(self.settings, can, call)
        if self.settings.batch:
            body["batch"] = True  # of a provider of inspect_ai; the probe is answered at once
        send = partial(service.ask, request.prompt, can.system_role)
        watch = self._watch if self._watch is not None and self._watch.covers(call) else None
        try:
            watched = watch.body if watch and watch.top > request.top_logprobs else {}
            ask = partial(send, body | watched)
            response = await self._attempts.in_turn(about, completion_tokens, ask)
        except UnansweredError as problem:
            if watch is None or problem.kind != "wrong" or "logprob" not in problem.reason:
                raise
            self._watch = watch = None  # the server refuses them with these settings
            response = await self._attempts.in_turn(about, completion_tokens, partial(send, body))
        if watch:
            self._test_draws(watch, call, response)
        if not request.top_logprobs:  # the test of the draws leaves the stored answers unchanged
            response = without_logprobs(response)
        return self._intake.completions(call, response, min(request.min_logprobs, can.top_logprobs))

    def _test_draws(self, watch: DrawWatch, call: Call, response: ServiceResponse) -> None:
        """Test the draws of a call: raise EndedError if they depend on each other, and warn if they were drawn at
        another temperature.
        """
        watch.add(call, response.choices)
        if watch.repetition() >= CERTAIN:
            reason = repeats_itself(self.settings, call.temperature)
            self._attempts.end_here(UserError(reason))
            self.limiter.end(reason)
            raise EndedError(reason)
        drawn_at = watch.drawn_as_at()
        if drawn_at is not None and self._drawn_as_at is None:
            self._drawn_as_at = drawn_at
            log.warning("%s", draws_otherwise(self.settings, call.temperature, drawn_at))

"""Model with a store: cached answers are not requested again, and the model is loaded on demand."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import EXACT_CURVES, SCHEMA, SERVED, Answers, served_as
from robust_eval.engine.base import Engine
from robust_eval.error import UserError, first_line
from robust_eval.model.base import Item, LanguageModel, Request, Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.reply_tables import ReplyTables, from_bytes, merged_by_request, tables_of, to_bytes
from robust_eval.runtime.console import progress
from robust_eval.runtime.process import Stopwatch
from robust_eval.runtime.text import abbreviated_list
from robust_eval.store.base import Entries
from robust_eval.store.keys_and_rows import (
    Tables,
    answers_key,
    curve_key,
    description_key,
    merge_answers,
    requested_among,
    requested_answers,
    with_cached_conditions,
    with_valid_logprobs,
)

log = logging.getLogger(__name__)


class NotStoredError(Exception):
    """A cache-only model lacks the answers to the ``missing`` requests of a ``stage``.

    ``requests`` is the number of requests of the stage.
    """

    def __init__(self, stage: str, requests: int, missing: list[Request]) -> None:
        super().__init__(f"{stage}: {len(missing)} of {requests} requests are not in the store")
        self.stage, self.requests, self.missing = stage, requests, missing


class AdaptiveAnswers(Protocol):
    """Answers to ``requests`` that are requested in parts, depending on the answers so far.

    ``tables`` holds all answers to each request so far, also those that it does not need.
    """

    requests: Sequence[Request]
    tables: dict[Item, pa.Table]

    @property
    def finished(self) -> int:
        """Number of items that need no more answers."""

    def next(self) -> list[Request]:
        """Return the adaptive requests that depend on the answers since the last call."""

    def take(self, answers: pa.Table) -> None:
        """Add new or stored answers, which are already in the tables."""

    def may_follow(self) -> list[Request]:
        """Return all adaptive requests that may still follow."""

    def answers(self) -> Answers:
        """Return the needed answers, once all adaptive requests are finished."""


class _Lookup(NamedTuple):
    """Stored answers to some requests, by item: ``complete`` ones, ``partial`` ones, and ``curves``.

    ``missing`` are the requests to the model.
    """

    complete: Tables[Item]
    partial: dict[Item, pa.Table]
    curves: Tables[Item]
    missing: list[Request]


class StoredModel:
    """Model whose answers come from the store, or from the model itself, which is then loaded.

    ``identity`` identifies the model in keys. ``prompts_asked`` counts the requests to the model, ``cache_hits`` the
    others. ``served`` has the service's names of the models and builds of all answers returned, by column.
    ``start_run`` is called before the first request, once the model is loaded and able to answer.
    """

    def __init__(
        self,
        config: ModelConfig,
        engine: Engine,
        entries: Entries,
        watch: Stopwatch,
        cached_only: bool = False,
        start_run: Callable[[], object] = lambda: None,
    ) -> None:
        self.config = engine.place(config)
        self._engine = engine
        self._entries = entries
        self._watch = watch
        self._cached_only = cached_only
        self._start_run = start_run
        self.identity = _checked_identity(self.config)
        self._loaded: LanguageModel | None = None
        self._released: dict[str, Any] = {}
        """Description of the model when it was released; empty before."""
        self._served_names = _ServedNames(self.config)
        self.served: dict[str, set[str]] = {column: set() for column in SERVED}
        self.prompts_asked = self.cache_hits = 0

    def cached_only(self) -> "StoredModel":
        """Return a cache-only view, which raises NotStoredError for an answer that is not stored."""
        model = StoredModel(self.config, self._engine, self._entries, self._watch, cached_only=True)
        model._served_names = self._served_names
        return model

    def key(self, request: Request) -> bytes:
        """Return the store's key of the model's answers to a request."""
        return answers_key(self.identity, request, self.config.seedless_greedy, self.config.remote)

    def _keys(self, requests: Iterable[Request]) -> dict[Item, bytes]:
        return {request.item: self.key(request) for request in requests}

    def missing(self, requests: Sequence[Request]) -> list[Request]:
        """Return the missing requests to the model, each with the conditions of its stored answers."""
        return self._look_up(requests, self._keys(requests)).missing

    def temperatures(self, highest: float) -> Temperatures:
        """Return the temperatures that the stored model supports; ``highest`` is the highest that the run needs.

        A server is probed only if neither today's other runs nor its stored description cover ``highest``. A cache-only
        model supports all.
        """
        if (supported := self.config.temperatures(highest)) is not None:
            return supported
        if (supported := self.config.described_temperatures(self.description(), highest)) is not None:
            return supported
        return Temperatures() if self._cached_only else self._model().temperatures(highest)

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UserError if a model behind a server cannot answer all of these requests."""
        if requests and self.config.remote:
            self._model().check(requests)

    def answers(self, requests: Sequence[Request], stage: str) -> Answers:
        """Return the answers to all requests, in their order. Each is stored as it arrives.

        Raises NotStoredError if the model is cache-only and an answer is not stored.
        """
        keys = self._keys(requests)
        with nullcontext() if self._cached_only else self._entries.lock_keys(keys.values()):
            complete, partial, curves, missing = self._look_up(requests, keys)
            if missing and self._cached_only:
                raise NotStoredError(stage, len(requests), missing)
            self._count(len(requests), len(missing), stage)
            if missing:
                model = self._ready(missing)
                pending = [with_cached_conditions(request, partial.get(request.item)) for request in requests]
                with progress(stage, total=len(missing), unit="prompts") as advance:
                    for replies in model.complete(pending, {request.item for request in missing}):
                        block = tables_of(replies)
                        for reply in self._put(block, keys, partial):
                            item = reply.request.item
                            if (requested := requested_answers(partial[item], reply.request)) is not None:
                                complete[item] = requested
                                del partial[item]
                            if reply.curve is not None:
                                curves[item] = reply.curve
                        advance(sum(each.share for each in block), model.status())
                self._describe()
                if lacking := [request for request in missing if request.item not in complete]:
                    raise UserError(
                        f"model {self.config.name} returned no complete answers to {len(lacking):,} of "
                        f"{len(missing):,} prompts (the first: question {lacking[0].question_id!r}): complete() must "
                        "return a Completion for each temperature and trial in request.pending"
                    )
        items = [request.item for request in requests]
        return self._recorded(
            Answers(complete.together(items), curves.together(item for item in items if item in curves))
        )

    def adaptive_answers(self, adaptive: AdaptiveAnswers, stage: str) -> Answers:
        """Request the missing answers among those that depend on each other, and return all.

        Raises NotStoredError, with all requests that may follow, if the model is cache-only and an answer is missing.
        """
        keys = self._keys(adaptive.requests)
        with nullcontext() if self._cached_only else self._entries.lock_keys(keys.values()):
            self._take_stored(adaptive, keys)
            due = adaptive.next()
            if due and self._cached_only:
                raise NotStoredError(stage, len(keys), adaptive.may_follow())
            self._count(len(keys), len(due), stage)
            if due:
                model = self._ready(due)
                finished = adaptive.finished
                with progress(stage, total=len(keys) - finished, unit="prompts") as advance:
                    for replies in model.complete_adaptively(due, adaptive.next):
                        block = tables_of(replies)
                        self._put(block, keys, adaptive.tables)
                        adaptive.take(pa.concat_tables([SCHEMA.empty_table(), *(each.answers for each in block)]))
                        advance(adaptive.finished - finished, model.status())
                        finished = adaptive.finished
                self._describe()
        return self._recorded(adaptive.answers())

    def _take_stored(self, adaptive: AdaptiveAnswers, keys: Mapping[Item, bytes]) -> None:
        """Give the stored answers to adaptive requests."""
        requests = {keys[request.item]: request for request in adaptive.requests}
        for key, value in self._entries.get(list(requests)):
            adaptive.tables[requests[key].item] = self._usable(from_bytes(value, SCHEMA), requests[key])
        tables = adaptive.tables
        stored = [requested_among(tables[each.item], each) for each in requests.values() if each.item in tables]
        adaptive.take(pa.concat_tables([SCHEMA.empty_table(), *stored]))

    def _recorded(self, answers: Answers) -> Answers:
        for column, names in self.served.items():
            names |= served_as([answers.table], column)
        return answers

    def _put(
        self, block: Sequence[ReplyTables], keys: Mapping[Item, bytes], tables: dict[Item, pa.Table]
    ) -> list[ReplyTables]:
        """Merge a block of answers into ``tables`` and store them; return the block with one reply a request, and a
        curve for each enumeration.

        Other trials that another run has stored meanwhile stay in the store.
        """
        self._served_names.take(block)
        replies, entries, requests = [], {}, dict[bytes, Request]()
        for reply in merged_by_request(block):
            request, key = reply.request, keys[reply.request.item]
            requests[key] = request
            table = tables[request.item] = merge_answers(tables.get(request.item), reply.answers, request)
            entries[key] = reply.packed if reply.packed and table is reply.answers else to_bytes(table)
            if request.enumeration is not None:
                reply = reply._replace(curve=EXACT_CURVES.empty_table() if reply.curve is None else reply.curve)
                entries[curve_key(key)] = to_bytes(reply.curve)
            replies.append(reply)

        def merge(key: bytes, before: bytes, now: bytes) -> bytes:
            if key not in requests or requests[key].enumeration is not None:
                return now
            return to_bytes(merge_answers(from_bytes(before, SCHEMA), from_bytes(now, SCHEMA), requests[key]))

        self._entries.put(entries, merge)
        return replies

    def cancelled(self, requests: Sequence[Request], entries: Entries) -> list[str]:
        """Cancel batches of these requests, also of a cache-only model; return a sentence for each.

        ``entries`` are those of the open store.
        """
        model = self._model()
        model.attach_store(entries)
        return model.cancel(requests)

    def _count(self, requests: int, missing: int, stage: str) -> None:
        self.cache_hits += requests - missing
        self.prompts_asked += missing
        if missing < requests:
            log.info("%s: %d of %d prompts have answers in the store", stage, requests - missing, requests)

    def _ready(self, requests: Sequence[Request]) -> LanguageModel:
        """Return the loaded model behind the store after its checks, and start the run."""
        self._served_names.refuse_another()
        model = self._model()
        model.check(requests)
        self._start_run()
        return model

    def _describe(self) -> None:
        """Write the description of the model into the store."""
        self._entries.put({description_key(self.identity): json.dumps(self.description()).encode()})

    def description(self) -> dict[str, Any]:
        """Return the description of the model, or the stored one, or its identity alone."""
        if self._loaded is not None:
            return self._loaded.description()
        if self._released:
            return self._released
        for _, value in self._entries.get([description_key(self.identity)]):
            stored: dict[str, Any] = json.loads(value)
            return stored
        return {"name": self.config.name, **self.identity}

    def release(self) -> None:
        """Free the memory of the model behind the store; its description stays, and a request loads it again."""
        if self._loaded is not None:
            self._released, self._loaded = self.description(), None

    def _model(self) -> LanguageModel:
        if self._loaded is None:
            with self._watch.stage("model"):
                self._loaded = self._engine.load(self.config)
                self._loaded.attach_store(self._entries)
        return self._loaded

    def _look_up(self, requests: Sequence[Request], keys: Mapping[Item, bytes]) -> _Lookup:
        """Read the stored answers. Errors of a service and impossible log-probabilities are requested again."""
        complete, curves = Tables[Item](SCHEMA), Tables[Item](EXACT_CURVES)
        partial = {}
        with_curve = {curve_key(keys[r.item]): r.item for r in requests if r.enumeration is not None}
        for key, value in self._entries.get(list(with_curve)):
            curves[with_curve[key]] = from_bytes(value, EXACT_CURVES)
        without_curve = set(with_curve.values()) - curves.names()
        by_key = {keys[request.item]: request for request in requests}
        for key, value in self._entries.get(list(by_key)):
            request, stored = by_key[key], from_bytes(value, SCHEMA)
            table = self._usable(stored, request)
            failed = request.enumeration is not None and table.num_rows < stored.num_rows
            requested = None if failed else requested_answers(table, request)
            if requested is not None:
                complete[request.item] = requested
            if requested is None or request.item in without_curve:
                partial[request.item] = table
        missing = [r for r in requests if r.item in without_curve or r.item not in complete]
        if not self.config.uses_torch:
            missing = [with_cached_conditions(request, partial.get(request.item)) for request in missing]
        return _Lookup(complete, partial, curves, missing)

    def _usable(self, stored: pa.Table, request: Request) -> pa.Table:
        """Return the stored answers to a request without those that are requested again."""
        outcomes = stored["outcome"].to_pylist()
        table = stored.filter(pc.not_equal(stored["outcome"], "error")) if "error" in outcomes else stored
        if not self.config.remote:  # only a model without log-probabilities stores answers without them
            lacking = request.min_logprobs and table["top_logprobs"].null_count
            return with_valid_logprobs(table, request) if lacking else table
        table = with_valid_logprobs(table, request)
        self._served_names.find(table)
        return table


def _checked_identity(config: ModelConfig) -> Mapping[str, Any]:
    identity: object = config.identity()
    if not isinstance(identity, Mapping):
        raise UserError(f"{type(config).__qualname__}.identity() must return a mapping, not {identity!r:.60}")
    try:
        json.dumps(dict(identity))
    except (TypeError, ValueError) as problem:
        raise UserError(f"{type(config).__qualname__}.identity(): {first_line(problem)}") from problem
    return identity


class _ServedNames:
    """Names of the served models and builds, of stored answers and of new ones."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._stored: dict[str, set[str]] = {column: set() for column in SERVED}
        self._arrived: dict[str, set[str]] = {column: set() for column in SERVED}
        self._warned: set[str] = set()

    def find(self, table: pa.Table) -> None:
        """Add the names of stored answers."""
        for column, names in self._stored.items():
            names |= served_as([table], column)

    def take(self, block: Sequence[ReplyTables]) -> None:
        """Add the names of new answers; warn once of a change, and raise UserError if no stored answer is of their
        model.
        """
        tables = [each.answers for each in block]
        for column, label in zip(SERVED, ("the served model", "the server's system_fingerprint"), strict=True):
            before, names = self._stored[column] | self._arrived[column], served_as(tables, column)
            self._arrived[column] |= names
            self.refuse_another()
            together = before | names
            if len(together) > max(1, len(before)) and not self._warned & {"served_model", column}:
                self._warned.add(column)  # another model has another fingerprint
                log.warning("%s: %s changed: %s", self._config.name, label, abbreviated_list(together))

    def refuse_another(self) -> None:
        """Raise UserError if no stored answer is of a model of this run."""
        stored, new = self._stored["served_model"], self._arrived["served_model"]
        if stored and new and not stored & new:
            raise UserError(
                f"{self._config.name}: the server's model is now {abbreviated_list(new)}, but stored answers are from "
                f"{abbreviated_list(stored)}: set store.folder to a new folder to sample all from the current model"
            )

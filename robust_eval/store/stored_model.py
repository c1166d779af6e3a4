"""A model with a store: answers that are stored are not asked for again, and the model is loaded only when needed."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import CURVES, SCHEMA, SERVED, Answers, abbreviated_list, served_as
from robust_eval.engine.base import Engine, ModelRunner
from robust_eval.error import UserError
from robust_eval.model.base import Item, Request, Temperatures
from robust_eval.model.config import ModelConfig
from robust_eval.model.reply_tables import Arrived, from_bytes, joined, to_bytes
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.answer_rows import Tables, among, believed, chosen, knowing, merged
from robust_eval.store.base import Entries
from robust_eval.store.keys import answers_keys, curve_key, description_key
from robust_eval.store.steps import ConcurrentSteps, Step, StepAnswers, Steps, VerdictsOf

log = logging.getLogger(__name__)


class NotStoredError(Exception):
    """A cache-only model was asked for answers of a ``stage`` that are not stored: those to its ``missing`` requests.

    ``requests`` is the number of requests of the stage.
    """

    def __init__(self, stage: str, requests: int, missing: list[Request]) -> None:
        super().__init__(f"{stage}: {len(missing)} of {requests} requests are not in the store")
        self.stage, self.requests, self.missing = stage, requests, missing


class _Found(NamedTuple):
    """What is stored of some requests, by item: ``complete`` answers, ``some`` of the answers, and ``curves``.

    ``missing`` are the requests that the model has to be asked.
    """

    complete: Tables[Item]
    some: dict[Item, pa.Table]
    curves: Tables[Item]
    missing: list[Request]


class StoredModel:
    """A model whose answers come from the store, or from the model itself, which is then loaded.

    ``identity`` is the part of a key that tells the model from others. ``asked`` counts the requests that the model was
    asked, ``found`` those whose answers were stored. ``begin`` is called once the model is loaded and able to answer,
    before it is asked.
    """

    def __init__(
        self,
        config: ModelConfig,
        engine: Engine,
        entries: Entries,
        watch: Stopwatch,
        cached_only: bool = False,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        self.config = engine.place(config)
        self._engine = engine
        self._entries = entries
        self._watch = watch
        self._cached_only = cached_only
        self._begin = begin
        self.identity = self.config.identity()
        self._loaded: ModelRunner | None = None
        self._planned: dict[tuple[bytes, ...], _Found] = {}
        """Results of the plan's lookups whose answers are all stored."""
        self._served = _Served(self.config)
        self.asked = self.found = 0

    def cached_only(self) -> "StoredModel":
        """Return a cache-only view, which raises NotStoredError for an answer that is not stored."""
        model = StoredModel(self.config, self._engine, self._entries, self._watch, cached_only=True)
        model._planned, model._served = self._planned, self._served
        return model

    def missing(self, requests: Sequence[Request]) -> list[Request]:
        """Return the requests that the model would be asked, each with the answers to it that are stored already."""
        return self._find(requests, answers_keys(self.identity, requests)).missing

    def temperatures(self, highest: float) -> Temperatures:
        """Return which temperatures the model takes; ``highest`` is the highest that matters.

        A server is asked where nothing else tells: not today's other runs, and not what is stored with its answers. A
        cache-only model asks nothing, and is taken to take all.
        """
        known = self.config.temperatures(highest)
        if known is None and "capability.highest_temperature" in (stored := self.description()):
            known = Temperatures(
                stored["capability.highest_temperature"],
                stored["capability.greedy"],
                stored.get("capability.own_temperature", False),
            )
        if known is None:
            known = Temperatures() if self._cached_only else self._model().temperatures(highest)
        return known

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UserError where a model behind a server cannot answer all of these requests."""
        if requests and self.config.remote:
            self._model().check(requests)

    def answers(self, requests: Sequence[Request], stage: str) -> Answers:
        """Return the answers to all requests, in their order. Each is stored as soon as it comes.

        Raises NotStoredError if the model is cache-only and an answer is not stored.
        """
        keys = answers_keys(self.identity, requests)
        with self._entries.asking(keys.values()):
            complete, some, curves, missing = self._find(requests, keys)
            if missing and self._cached_only:
                raise NotStoredError(stage, len(requests), missing)
            self._count(len(requests), len(missing), stage)
            if missing:
                model = self._ready(missing)
                asked = [knowing(request, some.get(request.item)) for request in requests]
                for block in model.answers(asked, {request.item for request in missing}, stage):
                    self._served.take(block)
                    came = {}
                    for request, answers, curve, _, packed in joined(block):
                        item = request.item
                        table = merged(some.pop(item, None), answers, request)
                        came[keys[item]] = packed if packed and table is answers else to_bytes(table)
                        whole = chosen(table, request)
                        if whole is None:
                            some[item] = table
                        else:
                            complete[item] = whole
                        if request.enumeration is not None:
                            curves[item] = curve = CURVES.empty_table() if curve is None else curve
                            came[curve_key(keys[item])] = to_bytes(curve)
                    self._entries.put(came)
                self._describe()
        items = [request.item for request in requests]
        return Answers(complete.together(items), curves.together(item for item in items if item in curves))

    def ask(self, steps: Sequence[Steps], stage: str, verdicts: VerdictsOf) -> Answers:
        """Ask step by step for what is not stored, and return what the steps return.

        Raises NotStoredError, with all that may be asked, if the model is cache-only and an answer is not stored.
        """
        first = [(each, next(each)) for each in steps]
        if any(step.whole for _, step in first):
            return self._ask_concurrently(first, stage, verdicts)
        found = []
        for each, step in first:
            try:
                while True:
                    name = f"{stage}, {step.name}" if step.name else stage
                    step = each.send(StepAnswers(self.answers(step.requests, name)))
            except StopIteration as end:
                found.append(end.value)
        return _together(found)

    def _ask_concurrently(self, steps: Sequence[tuple[Steps, Step]], stage: str, verdicts: VerdictsOf) -> Answers:
        items = [step.requests[0].item for _, step in steps]
        keys = answers_keys(self.identity, [step.requests[0] for _, step in steps])
        with self._entries.asking(keys.values()):
            waves, tables = self._concurrent(steps, keys, verdicts)
            due = waves.next()
            if due and self._cached_only:
                raise NotStoredError(stage, len(steps), waves.at_most())
            self._count(len(steps), len(due), stage)
            if due:
                model = self._ready(due)
                for block in model.in_waves(due, waves, stage, len(steps)):
                    self._served.take(block)
                    came = {}
                    for request, answers, *_ in joined(block):
                        table = tables[request.item] = merged(tables.get(request.item), answers, request)
                        came[keys[request.item]] = to_bytes(table)
                    self._entries.put(came)
                    waves.take(pa.concat_tables([SCHEMA.empty_table(), *(each.answers for each in block)]))
                self._describe()
        return waves.answers(items)

    def planned(self, steps: Sequence[Steps], verdicts: VerdictsOf) -> tuple[list[Request], Answers | None]:
        """Return all that :meth:`ask` may still ask, for a cache-only model; its answers if that is nothing."""
        first = [(each, next(each)) for each in steps]
        if any(step.whole for _, step in first):
            keys = answers_keys(self.identity, [step.requests[0] for _, step in first])
            waves, _ = self._concurrent(first, keys, verdicts)
            missing = waves.at_most() if waves.next() else []
            return missing, None if missing else waves.answers([step.requests[0].item for _, step in first])
        missing, found = list[Request](), list[Answers]()
        for each, step in first:
            try:
                while True:
                    lacking = self.missing(step.requests)
                    missing += step.at_most(lacking) if lacking else []
                    step = each.send(None if lacking else StepAnswers(self.answers(step.requests, step.name)))
            except StopIteration as end:
                found.append(end.value)
        return missing, None if missing else _together(found)

    def _concurrent(
        self, steps: Sequence[tuple[Steps, Step]], keys: Mapping[Item, bytes], verdicts: VerdictsOf
    ) -> tuple[ConcurrentSteps, dict[Item, pa.Table]]:
        """Return the steps, which have taken what is stored, and what is stored of each whole."""
        wholes = {keys[step.whole.item]: step.whole for _, step in steps if step.whole}
        tables = {wholes[key].item: self._usable(value, wholes[key]) for key, value in self._entries.get(list(wholes))}
        waves = ConcurrentSteps(steps, tables, verdicts)
        there = [among(tables[whole.item], whole) for whole in wholes.values() if whole.item in tables]
        waves.take(pa.concat_tables([SCHEMA.empty_table(), *there]))
        return waves, tables

    def cancelled(self, requests: Sequence[Request], entries: Entries) -> list[str]:
        """Cancel what is under way elsewhere of these requests, also of a cache-only model; return a sentence for each.

        ``entries`` are those of the open store.
        """
        model = self._model()
        model.attach_store(entries)
        return model.cancel(requests)

    def _count(self, requests: int, asked: int, stage: str) -> None:
        self.found += requests - asked
        self.asked += asked
        if asked < requests:
            log.info("%s: the answers to %d of %d prompts are in the store", stage, requests - asked, requests)

    def _ready(self, requests: Sequence[Request]) -> ModelRunner:
        """Return the model, which can answer these requests, once the run has begun."""
        self._served.refuse_another()
        model = self._model()
        model.check(requests)
        self._begin()
        return model

    def _describe(self) -> None:
        """Keep what the model was."""
        self._entries.put({description_key(self.identity): json.dumps(self.description()).encode()})

    def description(self) -> dict[str, Any]:
        """Return what the model was when it was last asked; its identity alone where that is not known."""
        if self._loaded is not None:
            return self._loaded.description()
        for _, value in self._entries.get([description_key(self.identity)]):
            known: dict[str, Any] = json.loads(value)
            return known
        return {"name": self.config.name, **self.identity}

    def _model(self) -> ModelRunner:
        if self._loaded is None:
            with self._watch.stage("model"):
                self._loaded = self._engine.load(self.config)
                self._loaded.attach_store(self._entries)
        return self._loaded

    def _find(self, requests: Sequence[Request], keys: Mapping[Item, bytes]) -> _Found:
        """Look the requests up in the store, once for a plan and the run that follows."""
        name = tuple(_wanted(keys[request.item], request) for request in requests)
        if name in self._planned:
            return self._planned[name] if self._cached_only else self._planned.pop(name)
        found = self._look_up(requests, keys)
        if self._cached_only and not found.missing:
            self._planned[name] = found
        return found

    def _look_up(self, requests: Sequence[Request], keys: Mapping[Item, bytes]) -> _Found:
        """Read what is stored. Errors of a service and impossible log-probabilities are asked again."""
        complete, curves = Tables[Item](SCHEMA), Tables[Item](CURVES)
        some = {}
        with_curve = {curve_key(keys[r.item]): r.item for r in requests if r.enumeration is not None}
        for key, value in self._entries.get(list(with_curve)):
            curves[with_curve[key]] = from_bytes(value, CURVES)
        lacking = set(with_curve.values()) - curves.names()
        asked = {keys[request.item]: request for request in requests}
        for key, value in self._entries.get(list(asked)):
            request, table = asked[key], self._usable(value, asked[key])
            failed = request.enumeration is not None and table.num_rows < from_bytes(value, SCHEMA).num_rows
            whole = None if failed else chosen(table, request)
            if whole is not None:
                complete[request.item] = whole
            if whole is None or request.item in lacking:
                some[request.item] = table
        missing = [r for r in requests if r.item in lacking or r.item not in complete]
        if self.config.remote:  # one that is loaded here answers all of a request anew
            missing = [knowing(request, some.get(request.item)) for request in missing]
        return _Found(complete, some, curves, missing)

    def _usable(self, value: bytes, request: Request) -> pa.Table:
        """Return the stored answers to a request without those that are asked for again."""
        table = from_bytes(value, SCHEMA)
        table = table.filter(pc.not_equal(table["outcome"], "error"))
        if not self.config.remote:
            return table
        table = believed(table, request)
        self._served.find(table)
        return table


def _wanted(key: bytes, request: Request) -> bytes:
    """Return what tells which of the answers under a key a request wants, and for whom."""
    rest = (request.item, request.temperatures, request.trials, request.min_logprobs, request.form)
    return key + repr(rest).encode()


def _together(found: Sequence[Answers]) -> Answers:
    return found[0] if len(found) == 1 else Answers(*map(pa.concat_tables, zip(*found, strict=True)))


class _Served:
    """The names of what answers behind a service: with stored answers that a run takes, and with those that came."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._stored: dict[str, set[str]] = {column: set() for column in SERVED}
        self._came: dict[str, set[str]] = {column: set() for column in SERVED}
        self._warned: set[str] = set()

    def find(self, table: pa.Table) -> None:
        """Note the names with stored answers."""
        for column, names in self._stored.items():
            names |= served_as([table], column)

    def take(self, block: Sequence[Arrived]) -> None:
        """Note the names with answers that came; warn once of a change, and raise UserError where these are of another
        model than all that are stored.
        """
        tables = [each.answers for each in block]
        for column, label in zip(SERVED, ("the served model", "the server's system_fingerprint"), strict=True):
            before, names = self._stored[column] | self._came[column], served_as(tables, column)
            self._came[column] |= names
            self.refuse_another()
            together = before | names
            if len(together) > max(1, len(before)) and not self._warned & {"served_model", column}:
                self._warned.add(column)  # with another model comes another fingerprint
                log.warning("%s: %s changed: %s", self._config.name, label, abbreviated_list(together))

    def refuse_another(self) -> None:
        """Raise UserError where none of the models that answered in this run has answered what is stored."""
        stored, came = self._stored["served_model"], self._came["served_model"]
        if stored and came and not stored & came:
            raise UserError(
                f"{self._config.name}: the server now answers as {abbreviated_list(came)}, but stored answers are from "
                f"{abbreviated_list(stored)}: set store.folder to a new folder to ask the current model everything"
            )

import itertools
import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row

from robust_eval.answer import EXACT_CURVES, SCHEMA, Answers
from robust_eval.engine.local import Local
from robust_eval.error import UserError
from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.model.base import Completion, Curve, Enumeration, Item, LanguageModel, Reply, Request, Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.served_model import ServedModel
from robust_eval.prompt.prompt import Prompt
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import NoStore, Store
from robust_eval.store.keys_and_rows import answers_key, description_key
from robust_eval.store.sqlite import FILE, SqliteStore
from robust_eval.store.stored_model import StoredModel

ENUMERATED = {"enumeration": Enumeration(9, (0.5, 1.0))}
NAMES = ["b", "a", "c"]
PARIS = AnswerMatcher(["paris"])


def request(name: str, rewrite: int = 0, **settings: Any) -> Request:
    given = {"temperatures": (0.5, 1.0), "trials": 2, "max_new_tokens": 5, "seed": 0} | settings
    return Request(name, rewrite, Prompt("", (), name), **given)


def completion(asked: Request, temperature: float, trial: int) -> Completion:
    text = f"{asked.question_id}{asked.variant}" if trial == 0 else ""
    return Completion(
        temperature=temperature,
        trial=trial,
        text=text,
        token_ids=[7, 2],
        token_logprobs=[-0.5, -0.25],
        sampling_logprobs=[-1.0, -0.75],
        top_logprobs=[[-0.5, -2.0], [-0.25, -3.0]] if asked.top_logprobs else None,
        answer_tokens=1,
        finish_reason="stop",
        prompt_tokens=11,
    )


def curve(asked: Request) -> Curve:
    at = np.array([*asked.temperatures, 3.0])
    return Curve(at, at / 4, at / 10, at / 8, np.minimum(at / 2, 1))


@dataclass
class Scripted(ModelConfig, LanguageModel):
    """A model that answers in an order that is given, and writes down how often it was loaded and what it was asked."""

    order: Sequence[int] = (0, 1, 2)
    at_once: int = 1
    name: str = "scripted"
    version: str = "1"
    fails_after: int | None = None
    loaded: int = 0
    asked: list[str] = field(default_factory=list)

    def identity(self) -> Mapping[str, Any]:
        return {"files": self.version}

    def load(self) -> "Scripted":
        self.loaded += 1
        return self

    def check(self, requests: Sequence[Request]) -> None:
        pass

    def complete(self, requests: Sequence[Request], missing: Set[Item]) -> Iterator[list[Reply]]:
        wanted = [requests[index] for index in self.order if requests[index].item in missing]
        for done, start in enumerate(range(0, len(wanted), self.at_once)):
            if done == self.fails_after:
                raise RuntimeError("no more")
            block = wanted[start : start + self.at_once]
            self.asked += [asked.question_id for asked in block]
            yield [
                Reply(
                    asked,
                    [completion(asked, t, k) for t in asked.temperatures for k in range(asked.trials)],
                    curve(asked) if asked.enumeration else None,
                )
                for asked in block
            ]

    def description(self) -> dict[str, Any]:
        return {"name": self.name, "threads": 2}


@contextmanager
def stored(model: Scripted, store: Store) -> Iterator[StoredModel]:
    with store.open() as entries:
        yield StoredModel(model, Local(threads=1), entries, Stopwatch())


def ask(model: Scripted, store: Store, requests: Sequence[Request]) -> Answers:
    with stored(model, store) as asked:
        return asked.answers(requests, "test")


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(str(tmp_path / "store"))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_answers_and_curves_come_in_the_order_of_the_requests(order: tuple[int, ...]):
    requests = [request(name, matcher=PARIS, **ENUMERATED) for name in NAMES]
    table, curves = ask(Scripted(order), NoStore(), requests)
    assert table.schema == SCHEMA
    assert curves.schema == EXACT_CURVES
    conditions = [(name, t, k) for name in NAMES for t in (0.5, 1.0) for k in range(2)]
    columns = (table[name].to_pylist() for name in ("question_id", "temperature", "trial"))
    assert list(zip(*columns, strict=True)) == conditions
    assert curves.to_pylist() == [
        {
            "question_id": name,
            "rewrite": 0,
            "temperature": t,
            "accuracy": t / 4,
            "standard_error": t / 10,
            "lower": t / 8,
            "upper": min(t / 2, 1),
            "how": None,
        }
        for name in NAMES
        for t in (0.5, 1.0, 3.0)
    ]


def test_a_completion_is_a_row_of_the_answer_table():
    table, curves = ask(Scripted([0]), NoStore(), [request("q", 3, temperatures=(0.5,), top_logprobs=2)])
    row = dict.fromkeys(SCHEMA.names) | answer_row("q", rewrite=3, temperature=0.5, text="q3", weight=0.5)
    row |= {
        "token_ids": [7, 2],
        "token_logprobs": [-0.5, -0.25],
        "sampling_logprobs": [-1.0, -0.75],
        "top_logprobs": [[-0.5, -2.0], [-0.25, -3.0]],
        "answer_tokens": 1,
        "finish_reason": "stop",
        "prompt_tokens": 11,
        "completion_tokens": 2,
    }
    assert table.to_pylist() == [row, row | {"trial": 1, "text": "", "outcome": "empty"}]
    assert curves == EXACT_CURVES.empty_table()


def test_rewrites_of_a_question_are_told_apart(store: SqliteStore):
    requests = [*(request("a", number, matcher=PARIS, **ENUMERATED) for number in (1, 0)), request("b", 1)]
    for model in (Scripted([2, 1, 0]), Scripted()):
        table, curves = ask(model, store, requests)
        assert table["text"].to_pylist()[::2] == ["a1", "a1", "a0", "a0", "b1", "b1"]
        assert curves["rewrite"].to_pylist() == [1, 1, 1, 0, 0, 0]


def test_nothing_asked_is_nothing_answered(store: SqliteStore):
    model = Scripted()
    assert ask(model, store, []) == (SCHEMA.empty_table(), EXACT_CURVES.empty_table())
    assert model.loaded == 0


def test_what_was_answered_is_not_asked_again_and_no_model_is_loaded(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
):
    requests = [request(name, matcher=PARIS, top_logprobs=2) for name in NAMES]
    first, second = Scripted(), Scripted()
    expected = ask(first, store, requests)
    with caplog.at_level(logging.INFO), stored(second, store) as model:
        found = model.answers(requests, "greedy answers")
        assert model.description() == {"name": "scripted", "threads": 2}
        assert (model.prompts_asked, model.cache_hits) == (0, 3)
    assert found == expected
    assert found.table.schema == SCHEMA
    assert (first.loaded, first.asked) == (1, NAMES)
    assert (second.loaded, second.asked) == (0, [])
    assert caplog.messages == ["greedy answers: 3 of 3 prompts have answers in the store"]


def test_a_plan_has_the_trials_that_are_stored_unless_torch_answers_all_anew(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    ask(Scripted([0]), store, [request("a", temperatures=(0.5,), trials=2)])
    more = [request("a", temperatures=(0.5,), trials=3)]
    with stored(Scripted([0]), store) as model:
        assert [each.pending for each in model.missing(more)] == [[(0.5, 2)]]
    monkeypatch.setattr(Scripted, "uses_torch", True)
    with stored(Scripted([0]), store) as model:
        assert [each.pending for each in model.missing(more)] == [[(0.5, 0), (0.5, 1), (0.5, 2)]]


@pytest.mark.parametrize("seedless", [False, True])
def test_greedy_answers_of_another_seed_are_asked_unless_the_model_declares_them_equal(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, seedless: bool
):
    if seedless:
        monkeypatch.setattr(Scripted, "seedless_greedy", True)
    greedy = request("a", temperatures=(0.0,), trials=1, seed=1)
    ask(Scripted([0]), store, [greedy])
    with stored(Scripted([0]), store) as model:
        assert len(model.missing([replace(greedy, seed=2)])) == (0 if seedless else 1)


def test_a_cache_only_model_waits_for_no_other_process(store: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    expected = ask(Scripted([0]), store, [request("a")])
    with stored(Scripted([0]), store) as model:
        monkeypatch.setattr(type(model._entries), "lock_keys", None)
        assert model.cached_only().answers([request("a")], "test").table == expected.table
        with pytest.raises(TypeError):
            model.answers([request("a")], "test")


def test_only_what_is_missing_is_asked(store: SqliteStore):
    ask(Scripted([0]), store, [request("a")])
    model = Scripted([2, 1, 0])
    table, _ = ask(model, store, [request(name) for name in NAMES])
    assert model.asked == ["c", "b"]
    assert table == ask(Scripted(), NoStore(), [request(name) for name in NAMES]).table


def test_answers_that_came_before_a_failure_are_kept(store: SqliteStore):
    requests = [request(name) for name in NAMES]
    with pytest.raises(RuntimeError, match="no more"):
        ask(Scripted([1, 2, 0], fails_after=2), store, requests)
    model = Scripted()
    ask(model, store, requests)
    assert model.asked == ["b"]


def test_a_model_that_was_never_asked_is_described_by_its_identity():
    with stored(Scripted(), NoStore()) as model:
        assert model.description() == {"name": "scripted", "files": "1"}


@pytest.mark.parametrize(
    ("needed", "setting", "highest"),
    [(2.0, None, 2.0), (3.0, None, 9.0), (4.0, None, 2.0), (2.0, 1.0, 1.0)],
    ids=["probed", "not probed", "refused", "capped by the settings"],
)
def test_the_temperatures_of_an_earlier_day_hold_as_far_as_they_were_probed(
    needed: float, setting: float | None, highest: float, monkeypatch: pytest.MonkeyPatch, store: SqliteStore
):
    monkeypatch.setattr(ServedModel, "temperatures", lambda self, needed: Temperatures(highest=9.0))
    config = OpenAI("m", "m", base_url="http://localhost:1", api_key_env=None, highest_temperature=setting)
    can = Capabilities("max_tokens", True, True, {}, 2.0, 20, False, 1, True, probed_for=4.0)
    described = {f"capability.{name}": value for name, value in asdict(can).items()}
    with store.open() as entries:
        entries.put({description_key(config.identity()): json.dumps(described).encode()})
        model = StoredModel(config, Local(threads=1), entries, Stopwatch())
        assert model.temperatures(needed).highest == highest


def test_fewer_trials_and_temperatures_are_taken_from_more(store: SqliteStore):
    ask(Scripted([0]), store, [request("a", temperatures=(0.5, 1.0, 2.0), trials=4)])
    model = Scripted([0])
    table, _ = ask(model, store, [request("a", temperatures=(0.5, 2.0), trials=3)])
    assert model.asked == []
    assert table == ask(Scripted([0]), NoStore(), [request("a", temperatures=(0.5, 2.0), trials=3)]).table
    more, _ = ask(model, store, [request("a", temperatures=(0.5, 2.0), trials=5)])
    assert model.asked == ["a"]
    assert more.num_rows == 10


def test_trials_that_another_run_stores_meanwhile_are_not_lost(store: SqliteStore):
    """A run with other questions as well does not wait."""
    model = Scripted([0, 1])

    def beside() -> None:
        ask(Scripted([0, 1]), store, [request("a", temperatures=(1.5,), trials=3), request("c")])

    with store.open() as entries:
        runner = StoredModel(model, Local(threads=1), entries, Stopwatch(), start_run=beside)
        runner.answers([request("a", trials=1), request("b")], "test")
    again = Scripted([0])
    for temperatures, trials in (((0.5, 1.0), 1), ((1.5,), 3)):
        table = ask(again, store, [request("a", temperatures=temperatures, trials=trials)]).table
        assert table.num_rows == len(temperatures) * trials
    assert again.asked == []


@pytest.mark.parametrize("kind", [{}, {"matcher": PARIS, **ENUMERATED}])
def test_errors_are_asked_again_and_refusals_are_not(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]
):
    requests = [request("a", trials=1, **kind), request("b", trials=1, **kind)]
    outcomes = {"a": "error", "b": "refused"}
    from robust_eval.model import reply_tables as module

    whole = module.answers_of

    def failing(replies: Sequence[Reply]) -> list[pa.Table]:
        column, tables = SCHEMA.get_field_index("outcome"), []
        for reply, table in zip(replies, whole(replies), strict=True):
            outcome = pa.array([outcomes[reply.request.question_id]] * table.num_rows)
            tables.append(table.set_column(column, SCHEMA.field("outcome"), outcome))
        return tables

    with monkeypatch.context() as patch:
        patch.setattr(module, "answers_of", failing)
        ask(Scripted([0, 1]), store, requests)
    model = Scripted([0, 1])
    table, _ = ask(model, store, requests)
    assert model.asked == ["a"]
    assert table["outcome"].to_pylist() == ["ok", "ok", "refused", "refused"]


@pytest.mark.parametrize("broken", ["load", "check"])
def test_a_run_begins_when_a_model_that_can_answer_is_asked(store: SqliteStore, broken: str):
    def refuse(*_: object) -> None:
        raise UserError("no")

    begun: list[str] = []
    with store.open() as entries:
        unable, able = (
            StoredModel(model, Local(threads=1), entries, Stopwatch(), start_run=lambda: begun.append("asked"))
            for model in (Scripted([0]), Scripted([0]))
        )
        setattr(unable.config, broken, refuse)
        with pytest.raises(UserError):
            unable.answers([request("a")], "test")
        assert begun == []
        able.answers([request("a")], "test")
        able.answers([request("a")], "test")  # is in the store
    assert begun == ["asked"]


def test_drawn_answers_have_no_curve(store: SqliteStore):
    requests = [request("a", matcher=PARIS), request("b", matcher=PARIS, **ENUMERATED)]
    first = ask(Scripted([0, 1]), store, requests)
    model = Scripted([0, 1])
    assert ask(model, store, requests) == first
    assert first.exact_curves["question_id"].to_pylist() == ["b"] * 3
    assert model.asked == []


def test_a_damaged_answer_is_asked_again(store: SqliteStore, caplog: pytest.LogCaptureFixture):
    requests = [request(name) for name in NAMES]
    expected = ask(Scripted(), store, requests)
    with sqlite3.connect(Path(store.folder, FILE)) as connection:
        key = answers_key({"files": "1"}, requests[1])
        connection.execute("UPDATE entries SET value = zeroblob(length(value)) WHERE key = ?", (key,))
    connection.close()
    model = Scripted()
    assert ask(model, store, requests) == expected
    assert model.asked == ["a"]
    assert "was damaged (1 entries are damaged): 3 entries were recovered" in caplog.text


@dataclass
class Faulty(Scripted):
    """A model with a mistake in one of its methods."""

    fault: str = ""

    def identity(self) -> Any:
        return {"identity": "x", "value": {"x": np.float32(1)}}.get(self.fault, {"files": "1"})

    def load(self) -> Any:
        return None if self.fault == "load" else self

    def complete(self, requests: Sequence[Request], missing: Set[Item]) -> Iterator[Any]:
        if self.fault == "reply":
            yield ["Rome"]
        elif self.fault == "text":
            yield [Reply(each, [Completion(0.5, 0, None)]) for each in requests]  # type: ignore[arg-type]
        else:
            yield [Reply(each, [completion(each, 0.5, 0)]) for each in requests]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("identity", "Faulty.identity() must return a mapping, not 'x'"),
        ("value", "Faulty.identity(): Object of type float32 is not JSON serializable"),
        ("load", "Faulty.load() must return a LanguageModel, not None"),
        ("reply", "complete() must yield lists of Reply, not of str"),
        ("text", "completions of a Reply must be Completion objects with a text, not Completion(temperature=0.5, "),
        (
            "few",
            "model scripted returned no complete answers to 1 of 1 prompts (the first: question 'a'): complete() must ",
        ),
    ],
)
def test_a_mistake_of_a_model_is_one_sentence(fault: str, sentence: str):
    with pytest.raises(UserError) as refused:
        ask(Faulty(fault=fault), NoStore(), [request("a")])
    assert str(refused.value).startswith(sentence)

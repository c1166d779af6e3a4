"""The probabilities of answers by what a server shows, against every answer of a language that can be enumerated."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from api_server import api_server
from experiments import run_experiment
from scripted_server import ScriptedServer, scripted_server
from table_server import TableServer
from toy_language import ALL, GRID, MATCHER, PIECES, Table, truth
from toy_served import CAN, NAMED, request, stored

from robust_eval.answer import rows
from robust_eval.error import UserError
from robust_eval.model.base import Enumeration, LetterChoices, Reply, Request
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.served_model import ServedModel
from robust_eval.reader.letters import anchored_letter
from robust_eval.store.sqlite import SqliteStore


@contextmanager
def served(
    server: TableServer, can: Capabilities | None = None, **settings: object
) -> Iterator[tuple[ServedModel, ScriptedServer]]:
    with scripted_server(server) as script:
        model = OpenAI(**{**NAMED, "base_url": script.url, **settings}).load()
        whole = server.shown == len(server.pieces)
        model._capabilities = can or replace(CAN, top_logprobs=server.shown, whole_vocabulary=whole)
        yield model, script


def replies(model: ServedModel, requests: Sequence[Request]) -> list[Reply]:
    model.check(requests)
    found = [reply for block in model.complete(requests, {each.item for each in requests}) for reply in block]
    return sorted(found, key=lambda reply: reply.request.question_id)


@pytest.mark.parametrize(("digits", "ids"), [(4, True), (6, False)])
def test_bounds_hold_the_truth_and_close_points_are_near_it(digits: int, ids: bool) -> None:
    for language in range(3):
        table = Table(language)
        with served(TableServer(table, shown=7, digits=digits, ids=ids)) as (model, _):
            (reply,) = replies(model, [request()])
        assert reply.curve is not None
        told = reply.curve
        right = dict(zip(ALL, truth(table), strict=True))
        for t, accuracy, error, lower, upper, how in zip(
            *(told.temperatures, told.accuracy, told.standard_error, told.lower, told.upper),
            told.how or (),
            strict=True,
        ):
            assert lower - 1e-9 <= right[t] <= upper + 1e-9
            assert lower <= accuracy <= upper
            if how == "bounds":
                assert upper - lower <= (0.7 if t <= 1 else 0.15)
                assert abs(accuracy - right[t]) <= 1.96 * error + 1e-9
            else:
                assert abs(accuracy - right[t]) < 4.5 * error
        assert {0.2, *GRID} <= set(told.temperatures)
        for t in GRID:
            weights = [one.weight for one in reply.completions if one.temperature == t]
            rightly = [one.weight for one in reply.completions if one.temperature == t and MATCHER.right(one.text)]
            assert sum(weights) == pytest.approx(1)
            assert sum(rightly) == pytest.approx(told.accuracy[told.temperatures.tolist().index(t)], abs=1e-6)


def test_where_a_curve_passes_near_one_half_three_times_as_many_answers_are_drawn() -> None:
    seen: set[int] = set()
    for language in range(5):
        with served(TableServer(Table(language), shown=4)) as (model, script):
            (reply,) = replies(model, [request(nodes=4, draws=8)])
        assert reply.curve is not None
        drawn = Counter(
            body["temperature"] for body in script.bodies for _ in range(body.get("n", 1)) if body.get("seed")
        )
        by_draws = [t for t, how in zip(reply.curve.temperatures, reply.curve.how or (), strict=True) if how == "draws"]
        assert by_draws == sorted(drawn)
        assert set(drawn.values()) <= {8, 24}
        seen.update(drawn.values())
    assert seen == {8, 24}


def test_a_text_that_is_cut_into_other_tokens_is_left_unknown() -> None:
    """ " Par" and "is" are written as " Paris", which is a token of its own: after that, others are likely."""
    table = Table(4)
    with served(TableServer(table, shown=14, ids=False)) as (model, script):
        (reply,) = replies(model, [request(nodes=10_000)])
    assert reply.curve is not None
    right = truth(table)[ALL.index(1.0)]
    place = reply.curve.temperatures.tolist().index(1.0)
    assert reply.curve.lower[place] <= right <= reply.curve.upper[place]
    assert any(body.get("prompt", "").endswith(" Paris") for body in script.bodies)
    assert reply.curve.upper[place] - reply.curve.lower[place] > 1e-4  # all is seen, but what is written alike


def test_parts_of_characters_that_go_by_one_name_are_left_unknown() -> None:
    """Of 14 tokens a place, vLLM's format then names six; an answer that has one of them cannot be written."""
    unnamed = [piece for piece in PIECES if piece not in (b"", b"\n", b"\n\n", b" Paris", b"ian")]
    with served(TableServer(Table(0), shown=14, ids=False, unnamed=unnamed)) as (model, script):
        (reply,) = replies(model, [request()])
    assert reply.curve is not None
    right = [p for t, p in zip(ALL, truth(Table(0)), strict=True) if t in reply.curve.temperatures]
    assert (reply.curve.lower <= np.add(right, 1e-9)).all()
    assert (reply.curve.upper >= np.subtract(right, 1e-9)).all()
    assert any(body["prompt"].endswith(" Paris") for body in script.bodies)
    assert not any("\ufffd" in body["prompt"] for body in script.bodies)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (TableServer(Table(0), ids=False, counts=False), "it does not count prompt tokens"),
        (TableServer(Table(0), ids=False, forgets=True), "the next-token distribution differs by"),
    ],
)
@pytest.mark.parametrize("highest", [1.0, 2.0])
def test_a_server_that_does_not_go_on_as_it_answers_is_refused_with_what_would_work(
    server: TableServer, reason: str, highest: float
) -> None:
    can = replace(CAN, highest_temperature=highest)
    with served(server, can) as (model, _), pytest.raises(UserError, match=reason) as refused:
        replies(model, [replace(request(), temperatures=(0.2, 0.6, 1.0))])
    assert "choose sampler=temperature_sweep" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "can", "reason"),
    [
        ({"batch": True}, CAN, "model.batch=false"),
        ({"reasoning_effort": "low"}, CAN, "remove model.thinking_token_budget"),
        ({}, replace(CAN, top_logprobs=0), "returns no log-probabilities, but sampler=exact needs them"),
        ({}, replace(CAN, tempered_logprobs=True), "--logprobs-mode raw_logprobs"),
    ],
)
def test_what_keeps_a_server_from_being_asked_is_said_before(
    settings: dict[str, object], can: Capabilities, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robust_eval.model.served.served_model.get_or_measure", lambda *_: can.to_text())
    with served(TableServer(Table(0)), can, **settings) as (model, script):
        with pytest.raises(UserError, match=reason):
            model.check([request()])
        assert not script.bodies


@pytest.mark.parametrize("changes", ["silent", "after_temperature"])
def test_a_server_that_changes_its_mind_about_log_probabilities_makes_errors_that_are_asked_again(
    changes: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = TableServer(Table(1))
    monkeypatch.setattr("robust_eval.model.served.served_model.get_or_measure", lambda *_: CAN.to_text())
    requests = [request(number, nodes=20) for number in range(4)]
    with scripted_server(server) as script, SqliteStore(str(tmp_path / "store")).open() as entries:
        whole = stored(entries, script.url, requests[:1])
        first = len(script.bodies)
        server.changes_after = (changes, len(script.bodies) + first)
        spoilt = stored(entries, script.url, requests)
        assert "error" in {outcome for _, outcome in rows(spoilt.table, "question_id", "outcome")}
        setattr(server, changes, False)
        server.changes_after = None
        mended = stored(entries, script.url, requests)
        before = len(script.bodies)
        again = stored(entries, script.url, requests)
        assert len(script.bodies) == before
    assert {outcome for _, outcome in rows(mended.table, "question_id", "outcome")} == {"ok", "empty"}
    assert again.exact_curves.equals(mended.exact_curves)
    of_first = [
        row for row in rows(mended.exact_curves, "question_id", "temperature", "accuracy", "how") if row[0] == "q0"
    ]
    assert of_first == list(rows(whole.exact_curves, "question_id", "temperature", "accuracy", "how"))


def test_faults_change_nothing() -> None:
    server = TableServer(Table(2))
    with served(server) as (model, _):
        (good,) = replies(model, [request(nodes=30)])
    fail = {2, 5, 6, 9, 20}
    with served(TableServer(Table(2), fails=fail), retries=3) as (model, script):
        (mended,) = replies(model, [request(nodes=30)])
    assert len(script.bodies) > max(fail)
    assert good.curve is not None
    assert mended.curve is not None
    assert mended.curve.accuracy.tolist() == good.curve.accuracy.tolist()
    assert [one.text for one in mended.completions] == [one.text for one in good.completions]


def test_a_run_that_may_cost_no_more_ends_and_says_so() -> None:
    priced = {"prompt_price": 1e6, "completion_price": 1e6, "budget": 400.0}
    with served(TableServer(Table(2)), **priced) as (model, script):
        with pytest.raises(UserError, match=r"could exceed model\.budget=400 USD"):
            replies(model, [request(number) for number in range(20)])
        assert model.spending.spent <= 400
        assert script.bodies


LETTERS = [b"", b"\n", b" A", b" B", b"A", b" C", b" The", b"B.", b"?", b" x", b" D"]


@pytest.mark.parametrize("shown", [6, 11])
def test_one_request_tells_how_probable_each_choice_is(shown: int) -> None:
    table = Table(5, vocabulary=len(LETTERS))
    server = TableServer(table, shown=shown, pieces=LETTERS)
    asked = replace(request(), matcher=None, max_new_tokens=1, enumeration=Enumeration(1, ALL, LetterChoices(3, 1), 40))
    logits = table.logits(()).double()
    chosen = [[2, 4], [3, 7], [5]]
    with served(server) as (model, script):
        (reply,) = replies(model, [asked])
    assert reply.curve is not None
    assert {one.finish_reason for one in reply.completions} == {"closed"}
    assert sum("temperature" in body and body["temperature"] == 0 for body in script.bodies) == 1
    bounded = [t for t, how in zip(reply.curve.temperatures, reply.curve.how or (), strict=True) if how == "bounds"]
    assert bounded if shown == 6 else bounded == list(ALL)
    assert len(script.bodies) == 1 + sum(4 for t in GRID if t not in bounded)
    for t in GRID:
        p = (logits / t).softmax(-1).numpy()
        place = reply.curve.temperatures.tolist().index(t)
        assert reply.curve.lower[place] - 1e-9 <= p[[3, 7]].sum() <= reply.curve.upper[place] + 1e-9
        weights = dict.fromkeys("ABC", 0.0)
        for one in reply.completions:
            if one.temperature == t and (letter := anchored_letter(one.text, 3)):
                weights[letter] += one.weight
        assert [weights[letter] for letter in "ABC"] == pytest.approx(
            [p[ids].sum() for ids in chosen], abs=0.15 if t in bounded else 0.25
        )
        assert sum(one.weight for one in reply.completions if one.temperature == t) == pytest.approx(1)


def test_a_run_against_llama_cpp_has_curves_of_facts_and_the_letters_of_multiple_choice_questions(
    tmp_path: Path,
) -> None:
    with api_server(slots=2) as url:
        model = ("model=openai_compatible", f"model.base_url={url}", "model.model=m", "model.prompt_style=plain")
        small = ("sampler=exact", "sampler.exact.nodes=6", "sampler.exact.draws=2", "sampler.exact.selection=none")
        grid = ("sampler.exact.temperatures=[0.5,1.6]", "tracking=none", f"paths.mlruns={tmp_path}")
        for data, questions in (("facts", 1), ("physics", 1)):
            asked = (*model, *small, *grid, f"dataset={data}", f"dataset.limit={questions}", "metric=[frs,certainty]")
            (tmp_path / data).mkdir()
            result = run_experiment(tmp_path / data, *asked)
            table = result.graded_by_sampler["exact"]
            assert set(table["outcome"].to_pylist()) <= {"ok", "empty"}
            curves = pq.read_table(tmp_path / data / "curves.parquet")
            points = list(rows(curves, "temperature", "accuracy", "lower", "upper", "how"))
            assert {how for *_, how in points} <= {"bounds", "draws"}
            assert all(0 <= lower <= accuracy <= upper <= 1 for _, accuracy, lower, upper, _ in points)
            at_half = [point for point in points if point[0] == 0.5]
            assert len(at_half) == questions
            assert all(how == "bounds" for *_, how in at_half)
            summary = result.summary()
            assert 0 <= summary["accuracy.t0.5"] <= 1
            assert summary["certainty.entropy.t0.5"] >= 0

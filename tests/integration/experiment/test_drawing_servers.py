"""Runs that ask servers which do not draw as they are asked to: each is refused, or warned of, with what helps."""

import json
import logging
from pathlib import Path

import pytest
from drawing_server import DrawingServer
from experiments import ask
from fading_server import asked_of
from scripted_server import scripted_server

from robust_eval.error import UserError
from robust_eval.report.warnings import warnings
from robust_eval.tracking.result import Result

FRS = [
    "experiment=frs",
    "dataset.limit=24",
    "sampler.temperature_sweep.trials=2",
    "sampler.temperature_sweep.selection=contains",
]
GRID = ["sampler.temperature_sweep.temperatures=[0.5,1,2]"]
SPOKEN = ("ignores the temperature", "silently", "copies of one", "repeats itself", "in a row", "as if at")


def ran(server: DrawingServer, folder: Path, *overrides: str) -> Result:
    with scripted_server(server, honest=False) as scripted:
        return ask(scripted.url, folder, *FRS, *GRID, *overrides)


def refused(server: DrawingServer, folder: Path, *overrides: str) -> str:
    with scripted_server(server, honest=False) as scripted, pytest.raises(UserError) as problem:
        ask(scripted.url, folder, *overrides)
    assert not any(asked_of(body) for body in scripted.bodies)
    return str(problem.value).replace(scripted.url, "URL")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of that is about draws."""
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [message for message in messages if any(words in message for words in SPOKEN)]


def in_report(result: Result) -> list[str]:
    return [each.problem for each in warnings(result) if any(words in each.problem for words in (*SPOKEN, "makes"))]


def test_a_server_that_draws_is_asked_and_nothing_is_said_against_it(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    result = ran(DrawingServer(takes_seeds=True, shows=True), tmp_path / "run", "metric.frs.k=10")
    assert (said(caplog), in_report(result)) == ([], [])
    assert len(result.kept) >= 20
    assert "questions.equal_in_a_row" not in result.summary()
    assert result.description["loaded.capability.seed"] is True


def test_a_server_that_gives_one_reply_is_refused(tmp_path: Path):
    for shows in (True, False):
        reason = refused(DrawingServer(deterministic=True, shows=shows), tmp_path / f"{shows}", *FRS[:2], *CERTAIN)
        assert reason.startswith("URL returns the same reply for every seed: at ")
        assert "model.deterministic=true" in reason


CERTAIN = ["experiment=certainty"]


def test_a_server_that_is_said_to_give_one_reply_is_asked_each_wording_once_and_nothing_else(tmp_path: Path):
    server, own = DrawingServer(deterministic=True, shows=True), ["model.deterministic=true"]
    for number, overrides in enumerate(([*FRS, *GRID], [*CERTAIN, "dataset.limit=3"])):
        reason = refused(server, tmp_path / f"refused{number}", *overrides, *own)
        assert reason.startswith(
            "model.deterministic=true declares that all replies to a prompt are identical, but the sampler "
        )
        assert "every fact would seem unbroken" in reason
    with scripted_server(server, honest=False) as scripted:
        multiqa = ["experiment=multiqa", "dataset=facts", "dataset.limit=3", "dataset.shuffle=true", "aggregator=text"]
        result = ask(scripted.url, tmp_path / "multiqa", *multiqa, *own)
    assert result.kept


def test_greedy_answers_alone_are_asked_of_a_server_that_gives_one_reply(tmp_path: Path):
    """A judge and a writer of rewrites are asked at temperature 0."""
    from robust_eval.model.base import Request
    from robust_eval.model.served.openai import OpenAI
    from robust_eval.prompt.prompt import Prompt

    with scripted_server(DrawingServer(deterministic=True), honest=False) as scripted:
        model = OpenAI("m", "m", base_url=scripted.url, api_key_env=None).load()
        model.check([Request("q", 0, Prompt("", (), "An animal?"), (0.0,), 1, 8, 1)])


def test_a_server_that_ignores_the_temperature_is_refused_a_sweep_and_asked_at_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    server = DrawingServer(shows=True, ignores=True)
    reason = refused(server, tmp_path / "sweep", *FRS)
    assert "has only its own" in reason
    assert "experiment=certainty" in reason
    (spoken,) = said(caplog)
    assert "ignores the temperature: its replies at 0 and 2 are identical" in spoken
    assert "model.takes_temperature=false" in spoken
    with scripted_server(server, honest=False) as scripted:
        result = ask(scripted.url, tmp_path / "own", *CERTAIN, "dataset.limit=3", "sampler.repetition.trials=4")
        assert not any("temperature" in body for body in scripted.bodies if asked_of(body))
    assert "The server ignores the temperature and uses its own." in in_report(result)


def test_a_server_that_caps_the_temperature_is_asked_up_to_there(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    result = ran(DrawingServer(shows=True, cap=1.5), tmp_path / "run", "dataset.limit=6")
    assert set(result.graded_by_sampler["temperature_sweep"]["temperature"].to_pylist()) == {0.5, 1.0}
    assert any("silently caps temperatures at 1.5" in each for each in said(caplog))
    assert "The server silently caps higher temperatures at 1.5." in in_report(result)


def test_a_server_that_copies_one_reply_is_asked_for_one_at_a_time(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with scripted_server(DrawingServer(takes_seeds=False, shows=True, copies=True), honest=False) as scripted:
        result = ask(scripted.url, tmp_path / "run", *FRS, *GRID, "dataset.limit=6")
    assert not any("n" in body for body in scripted.bodies if asked_of(body))
    (spoken,) = said(caplog)
    assert (
        "answers a request for several replies (n) with copies of one: the run sends one request for each reply"
        in spoken
    )
    assert in_report(result) == []


def test_replies_that_are_equal_against_their_log_probabilities_stop_the_run(tmp_path: Path):
    with pytest.raises(UserError, match="repeats itself: its replies at temperature 2 agree so often") as problem:
        ran(DrawingServer(shows=True, caches_facts=True, sure=3), tmp_path / "run")
    assert "turn off greedy decoding and response caching" in str(problem.value)


def test_equal_replies_to_twenty_questions_in_a_row_are_warned_of_where_no_log_probability_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    certainty = ["experiment=certainty", "sampler.repetition.temperatures=[1]", "sampler.repetition.trials=3"]
    with scripted_server(DrawingServer(caches_facts=True), honest=False) as scripted:
        result = ask(scripted.url, tmp_path / "run", *certainty, "dataset=facts", "dataset.limit=21")
        again = ask(scripted.url, tmp_path / "again", *certainty, "dataset=facts", "dataset.limit=21")
    assert again.prompts_asked == 0
    for each, folder in ((result, "run"), (again, "again")):
        row = json.loads((tmp_path / folder / "summary.json").read_text())["questions.equal_in_a_row"]
        assert 20 <= row <= 21
        expected = (
            f"For {row:.0f} questions in a row, all replies to a question are identical at the highest temperature"
        )
        assert expected in " ".join(capsys.readouterr().out.split()) or folder == "again"
        assert any(expected in said for said in in_report(each))

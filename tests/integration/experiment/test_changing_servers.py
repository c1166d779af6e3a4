"""A server that answers under another name, or with another fingerprint, than before."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from drawing_server import DrawingServer
from experiments import ask as ask_server
from fading_server import asked_of
from json_lines import cases
from scripted_server import Body, ScriptedServer, certain_choice, scripted_server

from robust_eval.error import UserError
from robust_eval.report.warnings import sampling_warnings
from robust_eval.tracking.result import Result

FEW = ["dataset=facts", "dataset.limit=3", "sampler.repetition.temperatures=[1]", "sampler.repetition.trials=2"]

MODEL, FINGERPRINT = "served_model", "system_fingerprint"


class Named:
    """Draws, gives ``reply`` where it is asked to judge or rewrite, and goes by another of its names after each so many
    requests for facts, verdicts or rewrites.
    """

    def __init__(self, *names: tuple[Any, Any], each: int = 10**9, reply: str = "") -> None:
        self.names, self.each, self.numbers = names, each, count()
        self.draws, self.reply = DrawingServer(), reply

    def __call__(self, body: Body) -> tuple[int, Mapping[str, str], Any]:
        status, headers, reply = self.draws(body)
        helps = re.search("Is the reply right|Rewrite the", str(body["messages"][-1]["content"]))
        if helps:
            reply = {"choices": [certain_choice(0, self.reply)]}
        number = next(self.numbers) if helps or asked_of(body) else 0
        model, fingerprint = self.names[number // self.each % len(self.names)]
        return status, headers, reply | {"model": model, FINGERPRINT: fingerprint}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(Named((None, None)), honest=False) as scripted:
        yield scripted


def ask(server: ScriptedServer, folder: Path, *overrides: str) -> Result:
    return ask_server(server.url, folder, "experiment=certainty", *FEW, *overrides)


def served(folder: Path, column: str) -> set[str | None]:
    return set(pq.read_table(folder / "answers.parquet")[column].to_pylist())


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    return [each for each in said if re.search(r"(model|system_fingerprint) changed: ", each)]


def in_report(result: Result) -> list[str]:
    return [each.problem for each in sampling_warnings(result)]


@pytest.mark.parametrize(
    ("names", "stored"), cases(__file__, "the_names_of_what_answered_are_stored_with_each_answer_and_are_no_change")
)
def test_the_names_of_what_answered_are_stored_with_each_answer_and_are_no_change(
    names: list[Any], stored: str | None, server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    server.answer = Named(*zip(names, names, strict=True), each=1)
    result = ask(server, tmp_path / "run")
    assert served(tmp_path / "run", MODEL) == served(tmp_path / "run", FINGERPRINT) == {stored}
    assert (in_report(result), warned(caplog)) == ([], [])
    assert not [name for name in result.summary() if MODEL in name or FINGERPRINT in name]


@pytest.mark.parametrize(
    ("names", "column", "sentence"),
    [
        ([("old", "fp 1"), ("new", "fp 2")], MODEL, "2 models answered: new, old."),
        (
            [("m", "fp 1"), ("m", "fp 2")],
            FINGERPRINT,
            "The system_fingerprint of the server changed: fp 1, fp 2.",
        ),
    ],
)
def test_a_change_in_mid_run_is_one_warning_in_terminal_report_and_summary(
    names: list[tuple[str, str]],
    column: str,
    sentence: str,
    server: ScriptedServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
):
    server.answer = Named(*names, each=4)
    result = ask(server, tmp_path / "run")
    (spoken,) = warned(caplog)
    place = column == FINGERPRINT
    assert spoken.endswith(f"changed: {', '.join(sorted(name[place] for name in names))}")
    assert any(said.startswith(sentence) for said in in_report(result))
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence in (tmp_path / "run" / "report.html").read_text()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())[f"replies.{column}s"] == 2


@pytest.mark.parametrize(
    ("settings", "reply", "counted", "sentence"),
    cases(__file__, "a_change_of_the_judge_or_the_rewriter_is_one_warning_in_terminal_report_and_summary"),
)
def test_a_change_of_the_judge_or_the_rewriter_is_one_warning_in_terminal_report_and_summary(
    settings: list[str],
    reply: str,
    counted: str,
    sentence: str,
    server: ScriptedServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
):
    part = settings[0].split("=")[0]
    with scripted_server(Named(("old", "1"), ("new", "2"), each=2, reply=reply), honest=False) as other:
        result = ask(server, tmp_path / "run", f"{part}.model.base_url={other.url}", *settings)
    (spoken,) = warned(caplog)
    assert spoken.endswith("changed: new, old")
    assert sentence in in_report(result)
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence in (tmp_path / "run" / "report.html").read_text()
    changed = {name: value for name, value in result.summary().items() if MODEL in name}
    assert changed == {f"{counted}.served_models": 2}


def test_servers_behind_a_router_that_take_turns_are_one_warning(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    server.answer = Named(("m", "fp 1"), ("m", "fp 2"), each=1)
    ask(server, tmp_path / "run")
    ask(server, tmp_path / "more", "sampler.repetition.trials=4")
    assert len(warned(caplog)) == 1


def test_answers_of_another_model_do_not_join_those_in_the_store(server: ScriptedServer, tmp_path: Path):
    server.answer = Named(("old", None))
    ask(server, tmp_path / "run")
    server.answer = Named(("new", None))
    with pytest.raises(UserError) as refused:
        ask(server, tmp_path / "more", "sampler.repetition.trials=4")
    assert "the server's model is now new, but stored answers are from old" in str(refused.value)
    assert "set store.folder to a new folder" in str(refused.value)
    before = len(server.received)
    assert ask(server, tmp_path / "again").prompts_asked == 0  # what is stored is still read
    assert len(server.received) == before
    result = ask(server, tmp_path / "anew", "sampler.repetition.trials=4", f"store.folder={tmp_path / 'other'}")
    assert (served(tmp_path / "anew", MODEL), in_report(result)) == ({"new"}, [])
    server.answer = Named(("old", None))
    ask(server, tmp_path / "old", "sampler.repetition.trials=4")  # nothing of the other model was stored
    assert served(tmp_path / "old", MODEL) == {"old"}


def test_answers_with_another_fingerprint_join_those_in_the_store_with_a_warning(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    server.answer = Named(("m", "fp 1"))
    ask(server, tmp_path / "run")
    server.answer = Named(("m", "fp 2"))
    result = ask(server, tmp_path / "more", "sampler.repetition.trials=4")
    (spoken,) = warned(caplog)
    assert spoken.endswith("the server's system_fingerprint changed: fp 1, fp 2")
    assert result.summary()["replies.system_fingerprints"] == 2

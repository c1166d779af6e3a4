"""Profiles and gates of models that take no temperature, one candidate, or a temperature without reasoning alone."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from documented_server import SERVERS, DocumentedServer
from experiments import ask, configuration, tracked_values
from scripted_server import ScriptedServer, scripted_server

from robust_eval.cli import gate
from robust_eval.experiment.answer_source import own_temperature_profile
from robust_eval.experiment.plan import stages_of
from robust_eval.model.base import Temperatures
from robust_eval.plot.figure_registry import registered
from robust_eval.runs.figure_data import figure_data
from robust_eval.tracking.result import Result

SMALL = [
    *("experiment=profile", "dataset=facts", "dataset.limit=40", "aggregator=text", "tracking=none"),
    *("model.max_completion_tokens=300", "sampler.temperature_sweep.selection=contains"),
    *("sampler.temperature_sweep.trials=1", "sampler.perturbation.rewrites=2", "sampler.repetition.trials=2"),
    *("sampler.challenge.turns=1", "sampler.challenge.trials=1"),
]


OPUS = replace(
    DocumentedServer(**SERVERS["opus 5"]),
    refused=["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "logprobs", "seed"],
    dropped=[],
    efforts=dict.fromkeys(("none", "low", "medium", "high"), 0),
    effort="high",
)
"""As it was documented, but that it heeds efforts."""


def profiled(server: ScriptedServer, folder: Path, *overrides: str) -> Result:
    return ask(server.url, folder, *SMALL, f"model.name={folder.name}", *overrides)


def test_a_model_without_a_temperature_is_profiled_under_all_else_that_it_allows_and_gated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    tracked = tracked_values(monkeypatch)
    with scripted_server(OPUS) as server:
        result = profiled(server, tmp_path / "opus")
        assert tracked["sampler"] == "perturbation+repetition+order+challenge+thinking"
        assert tracked["method"].startswith("agreement+certainty+order+challenge+")
        assert tracked["name"].startswith(tracked["method"])
        chosen = (
            "opus accepts no temperature: the profile uses rewording, repetition, order of choices, pushback, "
            "reasoning "
            "effort, at the model's own temperature, and leaves out temperature (it needs several)."
        )
        assert chosen in caplog.messages
        assert result.description["loaded.profile"] == chosen
        for text in (capsys.readouterr().out, (tmp_path / "opus" / "report.html").read_text()):
            assert chosen in " ".join(re.sub(r"&#\d+;", "'", text).split())
        figures = result.summary()
        shares = ("robust_at_own", "robust_to_all", "first.rewording", "first.pushback", "first.thinking")
        assert all(0 <= figures[f"profile.{name}"] <= 1 for name in shares)  # type: ignore[operator]
        assert not {"frs.d1", "profile.robust", "profile.robust_to_pushback"} & figures.keys()
        draws = Counter(body["messages"][-1]["content"] for body in server.bodies if "reasoning_effort" not in body)
        # the draws of the baseline answer are those of the repetition
        assert {draws[f"Question: {question.text}\nAnswer:"] for question in result.kept} == {5}
        efforts = {body.get("reasoning_effort") for body in server.bodies}
        assert efforts == {None, "low", "high", "unknown"}
        assert [question.id for question in result.kept] == result.graded_baseline.filter(
            result.graded_baseline["correct"]
        )["question_id"].to_pylist()  # the facts that the most frequent answer has right
        caplog.clear()
        served = [f"model.base_url={server.url}", "model.model=m", "model.name=opus", "store=none"]
        planned = stages_of(configuration(*SMALL, "model=openai_compatible", *served, f"paths.mlruns={tmp_path}"))
        assert [stage.name for stage in planned if stage.requests] == [
            "most frequent answers",
            *(f"sampled answers ({name})" for name in ("perturbation", "repetition", "challenge", "thinking")),
            "answers to unanswerable questions",
        ]
        assert chosen in caplog.messages  # a plan of the same day knows the server
        asked = len(server.bodies)
        monkeypatch.setattr("sys.argv", ["gate", *[str(tmp_path / "opus")] * 2, "--output", str(tmp_path / "out")])
        with pytest.raises(SystemExit) as ended:
            gate.main()
        found = json.loads((tmp_path / "out" / "verdict.json").read_text())
        assert (ended.value.code, found["identical"], len(server.bodies)) == (0, True, asked)
        assert [each["label"] for each in found["metrics"]] == [
            "knowledge (accuracy of the most frequent answers)",
            "firmness (right in all 5 repetitions and rewordings)",
        ]


@pytest.mark.parametrize(
    ("overrides", "takes_effort", "left_out"),
    [
        ([], True, "temperature (it needs several)"),
        ([], False, "reasoning effort (the server accepts no reasoning_effort)"),
        (["model.takes_temperature=false"], False, "reasoning effort (model.takes_temperature=false skips its probe)"),
        (["model.reasoning_effort=low"], True, "reasoning effort (model.reasoning_effort already sets the effort)"),
        (["model.max_completion_tokens=null"], True, "reasoning effort (it needs model.max_completion_tokens)"),
        (["model.prompt_style=plain"], True, "pushback (it needs model.prompt_style=chat)"),
    ],
)
def test_what_a_profile_leaves_out_is_said_with_the_reason(overrides: list[str], takes_effort: bool, left_out: str):
    config = configuration(*SMALL, "model=openai_compatible", "model.model=m", "model.name=m", *overrides)
    supported = Temperatures(greedy=False, default_only=True, takes_effort=takes_effort)
    own = own_temperature_profile(config.sampler, config.metric, config.model, supported)
    assert own is not None
    assert own.sentence.endswith(f"{left_out}.")
    assert "frs" not in own.metrics
    assert [*own.only_selecting] == ["temperature_sweep"]
    assert own_temperature_profile(config.sampler, config.metric, config.model, Temperatures()) is None
    only = {"certainty": config.metric["certainty"]}
    assert own_temperature_profile(config.sampler, only, config.model, supported) is None
    if not takes_effort:  # nothing is left to measure
        swept = {"temperature_sweep": config.sampler["temperature_sweep"]}
        assert own_temperature_profile(swept, config.metric, config.model, supported) is None


def test_a_temperature_that_reasoning_excludes_is_swept_without_it_and_falls_away_with_it(tmp_path: Path):
    few = ("dataset.limit=12", "dataset.shuffle=true")
    with scripted_server(replace(DocumentedServer(**SERVERS["gpt-5"]), logprobs=20)) as server:
        none = profiled(server, tmp_path / "none", "model.reasoning_effort=none", *few)
        default = profiled(server, tmp_path / "default", *few)
    assert "profile.robust" in none.summary()
    assert {"temperature_sweep", "thinking"} & none.graded_by_sampler.keys() == {"temperature_sweep"}
    assert {"temperature_sweep", "thinking"} & default.graded_by_sampler.keys() == {"thinking"}


def test_a_profile_without_log_probabilities_has_breaking_temperatures_in_place_of_frs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with scripted_server(DocumentedServer(**SERVERS["gemini 3"])) as server:
        result = profiled(server, tmp_path / "gemini")
    chosen = (
        "gemini returns no log-probabilities: the profile has breaking temperatures, but leaves out FRS and the "
        "initial entropy, which need them."
    )
    assert chosen in caplog.messages
    assert result.description["loaded.profile"] == chosen
    figures = result.summary()
    assert figures["profile.robust.n"] == figures["frs.unbroken_share.n"] == len(result.kept)
    assert figures["profile.first.temperature"] > 0
    assert figures["frs.d1"] is None
    assert result.description["undefined.frs.d1"] == "the greedy answers have no log-probabilities"
    assert not {"profile.spearman.frs_entropy", "profile.robust_at_own"} & figures.keys()
    assert chosen in (tmp_path / "gemini" / "report.html").read_text()
    run = figure_data(result)
    drawn = {entry.name for entry in registered() if entry.allowed and entry.allowed(run)}
    assert "survival" in drawn
    assert not any("frs" in name for name in drawn)

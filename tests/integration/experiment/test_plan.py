"""What a run is going to ask, told before it asks: against what it then asks of a server."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from api_server import api_server
from experiments import run_experiment
from fading_server import FadingServer
from scripted_server import ScriptedServer, scripted_server
from tiny_model import plain_settings, save_tiny_model

from robust_eval.config.overrides import Checked, checked_overrides, jobs
from robust_eval.config.schema import register
from robust_eval.error import UserError
from robust_eval.experiment.plan import Stage, deduplicated, duration, in_words, stages_of, total
from robust_eval.runtime import measured_choices
from robust_eval.tracking.result import Result

Plan = Callable[..., list[Stage]]
Run = Callable[..., Result]
SWEEP = (
    *("sampler.temperatures=[0.5,1.0]", "sampler.trials=4", "sampler.selection=none"),
    "sampler.prompts=builtin:zero_shot.yaml",  # exemplars take most of the time
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """One that brings ten answers with a request."""
    with scripted_server(FadingServer(choices=10)) as server:
        yield server


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(measured_choices, "cache_folder", lambda: folder)


@pytest.fixture
def settings(tmp_path: Path, server: ScriptedServer) -> list[str]:
    """A model behind the server, six questions, and a store of this test."""
    return [
        *("dataset.limit=6", "tracking=none", f"paths.mlruns={tmp_path / 'mlruns'}"),
        *("model=openai_compatible", f"model.base_url={server.url}", "model.model=smollm2"),
    ]


@pytest.fixture
def plan(settings: list[str]) -> Plan:
    """What a run with these overrides would ask."""
    register()
    return lambda *overrides: stages_of(checked_overrides([*settings, *overrides]).config)


@pytest.fixture
def run(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run with these overrides."""

    def run(*overrides: str) -> Result:
        register()
        checked = checked_overrides([*settings, *overrides])
        return run_experiment(tmp_path_factory.mktemp("run"), *checked.overrides)

    return run


def counts(stages: Sequence[Stage]) -> list[tuple[str, int, int, bool]]:
    """Name, requests, those that are missing, and whether these may be fewer."""
    return [(stage.name, stage.requests, len(stage.missing), stage.at_most) for stage in stages]


def test_a_plan_asks_nothing_and_says_what_the_run_then_asks(plan: Plan, run: Run, server: ScriptedServer):
    sent = len(server.received)
    before = plan(*SWEEP)
    assert len(server.received) == sent
    assert counts(before) == [("greedy answers", 6, 6, False), ("sampled answers", 6, 6, False)]
    assert (total(before).answers, total(before).requests) == (6 + 48, 6 + 48)  # not known what a request brings

    result = run(*SWEEP)
    figures = result.counts()
    assert figures["tokens.answering.completion"] <= total(before).completion_tokens
    again = len(server.received)
    assert counts(plan(*SWEEP)) == [("sampled answers", 6, 0, False)]
    assert in_words(plan(*SWEEP)) == "nothing, every answer is there"

    more = plan(*SWEEP, "sampler.trials=6", "sampler.temperatures=[0.5,1.0,1.5]")
    assert counts(more) == [("sampled answers", 6, 6, False)]
    assert total(more).answers == 6 * (2 * 2 + 6)
    assert total(more).requests == 6 * 3  # it is known by now: the server brings ten answers at once
    assert len(server.received) == again
    run(*SWEEP, "sampler.trials=6", "sampler.temperatures=[0.5,1.0,1.5]")
    assert len(server.received) - again == total(more).requests


def test_the_tokens_of_a_run_are_about_those_of_its_plan(plan: Plan, run: Run):
    one = ("sampler.temperatures=[0.5,1.0]", "sampler.trials=1", "sampler.selection=none", "dataset.limit=1")
    with api_server(slots=1) as url:
        own = (*one, f"model.base_url={url}")
        planned = total(plan(*own))
        counted = run(*own).counts()
    assert counted["tokens.answering.prompt"] == pytest.approx(planned.prompt_tokens, rel=0.05)


def test_what_follows_from_answers_that_are_not_there_is_counted_whole(plan: Plan, run: Run, server: ScriptedServer):
    fading = server.answer
    server.answer = lambda body: fading(body if "lake" not in str(body) else {"messages": [{"content": "?"}]})
    selecting = (*SWEEP[:2], "sampler.selection=contains", SWEEP[3])
    assert counts(plan(*selecting)) == [("greedy answers", 6, 6, False), ("sampled answers", 6, 6, True)]
    assert counts(plan(*selecting, "sampler.max_questions=2"))[1] == ("sampled answers", 2, 2, True)
    kept = len(run(*selecting).kept)
    assert kept == 5
    more = plan(*selecting, "sampler.trials=5")
    assert counts(more) == [("sampled answers", kept, kept, False)]


def test_rewrites_that_are_not_written_yet_are_counted_as_if_all_came(plan: Plan):
    stages = plan("experiment=multiqa", "rewriter=llm", "dataset.limit=6", "rewriter.rewrites=3", "sampler.rewrites=3")
    assert counts(stages) == [
        ("rewrites, attempt 1", 6, 6, False),
        ("greedy answers", 6, 6, True),
        ("sampled answers", 24, 24, True),
    ]
    first, greedy, sampled = (stage.workload() for stage in stages)
    assert first.completion_tokens == 6 * 256
    assert sampled.prompt_tokens == 4 * greedy.prompt_tokens


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["sampler=[perturbation,exact]", "model.generation.top_k=5"], "computes with all of the distribution"),
        (
            ["sampler=[perturbation,temperature_sweep]", "sampler.temperature_sweep.stop_on_match=true"],
            "cannot be asked of a server",
        ),
    ],
    ids=["exact", "parts of answers"],
)
def test_what_the_measured_model_cannot_do_is_said_before_rewrites_are_paid(
    run: Run, server: ScriptedServer, more: list[str], said: str
):
    sent = len(server.received)
    with pytest.raises(UserError, match=said):
        run("metric=[agreement,frs]", "rewriter=llm", "aggregator=text", *more)
    assert len(server.received) - sent <= 20  # what the server can do


def test_a_run_says_what_it_is_going_to_ask(run: Run, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    run(*SWEEP, "model.prompt_price=1", "model.completion_price=2", "model.requests_per_minute=6000")
    (said,) = [record.message for record in caplog.records if record.message.startswith("to be asked: ")]
    assert said.startswith("to be asked: 54 answers in 18 requests, about ")  # four answers come with one request
    assert said.endswith(" a cost of at most 0.00, 1 s at least")


def test_jobs_that_ask_for_the_same_answers_are_counted_once(settings: list[str]):
    register()
    overrides = [*settings, *SWEEP[::2], "sampler.trials=2,4", "metric.frs.d=1,2", "seed=0,1"]
    planned: dict[bytes, set[tuple[float, int]]] = {}
    found = {
        ", ".join(telling): total(deduplicated(stages_of(each), planned)).answers
        for telling, each in jobs(checked_overrides(overrides).overrides)
    }
    trials = "sampler.temperature_sweep.trials"
    assert found == {
        f"{trials}=2, metric.frs.d=1, seed=0": 6 + 24,
        f"{trials}=2, metric.frs.d=1, seed=1": 6 + 24,
        f"{trials}=2, metric.frs.d=2, seed=0": 0,
        f"{trials}=2, metric.frs.d=2, seed=1": 0,
        f"{trials}=4, metric.frs.d=1, seed=0": 24,
        f"{trials}=4, metric.frs.d=1, seed=1": 24,
        f"{trials}=4, metric.frs.d=2, seed=0": 0,
        f"{trials}=4, metric.frs.d=2, seed=1": 0,
    }


def test_a_model_that_is_loaded_here_answers_all_trials_anew(tmp_path: Path):
    register()
    tiny = plain_settings(save_tiny_model(tmp_path / "model"))
    settings = [*tiny, "dataset.limit=3", "tracking=none", f"paths.mlruns={tmp_path / 'mlruns'}", "engine.threads=1"]

    def checked(*more: str) -> Checked:
        return checked_overrides([*settings, *SWEEP, *more])

    def answers(*more: str) -> int:
        planned: dict[bytes, set[tuple[float, int]]] = {}
        lines = checked(*more).overrides
        return sum(total(deduplicated(stages_of(each), planned)).answers for _, each in jobs(lines))

    assert answers() == 3 + 24
    asked = checked()
    run_experiment(tmp_path, *asked.overrides)
    assert answers() == 0
    assert answers("sampler.trials=3") == 0
    assert answers("sampler.trials=6") == 36
    assert answers("sampler.trials=5,6") == 30 + 36
    assert answers("sampler.trials=6,5") == 36


def test_what_other_jobs_ask_changes_no_request(plan: Plan):
    stages = plan(*SWEEP)
    first, again = (deduplicated(stages, planned) for planned in ({}, {}))
    assert [stage.missing for stage in first] == [stage.missing for stage in again]
    assert [replace(stage, requests=6) for stage in first] == stages


COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "a priced model without a key": (
        ["model=gpt4o_mini", "dataset.limit=100", "sampler.trials=3", "model.requests_per_minute=500"],
        [
            "What would be asked",
            "│ greedy answers  │     100 │      100 │",
            "│ sampled answers │ ≤ 3,000 │    3,000 │",
            "│ together        │ ≤ 3,100 │    3,100 │",
            "Tokens read are estimated; those written are as many as there may be at most.",
            "At most (≤): how many it will be follows from answers that are not there yet.",
            "Each answer counts as a request: whether one brings several is asked when the run begins.",
            "Time: 7 min at least, by the limits for a minute.",
        ],
    ),
    "a budget that does not suffice": (
        ["model=gpt4o_mini", "model.budget=0.01"],
        [
            "Time: no limit is set; 64 requests at once of one second each would take ",
            "The budget of 0.01 may end the run before, which then can be continued.",
        ],
    ),
    "a model that is loaded here": (["experiment=certainty"], ["│ sampled answers │   2,200 │"]),
    "a sweep": (
        ["-m", "model=gpt4o_mini,gpt35_turbo", "metric.frs.d=1,2", "dataset.limit=10", "sampler.trials=1"],
        [
            "model=gpt4o_mini, metric.frs.d=1: at most 110 answers in 110 requests, about ",
            "model=gpt4o_mini, metric.frs.d=2: nothing, every answer is there",
            "together: at most 220 answers in 220 requests, about ",
        ],
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_shows_the_plan_and_leaves_nothing(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, name: str
):
    overrides, lines = COMMANDS[name]
    done = command(*overrides, "dry_run=true", f"paths.mlruns={tmp_path}", OPENAI_API_KEY="")
    assert (done.returncode, done.stderr) == (0, "")
    for line in lines:
        assert line in done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["dry_run=maybe"], "error: dry_run must be true or false, not maybe\n"),
        (["dry_run=true", "seed=1,2"], "error: seed=1,2 has several values, which is a sweep: add -m\n"),
        (["dry_run=true", "sampler.trails=2"], "error: there is no setting sampler.temperature_sweep.trails "),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_one_sentence(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, overrides: list[str], said: str
):
    done = command(*overrides, f"paths.mlruns={tmp_path}")
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (59.5, "60 s"), (61, "2 min"), (3600, "1 h 0 min"), (100_000, "27 h 47 min")]
)
def test_times_are_rounded_up(seconds: float, said: str):
    assert duration(seconds) == said

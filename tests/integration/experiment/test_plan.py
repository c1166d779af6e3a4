"""What a run is going to ask, told before it asks: against what it then asks of a server."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from experiments import configuration, run_experiment
from fading_server import FadingServer
from json_lines import cases
from scripted_server import ScriptedServer, scripted_server
from tiny_model import KNOWN, plain_settings, save_tiny_model

from robust_eval.cli.dry_run import print_plan
from robust_eval.error import UserError
from robust_eval.experiment.plan import Stage, deduplicated, expected_interval, in_words, stages_of, total
from robust_eval.tracking.result import Result

Plan = Callable[..., list[Stage]]
Run = Callable[..., Result]
TRIALS, GRID = "sampler.temperature_sweep.trials", "sampler.temperature_sweep.temperatures"
SWEEP = (
    *(f"{GRID}=[0.5,1.0]", f"{TRIALS}=4", "sampler.temperature_sweep.selection=none"),
    "sampler.temperature_sweep.prompts=builtin:zero_shot.yaml",  # exemplars take most of the time
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """One that brings ten answers with a request."""
    with scripted_server(FadingServer(choices=10)) as server:
        yield server


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: folder)


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
    return lambda *overrides: stages_of(configuration(*settings, *overrides))


@pytest.fixture
def run(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run with these overrides."""
    return lambda *overrides: run_experiment(tmp_path_factory.mktemp("run"), *settings, *overrides)


def counts(stages: Sequence[Stage]) -> list[tuple[str, int, int, bool]]:
    """Name, requests, those that are missing, and whether these may be fewer."""
    return [(stage.name, stage.requests, len(stage.missing), stage.is_upper_bound) for stage in stages]


def together(*jobs: list[Stage]) -> list[int]:
    """How many answers each job asks for that none before it does."""
    planned: dict[bytes, set[tuple[float, int]]] = {}
    return [total(deduplicated(job, planned)).answers for job in jobs]


def test_a_plan_asks_nothing_and_says_what_the_run_then_asks(
    plan: Plan,
    run: Run,
    server: ScriptedServer,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
):
    before = plan(*SWEEP)
    assert server.received == []
    assert counts(before) == [("greedy answers", 6, 6, False), ("sampled answers", 6, 6, False)]
    assert (total(before).answers, total(before).requests) == (6 + 48, 6 + 48)  # not known what a request brings

    caplog.set_level("INFO")
    prices = ("model.prompt_price=1", "model.completion_price=2", "model.requests_per_minute=6000")
    figures = run(*SWEEP, *prices).counts()
    assert figures["tokens.answering.completion"] <= total(before).completion_tokens
    (said,) = [record.message for record in caplog.records if record.message.startswith("to request: ")]
    assert said.startswith("to request: 54 answers in 18 requests, about ")  # four answers come with one request
    assert said.endswith(" a cost of at most 0.001 USD, at least 1 s")
    again = len(server.received)
    assert counts(plan(*SWEEP)) == [("sampled answers", 6, 0, False)]
    assert in_words(plan(*SWEEP)) == "nothing: all answers are in the store"

    wider = (*SWEEP, f"{TRIALS}=6", f"{GRID}=[0.5,1.0,1.5]")
    more = plan(*wider)
    assert counts(more) == [("sampled answers", 6, 6, False)]
    assert total(more).answers == 6 * (2 * 2 + 6)
    assert total(more).requests == 6 * 3  # it is known by now: the server brings ten answers at once
    print_plan({"": deduplicated(more, {})})
    assert "In the store, and not counted: 48 answers to the same prompts." in capsys.readouterr().out
    print_plan({"": deduplicated(plan(*SWEEP, "dataset.limit=8"), {})})
    shown = " ".join(capsys.readouterr().out.split())
    assert "In the store, and not counted: all answers to 12 other prompts of these stages." in shown
    assert len(server.received) == again
    run(*wider)
    assert len(server.received) - again == total(more).requests


def test_what_follows_from_answers_that_are_not_there_is_counted_whole(plan: Plan, run: Run, server: ScriptedServer):
    fading = server.answer
    server.answer = lambda body: fading(body if "lake" not in str(body) else {"messages": [{"content": "?"}]})
    selecting = (*SWEEP, "sampler.temperature_sweep.selection=contains")
    assert counts(plan(*selecting)) == [("greedy answers", 6, 6, False), ("sampled answers", 6, 6, True)]
    two = plan(*selecting, "sampler.temperature_sweep.max_questions=2")
    assert counts(two)[1] == ("sampled answers", 2, 2, True)
    kept = len(run(*selecting).kept)
    assert kept == 5
    assert counts(plan(*selecting, f"{TRIALS}=5")) == [("sampled answers", kept, kept, False)]


def test_rewrites_that_are_not_written_yet_are_counted_as_if_all_came(plan: Plan):
    stages = plan(
        *("experiment=multiqa", "rewriter=llm", "dataset.limit=6", "rewriter.rewrites=3"),
        "sampler.perturbation.rewrites=3",
    )
    assert counts(stages) == [
        ("rewrites, attempt 1", 6, 6, False),
        ("greedy answers", 6, 6, True),
        ("sampled answers", 24, 24, True),
    ]
    first, greedy, sampled = (stage.workload() for stage in stages)
    assert first.completion_tokens == 6 * 256
    assert sampled.prompt_tokens == 4 * greedy.prompt_tokens


def test_what_the_measured_model_cannot_do_is_said_before_rewrites_are_paid(run: Run, server: ScriptedServer):
    asked = ("metric=[agreement,frs]", "rewriter=llm", "aggregator=text")
    with pytest.raises(UserError, match="needs a local model, and no server supports it"):
        run(*asked, "sampler=[perturbation,temperature_sweep]", "sampler.temperature_sweep.stop_on_match=true")
    with pytest.raises(UserError, match="needs the whole distribution of a served model"):
        run(*asked, "sampler=[perturbation,exact]", "model.generation.top_k=5")
    assert len(server.received) <= 40  # what the server can do, with each of the settings


def test_jobs_that_ask_for_the_same_answers_are_counted_once(plan: Plan):
    two, four = ((*SWEEP, f"{TRIALS}={trials}") for trials in (2, 4))
    jobs = [plan(*two), plan(*two, "seed=1"), plan(*two, "metric.frs.d=[2]"), plan(*four)]
    assert together(*jobs) == [6 + 24, 6 + 24, 0, 24]
    first, again = (deduplicated(jobs[0], planned) for planned in ({}, {}))
    assert first == again == jobs[0]  # what other jobs ask changes no request


def test_a_model_that_is_loaded_here_answers_all_trials_anew(tmp_path: Path):
    tiny = plain_settings(save_tiny_model(tmp_path / "model", letters=True))
    settings = [*tiny, *KNOWN, "dataset.limit=3", "tracking=none", f"paths.mlruns={tmp_path / 'mlruns'}", *SWEEP]

    def answers(*trials: int) -> list[int]:
        return together(*(stages_of(configuration(*settings, f"{TRIALS}={number}")) for number in trials))

    assert answers(4) == [3 + 24]
    run_experiment(tmp_path, *settings)
    assert answers(4, 3, 5, 6) == [0, 0, 30, 36]
    assert answers(6, 5) == [36, 0]


def test_a_plan_is_shown_with_what_is_not_known_of_it(plan: Plan, capsys: pytest.CaptureFixture[str]):
    priced = ("model=gpt4o_mini", "dataset.limit=100", f"{TRIALS}=3")
    print_plan({"": plan(*priced, "model.requests_per_minute=500")})
    shown = capsys.readouterr().out
    for line in (
        "Planned requests",
        "│ greedy answers  │     100 │      100 │",
        "│ sampled answers │ ≤ 3,000 │    3,000 │",
        "│ total           │ ≤ 3,100 │    3,100 │",
        "Prompt tokens are estimated; completion tokens are the maximum.",
        "≤ marks an upper bound: the number depends on answers that are not available yet.",
        "Each answer counts as one request; the run probes whether one request can return several.",
        "Time: at least 7 min, given the per-minute limits.",
    ):
        assert line in shown
    print_plan({"": plan(*priced, "model.budget=0.01")})
    shown = capsys.readouterr().out
    assert "Time: no rate limit is set; with 64 concurrent requests of one second each, the run takes " in shown
    assert "The run stops when it reaches its budget of 0.01 USD; you can resume it." in shown


@pytest.mark.parametrize(("overrides", "lines"), cases(__file__, "the_command_line_shows_the_plan_and_leaves_nothing"))
def test_the_command_line_shows_the_plan_and_leaves_nothing(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, overrides: list[str], lines: list[str]
):
    done = command(*overrides, "dry_run=true", f"paths.mlruns={tmp_path}", OPENAI_API_KEY="")
    assert (done.returncode, done.stderr) == (0, "")
    for line in lines:
        assert line in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_a_sweep_is_refused_in_one_sentence(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    done = command("dry_run=true", "seed=1,2", f"paths.mlruns={tmp_path}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: seed=1,2 has several values, which makes this a sweep: add -m\n")


def test_a_plan_says_what_more_questions_and_trials_would_give_by_an_earlier_run_of_the_same_data(
    settings: list[str], tmp_path: Path
):
    folder = tmp_path / "mlruns" / "runs" / "2026-01-02" / "10-00-00"
    repeated = ("experiment=certainty", "dataset=facts", "sampler.repetition.trials=4")
    assert expected_interval(configuration(*settings, *repeated)) == ""
    folder.mkdir(parents=True)
    result = run_experiment(folder, *settings, *repeated, "metric=[certainty,variance]")
    (tmp_path / "mlruns" / "runs" / "2026-01-03" / "damaged").mkdir(parents=True)
    for file in ("config.yaml", "summary.json"):
        (tmp_path / "mlruns" / "runs" / "2026-01-03" / "damaged" / file).write_text("[")
    own = result.scores["variance"].values["variance.standard_error"].value
    table = result.scores["variance"].values
    questions, trials = (
        (table["variance.question"].value / (6 + more) + table["variance.trial"].value / ((6 + more) * (4 + again)))
        ** 0.5
        for more, again in ((100, 0), (0, 10))
    )
    expected = (
        f"In the run {folder}, the interval of the mean accuracy at t = 0.7 is ±{1.96 * own:.3f}. It would be "
        f"±{1.96 * questions:.3f} with 100 more questions, ±{1.96 * trials:.3f} with 10 more trials"
    )
    for same in ("dataset.name=renamed", "dataset.limit=3", "dataset.limit=200"):
        assert expected_interval(configuration(*settings, *repeated, same)) == expected
    assert expected_interval(configuration(*settings, *repeated, "dataset.shuffle=true", "dataset.limit=3")) == ""
    assert expected_interval(configuration(*settings, *repeated, "sampler.repetition.temperatures=[1.0]")) == ""
    assert expected_interval(configuration(*settings, *repeated, "model.name=other")) == ""
    assert expected_interval(configuration(*settings, "sampler=exact")) == ""

"""Answers after thoughts, from the questions to the report: of a server, and of a model that is loaded here."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from experiments import configuration, run_experiment
from json_lines import cases
from numbered_server import RIGHT, THOUGHT, settings, thoughtful
from scripted_server import ScriptedServer, scripted_server
from tiny_model import save_tiny_model

from robust_eval.error import UserError
from robust_eval.experiment.plan import SILENT_BUDGETS, server_warnings, stages_of
from robust_eval.metric.thinking_metric import breaking_budget
from robust_eval.model.local.transformers import Transformers
from robust_eval.plot.figure_files import save_entries
from robust_eval.plot.figure_registry import registered
from robust_eval.prompt.reasoning_budget import read_reasoning
from robust_eval.report.terminal import print_summary
from robust_eval.report.warnings import sampling_warnings
from robust_eval.runs.figure_data import read_figure_data
from robust_eval.tracking.result import Result

QUESTIONS, K = 8, 3
EFFORTS = list(THOUGHT)
BREAKING = [1, 2, 3, 3, math.inf, math.nan, math.inf, 2]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(thoughtful) as server:
        yield server


def lines_of(server: ScriptedServer, folder: Path) -> list[str]:
    return [
        *settings(server, folder, QUESTIONS),
        *("experiment=thinking", "model.name=thoughtful", "model.takes_temperature=false"),
        *("model.max_completion_tokens=400", f"sampler.thinking.budgets=[{','.join(EFFORTS)}]"),
        f"sampler.thinking.traces={K}",
    ]


@pytest.fixture(scope="module")
def ran(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path, list[str]]:
    folder, lines = tmp_path_factory.mktemp("run"), lines_of(server, tmp_path_factory.mktemp("data"))
    return run_experiment(folder, *lines), folder, lines


def test_a_server_is_told_how_much_to_think_and_budgets_are_found_that_are_enough(
    ran: tuple[Result, Path, list[str]], server: ScriptedServer
):
    result, folder, _ = ran
    asked = [body for body in server.bodies if body.get("max_tokens", body.get("max_completion_tokens")) == 400]
    assert {body["reasoning_effort"] for body in asked} == set(EFFORTS)  # those of the probe have fewer tokens
    table = pq.read_table(folder / "thinking.parquet").to_pydict()
    np.testing.assert_array_equal(table["breaking_budget"], BREAKING)
    figures = result.scores["thinking"].metrics()
    for effort in EFFORTS:
        right = np.mean([effort in RIGHT[number].split() for number in range(QUESTIONS)])
        assert figures[f"thinking.accuracy.{effort}.own"].value == right
        assert figures[f"thinking.tokens.{effort}.own"].value == THOUGHT[effort] + 2
    assert figures["thinking.accuracy.own"].value == figures["thinking.accuracy.high.own"].value
    assert figures["thinking.unsettled_share.own"].value == pytest.approx(2 / 7)
    assert figures["thinking.enough.low.own"].value == pytest.approx(3 / 7)
    assert figures["thinking.count.unknown"].value == 1
    assert figures["thinking.kappa.own"].value == 1
    assert figures["thinking.plurality.own"].value == figures["thinking.accuracy.own"].value
    assert math.isnan(figures["thinking.share_between.own"].value)  # one answer with each thought
    assert "after 3 reasoning traces with budgets of none, low and high" in (folder / "report.html").read_text()
    answers = [row for row in pq.read_table(folder / "graded.parquet").to_pylist() if row["form"]]
    assert {row["form"] for row in answers} == {f"budget {effort}" for effort in EFFORTS}
    assert [row["reasoning"] for row in answers if row["form"] == "budget high"] == ["hm high"] * K * QUESTIONS


def test_a_server_that_drops_the_budget_is_named(
    ran: tuple[Result, Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    heeded, *_ = ran
    assert heeded.scores["thinking"].metrics()["thinking.added_tokens.own"].value == THOUGHT["high"]
    assert list(sampling_warnings(heeded)) == []
    with scripted_server(lambda body: thoughtful(body | {"reasoning_effort": "low"})) as server:
        lines = lines_of(server, tmp_path)
        assert server_warnings(stages_of(configuration(*lines))) == [SILENT_BUDGETS]
        dropped = run_experiment(tmp_path, *lines)
    (warned,) = sampling_warnings(dropped)
    assert warned.problem == (
        "The reasoning budget high shows no significant increase in tokens over none: +0.0 per answer."
    )
    assert warned.problem in (tmp_path / "report.html").read_text()
    print_summary(dropped, tmp_path, "", None)
    assert warned.problem in " ".join(capsys.readouterr().out.split())


def test_more_traces_and_budgets_ask_for_these_alone_and_a_dry_run_says_how_many(
    ran: tuple[Result, Path, list[str]], tmp_path: Path
):
    *_, lines = ran
    more = [*lines, f"sampler.thinking.traces={K + 1}", "sampler.thinking.budgets=[low,medium,high]"]
    assert [stage.workload().answers for stage in stages_of(configuration(*lines))] == [0]
    (stage,) = stages_of(configuration(*more))
    assert stage.workload().answers == QUESTIONS * (1 + (K + 1) + 1)
    result = run_experiment(tmp_path, *more)
    assert result.prompts_asked == QUESTIONS * 3
    assert result.summary()["thinking.tokens.medium.own"] == 2


def test_recorded_answers_give_the_same_and_other_metrics_do_not_read_them(
    ran: tuple[Result, Path, list[str]], tmp_path: Path
):
    result, folder, lines = ran
    recorded = [
        *("sampler=recorded", f"sampler.recorded.file={folder / 'answers.parquet'}", "metric=thinking"),
        *("model.name=thoughtful", *lines[3:8]),
    ]
    again = run_experiment(tmp_path, *recorded)
    ours, theirs = (each.scores["thinking"].flat() for each in (result, again))
    assert ours == pytest.approx(theirs, nan_ok=True)
    for metric in ("certainty", "agreement"):
        with pytest.raises(UserError, match=f"metric={metric} cannot score answers after reasoning of several"):
            configuration(*recorded, f"metric={metric}")
    with pytest.raises(UserError, match="metric=thinking needs answers after reasoning of known length"):
        configuration("sampler=repetition", "metric=thinking")


@pytest.mark.parametrize(("overrides", "said"), cases(__file__, "what_cannot_be_asked_is_refused"))
def test_what_cannot_be_asked_is_refused(folder: Path, tmp_path: Path, overrides: list[str], said: str):
    tiny = ["model=transformers", f"model.path={folder}", "model.name=tiny"]
    own = [] if any(line.startswith("model=") for line in overrides) else tiny
    lines = ["experiment=thinking", *own, "dataset.limit=1", "tracking=none", f"paths.mlruns={tmp_path}"]
    with pytest.raises(UserError) as refused:
        run_experiment(tmp_path, *lines, *overrides)
    assert said in str(refused.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


LETTERS = [*"bcdefghijklmnopqrstuvwxyz23456789"]
"""What is right, of any question: answers are of one token, which is a byte."""
TRACES = 300


class BruteForce:
    """All thoughts of two tokens about a question, and after each cut all answers of one, by plain passes."""

    def __init__(self, folder: Path, text: str, t: float) -> None:
        self.model = Transformers(name="tiny", path=str(folder), prompt_style="chat").load()
        self.model.generation.top_k = 6
        self.t = t
        opened = self.model.tokenizer(f"<user>{text}<bot><think>\n").input_ids
        self.traces: dict[tuple[int, ...], float] = {}
        for first, p in self.next(opened, 1.0):
            rest = [((), 1.0)] if first == 2 else [((token,), q) for token, q in self.next([*opened, first], 1.0)]
            for more, q in rest:
                trace = tuple(token for token in (first, *more) if token != 2)
                self.traces[trace] = self.traces.get(trace, 0.0) + p * q
        cuts = {trace[:budget] for trace in self.traces for budget in (0, 1, 2)}
        self.right = {cut: self.right_after(opened, list(cut)) for cut in cuts}

    def next(self, ids: list[int], t: float) -> list[tuple[int, float]]:
        """The tokens that may come next, with their probabilities."""
        with torch.inference_mode():
            logits = self.model.model(torch.tensor([ids])).logits[0, -1].double()
        p, tokens = (logits / t).softmax(-1).topk(6)
        return list(zip(tokens.tolist(), (p / p.sum()).tolist(), strict=True))

    def right_after(self, opened: list[int], thought: list[int]) -> float:
        ended = "</think>\n\n" if self.model.tokenizer.decode(thought).endswith("\n") else "\n</think>\n\n"
        before = [*opened, *thought, *self.model.tokenizer(ended).input_ids]
        return sum(
            p for token, p in self.next(before, self.t) if self.model.tokenizer.decode([token]).lower() in LETTERS
        )

    def accuracy(self, budget: int) -> float:
        return sum(p * self.right[trace[:budget]] for trace, p in self.traces.items())

    def variance(self) -> tuple[float, float]:
        """Between thoughts, and within the answers after one."""
        mean = self.accuracy(2)
        between = sum(p * (self.right[trace] - mean) ** 2 for trace, p in self.traces.items())
        within = sum(p * self.right[trace] * (1 - self.right[trace]) for trace, p in self.traces.items())
        return between, within


ASKED = ["Six?", "How many?", "Where?", "Why?"]


def tiny_settings(folder: Path, data: Path) -> list[str]:
    """A run about these questions, each alone in its prompt."""
    lines = [{"id": text, "question": text, "answers": LETTERS} for text in ASKED]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (data / "prompts.yaml").write_text("abstractive:\n  template: '{question}'\n")
    return [
        *("experiment=thinking", "model=transformers", f"model.path={folder}", "model.name=tiny"),
        *("model.generation.top_k=6", "dataset=jsonl", f"dataset.path={data / 'questions.jsonl'}", "dataset.name=few"),
        *(f"sampler.thinking.prompts={data / 'prompts.yaml'}", "sampler.thinking.max_new_tokens=1"),
        *("sampler.thinking.budgets=[0,1,2]", "metric.thinking.threshold=0.09"),
        *("tracking=none", f"paths.mlruns={data / 'mlruns'}"),
    ]


def test_shares_of_the_variance_and_budgets_are_those_of_all_thoughts_and_answers(folder: Path, tmp_path: Path):
    lines = [*tiny_settings(folder, tmp_path), f"sampler.thinking.traces={TRACES}"]
    (tmp_path / "run").mkdir()
    figures = run_experiment(tmp_path / "run", *lines).scores["thinking"].metrics()
    truth = [BruteForce(folder, text, 1.0) for text in ASKED]
    of_question = pq.read_table(tmp_path / "run" / "thinking.parquet").to_pydict()
    answers = [row for row in pq.read_table(tmp_path / "run" / "graded.parquet").to_pylist() if row["form"]]
    after: dict[tuple[str, str], float] = {}
    for row in answers:
        place = row["question_id"], row["form"]
        after[place] = after.get(place, 0.0) + row["weight"] * bool(row["correct"])
    for place, forced in enumerate(truth):
        known = {round(value, 5) for value in forced.right.values()}
        found = {round(value, 5) for (name, _), value in after.items() if name == ASKED[place]}
        assert found <= {value + step for value in known for step in (0, 1e-5, -1e-5)} | known
        error = math.sqrt(forced.variance()[0] / TRACES)
        assert of_question["accuracy"][place] == pytest.approx(forced.accuracy(2), abs=4 * error + 1e-5)
        for name, value in zip(("between", "within"), forced.variance(), strict=True):
            assert of_question[name][place] == pytest.approx(value, rel=0.25, abs=2e-5)
    between, within = np.sum([forced.variance() for forced in truth], axis=0)
    assert figures["thinking.share_between.t1"].value == pytest.approx(between / (between + within), rel=0.15)
    assert figures["thinking.share_within.t1"].value == pytest.approx(1 - figures["thinking.share_between.t1"].value)
    accuracy = np.array([[forced.accuracy(budget) for budget in (0, 1, 2)] for forced in truth])
    np.testing.assert_array_equal(of_question["breaking_budget"], breaking_budget(accuracy, [0, 1, 2], 0.09))
    np.testing.assert_array_equal(of_question["breaking_budget"], [0, 1, math.inf, math.nan])


def test_drawn_answers_are_stored_and_the_same_trace_is_cut_off_at_every_budget(folder: Path, tmp_path: Path):
    lines = [*tiny_settings(folder, tmp_path), "dataset.limit=2", "sampler.thinking.answers=3"]
    lines += ["sampler.thinking.traces=4", "sampler.thinking.temperatures=[0.5,1.5]"]
    (stage,) = (each for each in stages_of(configuration(*lines)) if "greedy" not in each.name)
    assert (stage.workload().answers, stage.is_upper_bound) == (2 * (4 + 2 * (4 * 3 + 2 * 4 * 3)), True)
    tables = []
    for number, budgets in enumerate(("[0,1,2]", "[0,1,2]", "[1,2]")):
        (place := tmp_path / f"run{number}").mkdir()
        result = run_experiment(place, *lines, f"sampler.thinking.budgets={budgets}")
        assert (result.prompts_asked > 0) == (number == 0)
        answers = pq.read_table(place / "answers.parquet").to_pylist()
        tables.append([row for row in answers if row["form"] not in (None, "trace 0, budget 0")])
    assert tables[0] == tables[1] == tables[2]
    by_trace: dict[tuple[str, int], dict[int, str]] = {}
    for row in tables[0]:
        thought = read_reasoning(row["form"])
        for budget in thought.budgets:
            by_trace.setdefault((row["question_id"], thought.trace), {})[budget] = row["reasoning"] or ""
            assert (row["reasoning_tokens"] or 0) <= budget
    assert len(by_trace) == 2 * 4
    assert all(cuts[2].startswith(cuts[1]) for cuts in by_trace.values())
    entries = [entry for entry in registered() if entry.name in ("accuracy_by_budget", "variance_of_questions")]
    assert len(save_entries(entries, read_figure_data(place), place / "drawn")) == 2
    figures = result.scores["thinking"].metrics()
    assert {"thinking.between.t0.5", "thinking.frs", "thinking.unbroken_share"} <= figures.keys()

"""Our metrics inside ``mlflow.genai.evaluate``, with the figures that a run of ours has of the same answers."""

import math
import re
from pathlib import Path

import mlflow
import pytest

import robust_eval
from robust_eval.config.groups import PROJECT
from robust_eval.interop.mlflow_scorers import accuracy, answer_entropy, breaking_temperature, unbroken
from robust_eval.tracking import mlflow_tracker

pytestmark = pytest.mark.filterwarnings("ignore::Warning:mlflow")  # of what it calls in pandas, and of its own hints
REPLIES = {
    "Italy": (["Rome"], {0.2: ["Rome", "It is Rome."], 1.0: ["Rome", "Milan"], 2.0: ["Milan", "I do not know"]}),
    "France": (["Paris"], {0.2: ["Paris", "Paris"], 1.0: ["The answer is Paris.", "Paris"], 2.0: ["Paris", "Lyon"]}),
    "Norway": (["Oslo"], {0.2: ["Bergen", "Oslo"], 1.0: ["Bergen", "Bergen"], 2.0: ["Oslo", "Bergen"]}),
}


@pytest.fixture(autouse=True)
def _tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
    mlflow_tracker._make_database(tmp_path / "mlflow.db")  # a copy of one that is kept
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    yield
    mlflow.set_tracking_uri(before)


def data(at: float | None = None) -> list[dict]:
    return [
        {
            "inputs": {"question": f"What is the capital of {name}?"},
            "outputs": {str(t): replies for t, replies in by_temperature.items()} if at is None else by_temperature[at],
            "expectations": {"answers": key},
        }
        for name, (key, by_temperature) in REPLIES.items()
    ]


def ours(*temperatures: float) -> robust_eval.Evaluation:
    """A run of ours with the same answers."""
    questions = [{"id": n, "question": f"What is the capital of {n}?", "answers": k} for n, (k, _) in REPLIES.items()]
    answers = [
        {"question_id": name, "temperature": t, "trial": trial, "text": text}
        for name, (_, by_temperature) in REPLIES.items()
        for t in temperatures
        for trial, text in enumerate(by_temperature[t])
    ]
    return robust_eval.score(answers, questions, metrics=["certainty"], reader="reply", tracking="none")


def figure(evaluation: robust_eval.Evaluation, name: str) -> tuple[float, float, float]:
    row = evaluation.metrics.set_index("name").loc[name]
    return row["value"], row["low"], row["high"]


def test_shares_and_entropies_are_those_of_a_run_to_the_last_digit():
    found = mlflow.genai.evaluate(data=data(1.0), scorers=[accuracy, answer_entropy]).metrics
    run = ours(1.0)
    value, low, high = figure(run, "certainty.error_rate.t1")
    assert found["accuracy/mean"] == 1 - value
    assert (found["accuracy/low"], found["accuracy/high"]) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    value, low, high = figure(run, "certainty.entropy.t1")
    assert (found["answer_entropy/mean"], found["answer_entropy/low"]) == (value, low)
    assert found["answer_entropy/high"] >= high  # a run knows how many replies there were, and so the highest entropy


def test_facts_break_where_less_than_half_of_the_replies_are_right():
    result = mlflow.genai.evaluate(data=data(), scorers=[breaking_temperature, unbroken])
    broken, held = 2.0, 1.0  # Italy and Norway break; of Norway no reply at t = 1 is right, and at t = 2 one is again
    assert result.metrics["breaking_temperature/mean"] == (broken + held) / 2
    assert result.metrics["unbroken/mean"] == 1 / 3
    assert 0 <= result.metrics["unbroken/low"] < 1 / 3 < result.metrics["unbroken/high"] <= 1


def test_the_lines_of_the_page_run(capsys: pytest.CaptureFixture[str]):
    page = (PROJECT / "docs" / "harnesses.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```python\n(import mlflow\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(lines, {})
    value, low, high = map(float, capsys.readouterr().out.splitlines()[-1].split())
    assert value == 0.5
    assert 0 <= low < value < high <= 1


def test_the_rationale_counts_the_answers():
    said = accuracy(
        inputs="What is the capital of Italy?", outputs=["Rome", "Rome", "Milan"], expectations={"answers": "Rome"}
    )
    assert said.value == pytest.approx(2 / 3)
    assert said.rationale == "rome: 2, milan: 1"


def test_replies_that_answer_nothing_have_no_entropy_and_are_wrong():
    row = {"inputs": {"question": "Who?"}, "outputs": ["", " "], "expectations": {"answers": ["Ada"]}}
    assert answer_entropy(**row).value is None
    assert accuracy(**row).value == 0
    assert breaking_temperature(**row | {"outputs": {1.0: ["Ada"]}}).value is None
    assert math.isfinite(breaking_temperature(**row | {"outputs": {1.0: ["Bob"]}}).value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"expectations": {}},
            (
                'expectations must contain the accepted answers, {"answers": [...]}, a string or a list of strings, '
                "not None"
            ),
        ),
        ({"outputs": 7}, "outputs must contain replies, a string or a list of strings, not 7"),
        ({"outputs": {"hot": ["x"]}}, "keys of outputs must be finite temperatures of 0 or more, not 'hot'"),
        ({"outputs": {-1: ["x"]}}, "keys of outputs must be finite temperatures of 0 or more, not -1"),
        ({"outputs": {1: []}}, "outputs must contain replies, a string or a list of strings, not []"),
    ],
)
def test_rows_that_cannot_be_scored_are_refused_with_a_sentence(changed: dict, said: str):
    row = {"inputs": "Who?", "outputs": ["Ada"], "expectations": {"answers": ["Ada"]}} | changed
    with pytest.raises(robust_eval.UserError) as caught:
        accuracy(**row)
    assert str(caught.value) == said


def test_a_breaking_temperature_needs_temperatures():
    with pytest.raises(robust_eval.UserError, match="needs outputs by temperature"):
        unbroken(inputs="Who?", outputs=["Ada"], expectations={"answers": ["Ada"]})

"""A gate of a model that is loaded here: against itself with another seed until decided, and by guaranteed bounds; and
of answers from a file.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from experiments import configuration, run_experiment
from tiny_model import KNOWN, plain_settings, save_tiny_model

from robust_eval.cli import gate

FACTS = 45


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robust_eval.plot.figure_files.registered", list)
    return tmp_path


def gated(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr("sys.argv", ["gate", *words, "tracking=none", "--output", "out"])
    with pytest.raises(SystemExit) as ended:
        gate.main()
    return int(ended.value.code or 0), json.loads(Path("out", "verdict.json").read_text())


def measure(folder: Path, *settings: str) -> None:
    """Measure a tiny model, which answers all questions alike, and leave the run where a gate finds it."""
    folder.mkdir(parents=True)
    mlruns = folder.parents[1]
    model = save_tiny_model(mlruns.parent / "model", letters=True)
    run_experiment(folder, *plain_settings(model), "tracking=none", f"paths.mlruns={mlruns}", *settings)


def test_it_stops_when_it_is_decided_and_says_what_that_saved(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    few = ("sampler.temperature_sweep.trials=1", "sampler.temperature_sweep.temperatures=[0.5,1]")
    lines = [{"id": f"q{k}", "question": f"What is number {k}?", "answers": ["kkkkk"]} for k in range(FACTS)]
    (place / "numbers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    numbers = ("dataset=jsonl", f"dataset.path={place / 'numbers.jsonl'}", "dataset.name=numbers")
    measure(place / "mlruns" / "runs" / "base", *numbers, *few)
    wide = "gate.metrics={accuracy.greedy: 0.3}"
    status, found = gated(monkeypatch, "mlruns/runs/base", "seed=1", "early_stop=true", wide)
    assert (status, found["outcome"], found["identical"]) == (0, "PASS", False)
    taken, left = found["asked"]["taken"], found["asked"]["left"]
    assert (taken + left, found["metrics"][0]["n"]) == (FACTS, taken)
    assert 30 <= taken < FACTS
    saved = (
        f"early_stop=true: {taken} of {FACTS} questions were asked; {left} were not ({100 * left / FACTS:.0f} % saved)."
    )
    assert saved in capsys.readouterr().out
    assert saved.replace("_", "\\_") in Path("out", "verdict.md").read_text()


def test_facts_are_less_robust_where_certain_bounds_say_so(place: Path, monkeypatch: pytest.MonkeyPatch):
    exact = ("sampler=exact", "sampler.exact.nodes=24", "sampler.exact.temperatures=[0.4,0.8]")
    measure(place / "mlruns" / "runs" / "base", *KNOWN, "model.generation.top_k=1", *exact)
    _, found = gated(monkeypatch, "mlruns/runs/base", "model.generation.top_k=0")
    (folder,) = (file.parent for file in place.glob("mlruns/runs/*/*/summary.json"))
    sums = []
    for run, bound in ((place / "mlruns" / "runs" / "base", "lower"), (folder, "upper")):
        table = pq.read_table(run / "curves.parquet").to_pandas()
        sums.append(table.groupby("question_id")[bound].sum())
    both = sums[0].index.intersection(sums[1].index)
    less_robust = {fact["question_id"] for fact in found["facts"]["less_robust"]}
    assert 0 < len(less_robust) <= len(both)
    assert less_robust == {name for name in both if sums[1][name] < sums[0][name]}
    assert "certainly lower" in found["facts"]["note"]


def test_recorded_answers_to_more_questions_than_the_baseline_has_are_gated_also_in_blocks(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    questions = configuration(f"dataset.limit={FACTS}").dataset.load()

    def recorded(name: str, number: int, is_right: bool) -> str:
        rows = [
            {"question_id": question.id, "temperature": t, "trial": trial, "text": question.answers[0] * is_right}
            for question in questions[:number]
            for t, trial in ((0, 0), (0.7, 0), (0.7, 1))
        ]
        (place / name).write_text("\n".join(map(json.dumps, rows)))
        return f"sampler.recorded.file={place / name}"

    folder = place / "mlruns" / "runs" / "base"
    folder.mkdir(parents=True)
    base = ("sampler=recorded", recorded("base.jsonl", 40, True), "sampler.recorded.selection=contains")
    run_experiment(folder, *base, "metric=certainty", "model.name=x", "tracking=none")
    for candidate, status in (recorded("right.jsonl", FACTS, True), 0), (recorded("wrong.jsonl", FACTS, False), 1):
        for words in (), ("early_stop=true", "gate.metrics={accuracy.greedy: 0.3}"):
            assert gated(monkeypatch, "mlruns/runs/base", candidate, *words)[0] == status

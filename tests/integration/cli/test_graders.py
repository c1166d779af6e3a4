"""Graders on the answers of a run that people labelled, a judge behind a server among them."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from labelled_run import TEMPERATURES, labelled_run, truth
from scripted_server import Body, Scripted, chat_reply, scripted_server

from robust_eval.cli import graders as command
from robust_eval.experiment.scoring import LabelledRun
from robust_eval.labels.label_records import LABELS
from robust_eval.labels.labelling import sample
from robust_eval.runtime.parquet_files import write_parquet


def wise(body: Body) -> Scripted:
    """A judge that is never wrong."""
    return chat_reply(f"Verdict: {'right' if 'truly' in body['messages'][-1]['content'] else 'wrong'}")


def test_a_run_that_was_labelled_is_compared_with_every_grader_and_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    labelled_run(tmp_path, metrics="[frs]")
    run = tmp_path / "run"
    drawn = sample(LabelledRun.read(run).graded, "question", 40, 0)
    rows = [{**row._asdict(), "label": truth(row.text), "labeller": "ann"} for row in drawn]
    write_parquet(pa.Table.from_pylist(rows, LABELS), run / "labels.parquet")
    monkeypatch.setenv("COLUMNS", "200")
    with scripted_server(wise) as server:
        asked = [
            "grader=judge",
            "grader.cascade=none",
            "grader.model=openai_compatible",
            f"grader.model.base_url={server.url}",
            "grader.model.model=judge",
            "store=none",
            f"paths.mlruns={tmp_path / 'mlruns'}",
        ]
        words = [str(run), *asked, "--json", str(tmp_path / "metrics.json"), "--show", "3"]
        monkeypatch.setattr(sys, "argv", ["graders", *words])
        command.main()

    graded = pq.read_table(run / "graded.parquet").to_pandas()
    same = graded["correct"].astype(bool) == (graded["text"].map(truth) == "right")
    figures = json.loads((tmp_path / "metrics.json").read_text())
    assert figures["the run's own: accuracy"] == pytest.approx(same.mean(), abs=1e-12)
    assert figures["the run's own: replies"] == len(graded) == 520
    assert (figures["judge: accuracy"], figures["judge: kappa"], figures["judge: F1"]) == (1, 1, 1)
    for t in TEMPERATURES:
        of_slice = same[graded["temperature"] == t].mean()
        assert figures[f"slice questions, t = {t:g}: the run's own"] == pytest.approx(of_slice, abs=1e-12)
    printed = capsys.readouterr().out
    assert f"the run's own: {int((~same).sum())} of 520 verdicts differ" in printed
    assert "judge: 0 of 520 verdicts differ" in printed


def test_a_run_without_labels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    labelled_run(tmp_path, questions=4, metrics="[frs]")
    monkeypatch.setattr(sys, "argv", ["graders", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        command.main()
    assert "has no labels: label some answers as right or wrong with robust-eval label" in capsys.readouterr().err

"""A store that an earlier version made: its answers count, and none is asked again."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from experiments import run_experiment

from robust_eval.answer import ADDED

MADE_BEFORE = Path(__file__).with_name("made_before")
"""Stores, questions and results of version 0.1.0 at commit 9814b79, before its modules moved."""
SETTINGS = (
    "experiment=profile",
    "sampler.temperature_sweep.trials=3",
    "sampler.temperature_sweep.selection=none",
    "sampler.temperature_sweep.temperatures=[0.5,1,2]",
    "sampler.perturbation.rewrites=2",
    "sampler.repetition.trials=5",
    "model.device=cpu",
    "aggregator=text",
    "tracking=none",
    "dataset.name=three",
    f"dataset.path={MADE_BEFORE / 'questions.jsonl'}",
)


@pytest.mark.parametrize(("store", "place"), [("sqlite", "answers.sqlite"), ("parquet", "blocks")])
def test_a_store_that_an_earlier_version_made_answers_everything(store: str, place: str, tmp_path: Path):
    kept = tmp_path / "mlruns" / "store" / place
    kept.parent.mkdir(parents=True)
    copy = shutil.copytree if (MADE_BEFORE / place).is_dir() else shutil.copyfile
    copy(MADE_BEFORE / place, kept)
    folder = tmp_path / "run"
    folder.mkdir()
    result = run_experiment(folder, *SETTINGS, f"store={store}", f"paths.mlruns={tmp_path / 'mlruns'}")
    assert (result.prompts_asked, result.prompts_found) == (0, 3 + 3 + 9 + 3)
    for name in ("graded.parquet", "questions.parquet"):
        now, then = (pq.read_table(place / name) for place in (folder, MADE_BEFORE))
        new = {name for name in now.column_names if name not in then.column_names}
        assert {name for name in new if not name.startswith("profile.first.")} <= {*ADDED, "key"}  # the right answers
        now = now.select(then.column_names)
        assert now.schema.equals(then.schema, check_metadata=True)
        assert now.to_pandas().equals(then.to_pandas())  # NaN equals NaN

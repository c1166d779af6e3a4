"""Each job of a sweep that runs several at once sees a GPU of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT
from tiny_model import save_tiny_model


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_the_jobs_of_a_sweep_take_the_devices_in_turns(launcher: str, tmp_path: Path):
    model = save_tiny_model(tmp_path / "model")
    overrides = ["model=transformers", f"model.path={model}", "model.name=tiny", "model.prompt_style=plain"]
    overrides += ["dataset.limit=4", "sampler.selection=none", "sampler.trials=1", "engine.threads=1", "tracking=none"]
    overrides += [f"paths.mlruns={tmp_path}", "metric.frs.d=1,2,5", f"hydra/launcher={launcher}"]
    overrides += ["+hydra.job.env_set.CUDA_VISIBLE_DEVICES=${own_device:2}", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "run.py", "-m", *overrides],
        cwd=PROJECT,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    jobs = [json.loads((tmp_path / "sweep" / job / "environment.json").read_text()) for job in "012"]
    assert [job["devices"] for job in jobs] == ["0", "1", "0"]

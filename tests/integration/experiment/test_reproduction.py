import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden import Golden

from robust_eval.answer import answer_table, concat_by_sampler
from robust_eval.error import UserError
from robust_eval.experiment.run_record import answer_differences
from robust_eval.runtime.parquet_files import write_parquet

ROW = {
    "question_id": "q1",
    "rewrite": 0,
    "temperature": 0.5,
    "trial": 0,
    "text": "Paris",
    "outcome": "ok",
    "weight": 0.5,
    "token_ids": [5, 2],
    "token_logprobs": [-0.5, -0.25],
}
ROWS = [ROW, ROW | {"trial": 1}, ROW | {"question_id": "q2", "token_logprobs": None, "token_ids": None}]
DIFFERENCES = Golden(Path(__file__).with_name("answer_differences.jsonl"))


@pytest.mark.parametrize("case", DIFFERENCES.cases, ids=lambda case: case["kind"])
def test_what_differs_between_two_tables_is_counted_and_shown(case: dict[str, Any], tmp_path: Path):
    for name, records in (("first", ROWS), ("second", case["others"])):
        write_parquet(answer_table(records), tmp_path / name)
    DIFFERENCES.check(case, sentence=answer_differences(tmp_path / "first", tmp_path / "second"))


def test_the_same_condition_of_two_samplers_is_two_answers(tmp_path: Path):
    first = {"greedy": [ROW], "repetition": [ROW], "perturbation": [ROW | {"rewrite": 2}]}
    second = first | {"repetition": [ROW | {"text": "Rome"}], "perturbation": [ROW | {"rewrite": 2, "text": "Oslo"}]}
    for name, tables in (("first", first), ("second", second)):
        write_parquet(
            concat_by_sampler({sampler: answer_table(rows) for sampler, rows in tables.items()}), tmp_path / name
        )
    assert answer_differences(tmp_path / "first", tmp_path / "second") == (
        "2 of 3 answers differ, for example question q1 at t = 0.5, trial 0 (repetition): 'Paris' → 'Rome'; question "
        "q1, rewrite 2, at t = 0.5, trial 0 (perturbation): 'Paris' → 'Oslo'; the others have equal log-probabilities"
    )


def test_a_table_that_is_none_of_answers_is_refused(tmp_path: Path):
    write_parquet(pa.table({"a": [1]}), tmp_path / "first")
    with pytest.raises(UserError, match="is not an answer table"):
        answer_differences(tmp_path / "first", tmp_path / "first")


@pytest.mark.parametrize("place", ["mlruns/runs/today/now", "runs/word"])
def test_a_run_is_repeated_from_its_folder(
    place: str, command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    first, mlruns = tmp_path / place, f"paths.mlruns={tmp_path / 'mlruns'}"
    small = ["experiment=smoke", "dataset.limit=2", "tracking=none", "sampler.selection=none", "sampler.trials=2"]
    assert command(*small, mlruns, f"hydra.run.dir={first}", figures=False).returncode == 0
    again = command(f"repeat={first}", mlruns, figures=False)
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[-1] == (
        f"compared with {first}: all {2 + 2 * 3 * 2} answers are the same, with equal log-probabilities"
    )
    (second,) = set(tmp_path.glob("mlruns/runs/*/*")) - {first}
    assert (second / "config.yaml").read_text() == (first / "config.yaml").read_text()
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (first, second))
    assert {k: v for k, v in one.items() if "seconds" not in k} == {
        k: v for k, v in other.items() if "seconds" not in k
    }


def test_a_folder_without_a_run_is_refused(command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path):
    process = command(f"repeat={tmp_path}")
    assert (process.returncode, process.stderr) == (
        1,
        (
            f"error: repeat={tmp_path}: the folder has no config.yaml of a finished run; name a folder such as "
            "mlruns/runs/DATE/TIME\n"
        ),
    )
    assert os.listdir(tmp_path) == []
    process = command(f"repeat={tmp_path}/none")
    assert process.stderr == (
        f"error: repeat={tmp_path}/none: there is no such folder; name a folder such as mlruns/runs/DATE/TIME\n"
    )

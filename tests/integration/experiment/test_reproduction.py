import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

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


def sentence(folder: Path, first: list[dict[str, object]], second: list[dict[str, object]]) -> str:
    for name, records in (("first", first), ("second", second)):
        write_parquet(answer_table(records), folder / name)
    return answer_differences(folder / "first", folder / "second")


def test_the_same_answers_are_the_same_in_any_order(tmp_path: Path):
    assert sentence(tmp_path, ROWS, ROWS[::-1]) == "all 3 answers are the same, with equal log-probabilities"


def test_rounding_is_told_from_other_answers(tmp_path: Path):
    rounded = [ROW | {"token_logprobs": [-0.5, -0.25 - 2**-20]}, *ROWS[1:]]
    assert sentence(tmp_path, ROWS, rounded) == (
        "all 3 answers are the same, with log-probabilities that differ by at most 1e-06"
    )


def test_other_and_missing_answers_are_counted_and_shown(tmp_path: Path):
    other = [ROW | {"text": "Rome"}, ROWS[2], ROW | {"question_id": "q3"}]
    assert sentence(tmp_path, ROWS, other) == (
        "3 of 4 answers differ, for example question q1 at t = 0.5, trial 0: 'Paris' → 'Rome'; question q1 at t = 0.5, "
        "trial 1: 'Paris' → missing; question q3 at t = 0.5, trial 0: missing → 'Paris'; the others have "
        "equal log-probabilities"
    )


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


def test_a_run_of_before_samplers_were_written_down_is_answer_differences_without(tmp_path: Path):
    write_parquet(answer_table(ROWS), tmp_path / "first")
    write_parquet(concat_by_sampler({"repetition": answer_table(ROWS)}), tmp_path / "second")
    assert answer_differences(tmp_path / "first", tmp_path / "second").startswith("all 3 answers are the same")


def test_other_tokens_of_the_same_text_are_another_answer(tmp_path: Path):
    assert sentence(tmp_path, [ROW], [ROW | {"token_ids": [6, 2]}]).startswith("1 of 1 answers differ")


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

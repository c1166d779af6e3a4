"""The conditions under which a finished run asked."""

from pathlib import Path

import pytest
from answer_rows import answer_row

from robust_eval.answer import SamplingMetadata, answer_table, concat_by_sampler, with_sampling_metadata
from robust_eval.experiment.scoring import LabelledRun
from robust_eval.interop.finished_answers import ConditionAnswers, FinishedAnswers
from robust_eval.question import Question
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.tracking.run_folder import ANSWERS


@pytest.mark.parametrize(("rewrite", "wording"), [(0, "Who?"), (1, "What person?"), (2, "Who?")])
def test_the_wording_is_the_rewrite_that_was_asked_where_the_run_knows_it(rewrite: int, wording: str):
    question = Question("1", "Who?", rewrites=("What person?",))
    assert ConditionAnswers(question, "perturbation", rewrite, 1.0, [], "1").wording == wording


@pytest.mark.parametrize(
    ("recorded", "weights", "enumerated"),
    [
        ("trials", [0.1, 0.1, 0.1], False),  # of ten trials, early stopping asked three
        ("exact", [0.4], True),
        (None, [0.1, 0.1, 0.1], False),
        (None, [0.9, 0.1], True),
    ],
)
def test_answers_are_enumerated_as_the_run_recorded_or_else_by_their_weights(
    tmp_path: Path, recorded: str | None, weights: list[float], enumerated: bool
):
    records = [answer_row("1", trial=trial, weight=weight) for trial, weight in enumerate(weights)]
    graded = concat_by_sampler({"sweep": answer_table(records)})
    conditions = {} if recorded is None else {"sweep": ("temperature", recorded)}
    metadata = SamplingMetadata(True, {}, conditions)
    write_parquet(with_sampling_metadata(graded, metadata), tmp_path / ANSWERS)
    labelled = LabelledRun(tmp_path, FinishedRun({}, {}, graded), graded, {"1": Question("1", "Who?")})
    assert FinishedAnswers(labelled, metadata).enumerated == enumerated
    if recorded:
        assert labelled.conditions()["sweep"].axis == "temperature"

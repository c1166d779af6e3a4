"""Runs without a model: questions and answers made up, through the whole program, so that a page has all its parts."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from experiments import run_experiment

from robust_eval.answer import SAMPLER, SCHEMA
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.tracking.result import Result

TEMPERATURES = (0.2, 0.6, 1.0, 1.4, 2.0)
PLACES = ("LOC", "HUM", "NUM", "ENTY")


def recorded_run(
    folder: Path,
    questions: int,
    *overrides: str,
    text: Sequence[str] = ("",),
    wrong: Sequence[str] = ("wrong",),
    metrics: str = "[frs,certainty]",
    reverse: bool = False,
    alike: float | None = None,
    varied: bool = False,
    grouped: bool = False,
) -> Result:
    """Run the experiment on answers made up here.

    Every question but each seventh is answered right greedily; the later ones hold at higher temperatures. One
    ``text`` after the other stands in the questions, and one ``wrong`` after the other in wrong answers to them. With
    ``agreement`` among the metrics there are answers to two rewrites as well, in every third question one of them
    wrong. ``reverse`` has the first questions hold at the highest temperatures instead. ``alike`` is how firm every one
    of them is, where all behave alike: those of 0.2 break at the last temperature, those of 0.9 never. With ``varied``
    no two answers to a question above temperature 0 are alike. ``grouped`` gives questions a category, which ends
    with the text, and half of them a passage.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "questions.jsonl"
    with open(data, "w", encoding="utf-8") as file:
        for number in range(questions):
            more = text[number % len(text)]
            record = {
                "id": f"q{number}",
                "question": f"What is fact {number}? {more}",
                "answers": [f"answer {number}"],
                "type": PLACES[number % 4],
                "rewrites": [f"Fact {number} is what? {more}", f"Tell me fact {number}. {more}"],
            }
            if grouped:
                passage = f"A passage of {number}." if number % 2 else ""
                record |= {"category": ["odd", "even"][number // 2 % 2] + more, "context": passage}
            file.write(json.dumps(record) + "\n")
    answers = folder / "recorded.parquet"
    write_parquet(_answers(questions, wrong, "agreement" in metrics, reverse, alike, varied), answers)
    settings = [
        "sampler=recorded",
        f"sampler.recorded.file={answers}",
        "sampler.recorded.selection=exact_match",
        "model.name=made-up",
        "dataset=jsonl",
        f"dataset.path={data}",
        "dataset.name=facts",
        f"metric={metrics}",
        "tracking=none",
        f"paths.mlruns={folder / 'mlruns'}",
    ]
    run = folder / "run"
    run.mkdir()
    return run_experiment(run, *settings, *overrides, figures=True)


def _answers(
    questions: int, wrong: Sequence[str], reworded: bool, reverse: bool, alike: float | None, varied: bool
) -> pa.Table:
    """A greedy answer, four trials at each temperature, and answers to each wording where these are wanted."""
    numbers = np.arange(questions)
    firmness = (numbers[::-1] if reverse else numbers) / questions  # of the last questions nearly 1
    kind = numbers
    if alike is not None:
        firmness, kind = np.full(questions, alike), np.ones_like(numbers)
    parts = [_part(numbers, 0.0, 0, 0, kind % 7 != 0, wrong, "temperature_sweep", firmness)]
    for t in TEMPERATURES:
        for trial in range(4):
            right = (trial + 1) / 5 > t / 2.4 * (1.2 - firmness)
            more = f", said at {t} by {trial}" if varied else ""
            parts.append(_part(numbers, t, 0, trial, right, wrong, "temperature_sweep", firmness, more))
    if reworded:
        for rewrite in range(3):
            right = (kind % 3 != rewrite) | (rewrite == 0)
            parts.append(_part(numbers, 1.0, rewrite, 0, right, wrong, "perturbation", firmness))
        for trial in range(5):
            parts.append(_part(numbers, 0.7, 0, trial, (kind + trial) % 4 != 0, wrong, "repetition", firmness))
    return pa.concat_tables(parts)


def _part(
    numbers: np.ndarray,
    t: float,
    rewrite: int,
    trial: int,
    right: np.ndarray,
    wrong: Sequence[str],
    sampler: str,
    firm: np.ndarray,
    more: str = "",
) -> pa.Table:
    n = len(numbers)
    texts = [
        (f"answer {number}" if good else f"{wrong[number % len(wrong)]} {number % 5}") + more
        for number, good in zip(numbers, right, strict=True)
    ]
    sure = 0.3 + 0.6 * firm
    columns = {
        "question_id": [f"q{number}" for number in numbers],
        "rewrite": np.full(n, rewrite),
        "temperature": np.full(n, t),
        "trial": np.full(n, trial),
        "text": texts,
        "outcome": ["ok"] * n,
        "weight": np.ones(n),
        "token_logprobs": [[math.log(p)] for p in sure],
        "sampling_logprobs": [[math.log(p)] for p in sure],
        "top_logprobs": [[[math.log(p), *([math.log((1 - p) / 12)] * 9)]] for p in sure] if t == 0 else [None] * n,
        "answer_tokens": np.ones(n, dtype=int),
        "finish_reason": ["stop"] * n,
        "prompt_tokens": numbers + 20,
        "completion_tokens": np.ones(n, dtype=int),
    }
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    arrays = [pa.array(values, field.type) for values, field in zip(columns.values(), schema, strict=True)]
    table = pa.table(arrays, schema=schema)
    return table.append_column(SAMPLER, pa.array([sampler] * n, pa.string()))

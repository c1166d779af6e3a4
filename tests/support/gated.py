"""Runs with answers made up, for a gate: what each knows and how firmly it holds that is chosen here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from robust_eval.answer import GREEDY, SAMPLER
from robust_eval.gate.measured_run import MeasuredRun, read_measured
from robust_eval.metric.metric_spec import as_json
from robust_eval.runs.finished_runs import KNOWN_SPECS

TEMPERATURES = (0.2, 0.6, 1.0, 1.4)
TRIALS = 10


def gated_run(
    folder: Path,
    n: int,
    known: Callable[[int], bool] = lambda number: True,
    frs: Callable[[int], float] = lambda number: 0.5,
    right: Callable[[int, float, int], bool] = lambda number, t, trial: t < 1,
    lost: Callable[[int], bool] = lambda number: False,
    groups: Callable[[int], str] = lambda number: "",
    key: Callable[[int], str] = lambda number: f"answer {number}",
    text: str = "",
    bounds: Callable[[int, float], tuple[float, float]] | None = None,
    **settings: object,
) -> MeasuredRun:
    """Leave a run of ``n`` questions in a folder as a run does, and read it. One that knows nothing has not finished.

    ``lost`` are questions whose answers above temperature 0 failed, ``bounds`` those between which a model says that an
    accuracy lies. ``settings`` have a double underscore for a dot.
    """
    folder.mkdir(parents=True)
    numbers = range(n)
    figures = {
        "accuracy.greedy": [float(known(number)) for number in numbers],
        "frs.d1": [frs(number) if known(number) else float("nan") for number in numbers],
    }
    described = {
        "question_id": [f"q{number}" for number in numbers],
        "question": [f"What is fact {number}?{text}" for number in numbers],
        **{name: [""] * n for name in ("scenario", "type", "category")},
        "group": [groups(number) for number in numbers],
        "key": [json.dumps({"answers": [key(number)]}) for number in numbers],
        "kept": [known(number) for number in numbers],
    }
    if any(map(known, numbers)):
        (folder / "summary.json").write_text(json.dumps({"accuracy.greedy": 0.5, "frs.d1": 0.6}))
    else:
        del figures["frs.d1"]
    pq.write_table(pa.table(described | figures), folder / "questions.parquet")
    (folder / "metrics.json").write_text(json.dumps(as_json(KNOWN_SPECS)))
    (folder / "loaded.json").write_text("{}")
    own: dict[str, object] = {"model": {"name": "m"}, "dataset": {"name": "facts"}, "seed": 0}
    own["sampler"] = {"temperature_sweep": {"trials": TRIALS, "selection": "exact_match"}}
    for name, value in settings.items():
        place: dict[str, object] = own
        *path, last = name.split("__")
        for part in path:
            place = place.setdefault(part, {})  # type: ignore[assignment]
        place[last] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(own))
    rows = [_answer(number, 0.0, 0, known(number), GREEDY, text) for number in numbers]
    for number in filter(known, numbers):
        for t in TEMPERATURES:
            for trial in range(TRIALS):
                row = _answer(number, t, trial, right(number, t, trial), "temperature_sweep", text)
                rows.append(row | {"outcome": "error", "correct": None} if lost(number) else row)
    pq.write_table(pa.Table.from_pylist(rows), folder / "graded.parquet")
    if bounds is not None:
        curves = [
            {
                "question_id": f"q{number}",
                "temperature": t,
                "lower": bounds(number, t)[0],
                "upper": bounds(number, t)[1],
            }
            for number in filter(known, numbers)
            for t in TEMPERATURES
        ]
        pq.write_table(pa.Table.from_pylist(curves), folder / "curves.parquet")
    return read_measured(folder, folder.name)


def _answer(number: int, t: float, trial: int, right: bool, sampler: str, text: str) -> Mapping[str, object]:
    said = f"answer {number}" if right else f"wrong {number}{text}"
    return {
        "question_id": f"q{number}", "rewrite": 0, "temperature": t, "trial": trial, "text": said,
        "correct": right, "outcome": "ok", SAMPLER: sampler, "label": said, "form": None, "weight": 1 / TRIALS,
    }  # fmt: skip

"""The files in the folder of a run that other parts of the program look for."""

from pathlib import Path
from typing import Any

import yaml

from robust_eval.error import UserError, first_line

CONFIG = "config.yaml"
"""Configuration of the run, which Hydra can compose again."""
ANSWERS = "answers.parquet"
"""Answers."""
GRADED = "graded.parquet"
"""The same answers, with what each means and whether it is right."""
CURVES_FILE = "curves.parquet"
"""The accuracy by temperature that a model told; absent where none did."""
VERDICTS = "verdicts.parquet"
"""Verdicts of a judge on each reply, with its reasons."""
LABELS_FILE = "labels.parquet"
"""Human labels of answers; absent where there are none."""
REPLY_CERTAINTY = "frs_certainty.parquet"
"""Certainty of replies; absent where no FRS was measured."""
LOADED = "loaded.json"
"""Metadata of the model, server and data set: the values of settings that are auto, the fingerprint of the data."""
REPORT = "report.html"
"""The report."""
QUESTIONS = "questions.parquet"
"""Figures of every question; runs are compared by it."""
SUMMARY = "summary.json"
"""Figures of the run; a run without it has not finished."""
FIGURES = "figures.json"
"""Declaration of each figure: its label, unit and range, and where people see it."""
LOG = "run.log"
"""Log from warnings up; Hydra writes it (conf/hydra/job_logging/)."""
TRACKED = "mlflow_run.txt"
"""The id of the run in MLflow; absent where it was not tracked."""
COMPARISON = "comparison"
"""The comparison of the jobs of a sweep, a folder beside those of the jobs."""
COMPARISON_PAGE = "comparison.html"
"""The page in such a folder."""
ERROR = "error.txt"
"""Reason of a failure: a sentence, and under it the traceback."""


def finished_jobs(sweep: Path) -> list[Path]:
    """Return the folders of the finished jobs of a sweep, in the order of their numbers."""
    done = [file.parent for file in sweep.glob(f"*/{SUMMARY}")]
    return sorted(done, key=lambda job: (len(job.name), job.name))


LARGEST = 2**17
"""Bytes of a ``config.yaml`` at most; those of real runs have some thousands."""
DEEPEST = 32
"""Levels of a ``config.yaml`` at most: reading takes time with the square of their number."""


def read_configuration(file: Path) -> dict[str, Any]:
    """Read the configuration that a run wrote, as plain data.

    Somebody else may have written the file, so no object is made from it, and its size and depth are limited. Raises
    UserError where it holds no configuration.
    """
    try:
        if file.stat().st_size > LARGEST:
            raise UserError(f"{file} is larger than the configuration of any run ({LARGEST:,} bytes)")
        text = file.read_text(encoding="utf-8")
        _refuse_bombs(text, file)
        whole = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise UserError(f"{file} cannot be read: {first_line(problem)}") from problem
    if not isinstance(whole, dict):
        raise UserError(f"{file} is no configuration of a run")
    return whole


def _refuse_bombs(text: str, file: Path) -> None:
    """Raise UserError for YAML that is small as text and large when read, by aliases or by depth."""
    depth = 0
    for event in yaml.parse(text):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise UserError(f"{file} holds an alias (*NAME), which a configuration written by a run has not")
        if depth > DEEPEST:
            raise UserError(f"{file} has more than {DEEPEST} levels, which a configuration written by a run has not")

"""Files in the folder of a run: their names, and the reader of its configuration."""

from pathlib import Path
from typing import Any

import yaml

from robust_eval.error import UserError, first_line

CONFIG = "config.yaml"
"""Configuration of the run, which Hydra can compose again."""
ANSWERS = "answers.parquet"
"""Answers."""
GRADED = "graded.parquet"
"""The same answers, with labels and verdicts."""
CURVES_FILE = "curves.parquet"
"""Accuracy by temperature from the model; absent without it."""
REWRITES = "rewrites.parquet"
"""Rewrites by a model, and the fate of each; absent without a model that rewrites."""
VERDICTS = "verdicts.parquet"
"""Verdicts of a judge on each reply, with its reasons."""
LABELS_FILE = "labels.parquet"
"""Human labels of answers; absent without any."""
REPLY_CERTAINTY = "frs_certainty.parquet"
"""Certainty of replies; absent without an FRS."""
LOADED = "loaded.json"
"""Metadata of the model, server and data set: the values of settings that are auto, the fingerprint of the data."""
REPORT = "report.html"
"""Report."""
QUESTIONS = "questions.parquet"
"""Metrics of every question; runs are compared by it."""
SUMMARY = "summary.json"
"""Metrics of the run; a run without it has not finished."""
METRICS = "metrics.json"
"""Spec of each metric: its label, unit, range and visibility."""
LOG = "run.log"
"""Log from warnings up; Hydra writes it (conf/hydra/job_logging/)."""
TRACKED = "mlflow_run.txt"
"""Id of the run in MLflow; absent if it was not tracked."""
COMPARISON = "comparison"
"""Folder of the comparison of the jobs of a sweep, next to those of the jobs."""
COMPARISON_PAGE = "comparison.html"
"""Page in such a folder."""
ERROR = "error.txt"
"""Reason of a failure: a sentence, and under it the traceback."""
FAILED = ".failed"
"""Folder of a sweep with the reasons of its failed jobs, a file each; it is removed at the end of the sweep."""


def finished_jobs(sweep: Path) -> list[Path]:
    """Return the folders of the finished jobs of a sweep, in the order of their numbers."""
    done = [file.parent for file in sweep.glob(f"*/{SUMMARY}")]
    return sorted(done, key=lambda job: (len(job.name), job.name))


MAX_CONFIG_BYTES = 2**17
"""Maximum bytes of a ``config.yaml``; those of real runs have some thousands."""
MAX_LEVELS = 32
"""Maximum nesting of a ``config.yaml``: the time of reading grows with its square."""


def read_configuration(file: Path) -> dict[str, Any]:
    """Read the configuration that a run wrote into its folder, as plain data.

    The file is untrusted, so no object is made from it, its size is limited, and aliases and depth, by which a small
    file can fill the memory, are refused. Raises UserError if it holds no configuration.
    """
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise UserError(f"{file} is larger than the configuration of any run ({MAX_CONFIG_BYTES:,} bytes)")
        text, depth = file.read_text(encoding="utf-8"), 0
        for event in yaml.parse(text):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > MAX_LEVELS:
                fault = "an alias (*NAME)" if depth <= MAX_LEVELS else f"more than {MAX_LEVELS} levels"
                raise UserError(f"{file} has {fault}, which no run writes into its configuration")
        settings = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise UserError(f"{file} cannot be read: {first_line(problem)}") from problem
    if not isinstance(settings, dict):
        raise UserError(f"{file} is not the configuration of a run")
    return settings

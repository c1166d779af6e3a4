"""A log of another harness where a file of recorded answers is expected: ``sampler=recorded sampler.file=log.eval``."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robust_eval.dataset.data_frame import KeptTable
from robust_eval.error import UserError
from robust_eval.harness.collected import Collected, collect, harness_of

_FILE = ("sampler.file", "sampler.recorded.file")


def of_log(overrides: Sequence[str]) -> Mapping[str, str]:
    """Return the settings with which a log is scored, where the overrides name one, or a folder of logs.

    Its answers and questions are written under ``mlruns/tables``. Model and questions are those of the log where the
    overrides do not name others. UserError where it holds the answers of several models or tasks.
    """
    given = dict(line.partition("=")[::2] for line in overrides)
    named = next((given[key].strip("'\"") for key in _FILE if key in given), None)
    if named is None or not (files := logs(Path(named))):
        return {}
    found = collect(files)
    if len(found) > 1:
        shown = "; ".join(f"{each.model} on {each.task}" for each in found)
        raise UserError(
            f"{named} holds several runs ({shown}): robust-eval import {named} scores each and compares them"
        )
    mlruns = Path(given.get("paths.mlruns", "mlruns").strip("'\"")).absolute()
    settings = scored_by(found[0], mlruns)
    if "dataset" in given:
        settings = {key: value for key, value in settings.items() if key.split(".")[0] != "dataset"}
    elif "dataset" not in settings:
        raise no_key(found[0], named)
    return {key: value for key, value in settings.items() if key not in given or key in _FILE}


def logs(place: Path) -> list[Path]:
    """Return the logs that a path names: itself, or the files of a folder; none where there are none."""
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.is_file() and harness_of(file) is not None)
    return [place] if place.exists() and harness_of(place) is not None else []


def scored_by(collected: Collected, mlruns: Path) -> dict[str, str]:
    """Write the tables of what was collected under ``mlruns/tables``; return the settings that score them."""
    answers = collected.answers
    settings = {"model.name": collected.model, "model.prompt_style": "chat" if collected.asked.chat else "plain"}
    if collected.keyed:
        questions = KeptTable(mlruns, collected.json_lines().encode("utf-8", "surrogatepass"), ".jsonl")
        questions.write()
        settings |= {"dataset": "jsonl", "dataset.path": str(questions.file), "dataset.name": collected.task}
        if collected.keyed < len(collected.questions):
            answers = answers.filter(pc.is_in(answers["question_id"], value_set=pa.array(collected.keyed_ids)))
    written = BytesIO()
    pq.write_table(answers, written)
    table = KeptTable(mlruns, written.getvalue(), ".parquet")
    table.write()
    return settings | {"sampler.recorded.file": str(table.file)}


def no_key(collected: Collected, named: str) -> UserError:
    """Return the error for a log that no metric can score by itself, because it has no right answers."""
    example = collected.questions[0].id
    return UserError(
        f"{named} does not say which answers are right: name the questions with their answers, dataset=FILE, whose ids "
        f"are those of the log (such as {example!r})"
    )

"""Logs of other harnesses as recorded answers: ``sampler=recorded sampler.file=log.eval``."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robust_eval.answer import temperatures_of
from robust_eval.config.overrides import as_override, composed_run
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.dataset.data_frame import KeptTable
from robust_eval.error import UserError
from robust_eval.experiment.early_stopping import refuse_early_stopping
from robust_eval.interop.harness_logs import SCORE, Collected, collect, harness_of
from robust_eval.prompt.prompt import prompt_for
from robust_eval.runtime.text import printable

log = logging.getLogger(__name__)

_FILE = ("sampler.file", "sampler.recorded.file")


def with_log(overrides: Sequence[str]) -> list[str]:
    """Add the settings that score a log of another harness, if the overrides name a log or a folder of logs.

    Its answers and questions are written under ``mlruns/tables``; the overrides may name another model and other
    questions. UserError for answers of several models or tasks.
    """
    settings_by_key = dict(line.partition("=")[::2] for line in overrides)
    log_path = next((settings_by_key[key].strip("'\"") for key in _FILE if key in settings_by_key), None)
    if log_path is None or not (files := logs(Path(log_path))):
        return list(overrides)
    runs = collect(files)
    if len(runs) > 1:
        names = "; ".join(f"{each.model} on {each.task}" for each in runs)
        raise UserError(
            f"{log_path} contains several runs ({names}): robust-eval import {log_path} scores each and compares them"
        )
    settings = scored_by(runs[0], settings_by_key, log_path)
    for sentence in ungraded_sentences(runs[0]) if "dataset" in settings else ():
        log.warning("%s: %s", log_path, sentence)
    added = (key for key in settings if key not in settings_by_key or key in _FILE)
    return [*overrides, *(as_override(key, settings[key]) for key in added)]


def logs(path: Path) -> list[Path]:
    """Return the harness logs at a path: of a folder, its files that are logs."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return [file for file in files if file.exists() and harness_of(file) is not None]


def scored_by(collected: Collected, user_settings: Mapping[str, Any], log_name: str) -> dict[str, str]:
    """Write the tables of a log's questions and answers under ``mlruns/tables``; return the settings that score them,
    without a data set if ``user_settings`` name one.

    UserError if all answers are greedy, because metrics need several answers to a question, and if there is no data set
    and the log has no right answers.
    """
    mlruns = Path(str(user_settings.get("paths.mlruns", "mlruns")).strip("'\"")).absolute()
    answers = collected.answers
    if temperatures_of(answers) == [0.0]:
        raise UserError(
            printable(
                f"all answers of {collected.model} to {collected.task} are at temperature 0, but metrics need "
                f"repeated answers at a temperature above 0{_own_scores(collected)}: sample again, in lm-eval with "
                "--gen_kwargs do_sample=True,temperature=0.7 and repeats: 5 in the task, in inspect_ai with "
                "--temperature 0.7 --epochs 5"
            )
        )
    settings = {
        "model.name": collected.model,
        "model.prompt_style": "chat" if collected.request.chat else "plain",
        "reader": collected.request.reader,
    }
    if collected.keyed:
        if "dataset" not in user_settings:
            questions = KeptTable(mlruns, collected.json_lines().encode("utf-8", "surrogatepass"), ".jsonl")
            questions.write()
            settings |= {"dataset": "jsonl", "dataset.path": str(questions.file), "dataset.name": collected.task}
        if len(collected.keyed) < len(collected.questions):
            ids = pa.array([question.id for question in collected.keyed])
            answers = answers.filter(pc.is_in(answers["question_id"], value_set=ids))
    elif "dataset" not in user_settings:
        raise no_key(collected, log_name)
    written = BytesIO()
    pq.write_table(answers, written)
    table = KeptTable(mlruns, written.getvalue(), ".parquet")
    table.write()
    return settings | {"sampler.recorded.file": str(table.file)}


def ungraded_sentences(collected: Collected) -> list[str]:
    """Return a sentence for each reason why answers of a log are ungraded, with their number."""
    numbers = Counter(collected.answers["question_id"].to_pylist())
    return [
        printable(
            f"{sum(numbers[each] for each in ids):,} of {collected.answers.num_rows:,} answers (to {len(ids):,} of "
            f"{len(collected.questions):,} questions, such as {ids[0]!r}) are ungraded: {reason}"
        )
        for reason, ids in collected.ungraded.items()
    ]


def no_key(collected: Collected, log_name: str) -> UserError:
    """Return the error for a log without right answers, which no metric can score."""
    reasons = list(collected.ungraded)
    more = f"; {len(reasons) - 1:,} more reasons" if len(reasons) > 1 else ""
    return UserError(
        printable(
            f"{log_name} contains no right answers for {collected.task}: {reasons[0]}{more}{_own_scores(collected)}; "
            "set dataset to a file of questions and answers with the ids of the log (such as "
            f"{collected.questions[0].id!r})"
        )
    )


def _own_scores(collected: Collected) -> str:
    """Return the means of the log's own scores in brackets; empty if it has none."""
    means = {name: pc.mean(collected.answers[f"{SCORE}{name}"]).as_py() for name in collected.scorers}
    scores = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items() if mean is not None)
    return f" (the log's own scores are {scores} on average)" if scores else ""


def lacking_by_metric(collected: Collected, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the reason for each metric that cannot score a log's answers with these settings."""
    register()
    reasons = {}
    for name in SCHEMAS["metric"]:
        lines = ["sampler=recorded", f"metric=[{name}]", *(as_override(key, value) for key, value in settings.items())]
        try:
            config, _ = composed_run(lines)
            if config.recorded is not None:
                refuse_early_stopping(config.recorded, config.metric)
        except UserError as problem:
            if f"metric={name}" not in str(problem):  # no metric can score the answers
                raise
            reasons[name] = str(problem).replace(settings["sampler.recorded.file"], f"the log of {collected.model}")
    return reasons


def differences(collected: Collected) -> list[str]:
    """Compare the request of a log's first answer with that of robust_eval, and count the truncated answers."""
    request, question = collected.request, collected.questions[0]
    prompt = prompt_for(question)
    default_messages = prompt.messages() if request.chat else [{"role": "user", "content": prompt.text()}]
    sentences = []
    if request.messages and [{"role": role, "content": text} for role, text in request.messages] != default_messages:
        logged = " ⏎ ".join(f"{role}: {text}" if request.chat else text for role, text in request.messages)
        excerpt = logged if len(logged) <= 160 else f"…{logged[-160:]}"
        sentences.append(printable(f"the prompt differs from that of robust_eval: {excerpt!r} ({question.id})"))
    first_line = not request.chat and request.reader != "reply"
    if request.stop and not (first_line and request.stop == ("\n",)):
        default = "the end of the first line" if first_line else "the length limit only"
        sentences.append(printable(f"replies stop at {list(request.stop)!r}; in robust_eval they stop at {default}"))
    answers = collected.answers
    if "finish_reason" in answers.column_names:
        cut = pc.sum(pc.equal(answers["finish_reason"], "length")).as_py() or 0
        if cut:
            limit = f"{request.max_tokens} tokens" if request.max_tokens else "the length limit"
            sentences.append(f"{cut:,} of {answers.num_rows:,} replies were truncated at {limit}")
    elif request.max_tokens:
        sentences.append(
            f"the maximum length is {request.max_tokens} tokens; the log does not say which replies were truncated"
        )
    return sentences

"""Python interface for programs and notebooks: run an experiment, load a finished run, compare, score."""

import html
import io
import logging
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from robust_eval.answer import EXACT_CURVES, SAMPLER, temperatures_of
from robust_eval.config.overrides import as_override, composed_run, with_own_options
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.dataset.data_frame import KeptTable, Rows, json_lines, records
from robust_eval.error import UserError, first_line, writing
from robust_eval.experiment.run import run as run_experiment
from robust_eval.interop.harness_logs import SCORE, Collected, collect
from robust_eval.interop.log_as_answers import (
    differences,
    lacking_by_metric,
    logs,
    scored_by,
    ungraded_sentences,
    with_log,
)
from robust_eval.model.function_model import FunctionModel
from robust_eval.model.model_config import ModelConfig
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.comparison_summary import sentences
from robust_eval.report.warnings import few
from robust_eval.runs.comparison import compare as compare_runs
from robust_eval.runs.finished_runs import FinishedRun, read_run
from robust_eval.runtime.console import Formatter
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.runtime.process import timestamp
from robust_eval.runtime.text import number, printable
from robust_eval.stats.estimate import interval
from robust_eval.stats.interval import independent
from robust_eval.tracking.run_folder import COMPARISON_PAGE, CURVES_FILE, GRADED, LOG, QUESTIONS, REPORT, finished_jobs

_RUNNING = RLock()
"""Lock that lets one call of :func:`run` at a time proceed: log, progress bar and tracker belong to the process."""
JSONL_COLUMNS = {"rewrites", "type", "level", "incorrect"}
"""Columns of questions that ``dataset=jsonl`` reads, and ``dataset=local`` does not."""


class Page:
    """Folder with an HTML page, shown in a notebook or in the web browser."""

    def __init__(self, folder: Path, page: str) -> None:
        self.folder = folder
        self._page = folder / page

    def show(self) -> None:
        """Show the HTML page: in a notebook below the cell, which then holds a copy, elsewhere in the web browser."""
        if _in_notebook():
            from IPython.display import HTML, display

            inside = html.escape(self._page.read_text(encoding="utf-8"))
            frame = f'<iframe srcdoc="{inside}" style="width: 100%; height: 48em; border: 0"></iframe>'
            display(HTML(f"<div>{frame}</div>"))
        else:
            webbrowser.open(self._page.resolve().as_uri())


class Evaluation(Page):
    """Evaluation of a model: a finished run, read from its folder.

    ``metrics`` has a row for each metric: ``name``, ``value``, the ends ``low`` and ``high`` of its 95 % interval,
    ``unit``, and ``n``, the number of questions that it rests on; NaN and NA where there is none. ``questions`` has a
    row for each question with its value of every metric, ``answers`` a row for each answer with its verdict, and
    ``exact_curves`` the accuracy by temperature that ``sampler=exact`` computes (empty otherwise). The columns are
    explained in docs/run_folder.md.

    >>> load("runs/first").headline.iloc[0].tolist()
    ['answer entropy (nats) at t = 1', '0.000', '0.000 to 0.676', '1']
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, REPORT)
        self.finished: FinishedRun = read_run(folder)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The metrics of the run as a data frame, those with a spec first."""
        run = self.finished
        specs = {name: run.spec(name) for name in run.metrics}
        rows = [
            {
                "name": name,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "unit": spec.unit if (spec := specs[name]) else "",
                "n": run.n(name),
            }
            for name, estimate in sorted(run.metrics.items(), key=lambda each: specs[each[0]] is None)
        ]
        return pd.DataFrame(rows).astype({"n": "Int64"})

    @cached_property
    def questions(self) -> pd.DataFrame:
        """The run's questions as a data frame, with their values of the metrics that are means over questions."""
        return read_parquet(self.folder / QUESTIONS).to_pandas()

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The run's graded answers as a data frame."""
        return read_parquet(self.folder / GRADED).to_pandas()

    @cached_property
    def exact_curves(self) -> pd.DataFrame:
        """The accuracy curves of each question as a data frame."""
        file = self.folder / CURVES_FILE
        empty = EXACT_CURVES.append(pa.field(SAMPLER, pa.string())).empty_table()
        return (read_parquet(file) if file.is_file() else empty).to_pandas()

    def table(self, name: str) -> pd.DataFrame:
        """Return a metric's table by its name as a data frame: ``frs``, for example, has a row for each fact.

        Raises UserError if there is none of this name.
        """
        tables = sorted(file.stem for file in self.folder.glob("*.parquet"))
        if name not in tables:
            raise UserError(f"{self.folder} has no table {name!r}; its tables are {', '.join(tables)}")
        return read_parquet(self.folder / f"{name}.parquet").to_pandas()

    @property
    def headline(self) -> pd.DataFrame:
        """The run's headline metrics as a data frame, with values and intervals as text."""
        run = self.finished
        rows = []
        for name in run.headline_metrics:
            spec, estimate, n = run.spec(name), run.metrics[name], run.n(name)
            label, form = (spec.words, spec.form) if spec else (name, ".3f")
            rows.append([label, number(estimate.value, form), interval(estimate, form), "" if n is None else f"{n:,}"])
        return pd.DataFrame(rows, columns=["metric", "value", "95 % interval", "questions"])

    @property
    def title(self) -> str:
        """Title of the run: model, data set, and number of questions kept."""
        return printable(self.finished.title)

    @property
    def _warning(self) -> str:
        selected, groups = self.finished.kept(), self.finished.groups()
        chosen = None if groups is None else [group for group, is_kept in zip(groups, selected, strict=True) if is_kept]
        return few(independent(int(selected.sum()), chosen), groups is not None)

    def __repr__(self) -> str:
        table = self.headline.to_string(index=False)
        return "\n".join(filter(None, [self.title, table, self._warning, f"folder: {self.folder}"]))

    def _repr_html_(self) -> str:
        return _as_html([self.title], self.headline, [self._warning, f"folder: {self.folder}"])


class ComparedRuns(Page):
    """Comparison of runs, read from its folder.

    ``runs`` has a row for each metric of each run, ``pairs`` one for each metric and pair of runs with the difference
    and its interval, and ``questions`` one for each question that several runs share (empty where none is). The columns
    are explained in docs/comparing.md.

    >>> compared = compare(["runs/first", "runs/second"], folder="comparison")
    >>> compared.runs["run"].nunique()
    2
    """

    def __init__(self, folder: Path, sentences: Sequence[str]) -> None:
        super().__init__(folder, COMPARISON_PAGE)
        self._sentences = list(sentences)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The metrics of the compared runs as a data frame."""
        return pq.read_table(self.folder / "runs.parquet").to_pandas()

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The differences between compared runs, on the questions that both asked, as a data frame."""
        return pq.read_table(self.folder / "pairs.parquet").to_pandas()

    @cached_property
    def questions(self) -> pd.DataFrame:
        """The questions that compared runs share, as a data frame."""
        file = self.folder / QUESTIONS
        return pq.read_table(file).to_pandas() if file.is_file() else pd.DataFrame()

    def __repr__(self) -> str:
        return "\n".join([*self._sentences, f"folder: {self.folder}"])

    def _repr_html_(self) -> str:
        return _as_html(self._sentences, self.pairs, [f"folder: {self.folder}"])


_KEY = ["question_id", "rewrite", "temperature", "trial"]


class LoadedAnswers:
    """Answers of one model to one task, loaded from logs of another harness.

    ``answers`` has a row for each answer (docs/harnesses.md) with the scores of the harness's own scorers
    (``score.NAME``), ``questions`` one for each question with its key, if the logs have it.

    >>> load_answers("logs")[0].answers[["question_id", "text", "temperature"]].values.tolist()
    [['q1', 'Rome', 0.7]]
    """

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.model, self.task = collected.model, collected.task

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The loaded answers as a data frame, a row each (columns: docs/run_folder.md)."""
        return self.collected.answers.to_pandas()

    @cached_property
    def questions(self) -> pd.DataFrame:
        """The questions of the loaded answers as a data frame."""
        return pd.DataFrame([vars(question) for question in self.collected.questions])

    @cached_property
    def differences(self) -> list[str]:
        """Differences of the loaded answers from our sampling: prompt, stop strings, truncation; a sentence each."""
        return differences(self.collected)

    @cached_property
    def ungraded(self) -> list[str]:
        """Numbers of loaded answers that cannot be graded, a sentence for each reason; empty if all can."""
        return ungraded_sentences(self.collected)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that can be computed from the loaded answers."""
        lacking = self.lacking()
        return [name for name in SCHEMAS["metric"] if name not in lacking]

    def score(self, metrics: Sequence[str] | None = None, **settings: Any) -> Evaluation:
        """Grade and score the loaded answers, by default with all :attr:`metrics`; no model is queried.

        ``settings`` are those of :func:`robust_eval.run`. Raises UserError before anything is scored if the logs lack
        what a metric needs, with the metrics that would work.
        """
        lacking = self.lacking(**settings)
        working = [name for name in SCHEMAS["metric"] if name not in lacking]
        metric_names = list(metrics or working)
        if missing := [name for name in metric_names if name in lacking] or ([] if metric_names else list(lacking)):
            works = f"choose metric=[{','.join(working)}]" if working else "no metric can score these answers"
            raise UserError(f"{self.model} on {self.task}: {lacking[missing[0]]}; {works}")
        return run(["sampler=recorded"], metric=metric_names, **self._settings(settings))

    def agreement(self, evaluation: Evaluation) -> list[str]:
        """Return a sentence for each scorer of the harness on its agreement with ``evaluation``."""
        logged, graded = (each.answers.fillna({"temperature": -1.0}) for each in (self, evaluation))
        if "rewrite" not in logged:
            logged["rewrite"] = 0
        both = graded[[*_KEY, "correct"]].dropna(subset=["correct"]).merge(logged, on=_KEY)
        sentences_of_scorers = []
        for name in self.collected.scorers:
            scored = both.dropna(subset=[SCORE + name])
            same = int(((scored[SCORE + name] >= 0.5) == scored["correct"].astype(bool)).sum())
            sentences_of_scorers.append(
                f"the log's scorer {printable(name)} and the run's grader agree on {same:,} of {len(scored):,} answers"
            )
        return sentences_of_scorers

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return scored_by(self.collected, settings, f"the log of {self.model}") | dict(settings)

    def lacking(self, **settings: Any) -> dict[str, str]:
        """Return the reason for each metric that cannot score the loaded answers; ``settings`` as of :meth:`score`."""
        return lacking_by_metric(self.collected, self._settings(settings))

    def __repr__(self) -> str:
        answers = self.collected.answers
        if not answers.num_rows:
            return f"{self.model} on {self.task}: no answers"
        at = ", ".join("own" if t != t else f"{t:g}" for t in temperatures_of(answers))
        number = f"{answers.num_rows:,} answers to {len(self.collected.questions):,} questions"
        ungraded = sum(map(len, self.collected.ungraded.values()))
        without = f"; {ungraded:,} of {len(self.collected.questions):,} questions ungraded" if ungraded else ""
        left = self.collected.left_out
        out = f"; {left:,} more at temperature 0 left out: each question needs only one greedy answer" if left else ""
        return printable(f"{self.model} on {self.task}: {number} at temperature {at}{out}{without}")


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Raise each UserError of the Python interface again with a printable text and without its cause.

    Python prints an uncaught exception with all causes, which may contain text of a server or an untrusted file.
    """
    try:
        yield
    except UserError as problem:
        raise type(problem)(printable(str(problem))) from None


@_printable_errors()
def run(
    overrides: Sequence[str] = (),
    *,
    model: str | ModelConfig | Callable[..., Sequence[str]] | None = None,
    dataset: str | Path | Rows | None = None,
    folder: str | Path | None = None,
    **settings: Any,
) -> Evaluation:
    """Run one experiment from Python, as the command ``robust-eval`` does, and return its evaluation.

    ``overrides`` are written as on the command line (``["experiment=frs", "dataset.limit=100"]``). ``settings`` are the
    same as keywords: ``seed=1``, ``metric=["frs", "certainty"]``, ``**{"dataset.limit": 100}``. ``model`` is the name
    of an option, a function from prompts to texts (see :class:`robust_eval.FunctionModel`), or an instance of a
    subclass of ``robust_eval.ModelConfig``. ``dataset`` is the name of an option, the path of a file, or a table of
    questions: with the columns of ``dataset=local``, or with those of ``dataset=jsonl`` if it has a column
    ``rewrites``, ``type``, ``level`` or ``incorrect`` (docs/data_sets.md). The run is written to ``folder``, by default
    to a new one under ``mlruns/runs``, and recorded as the settings say.

    Raises UserError, which is a ValueError, for user errors. Exceptions of a user's function or object are not caught.
    Answers received before an exception are stored, and the next call resumes from them.

    >>> def roman(prompts):
    ...     return ["Rome"] * len(prompts)
    >>> table = [{"question": "What is the capital of Italy?", "answers": ["Rome"]}]
    >>> run(["experiment=certainty"], model=roman, dataset=table, tracking="none").title
    'roman on local: 1 of 1 questions kept'
    """
    register()
    if isinstance(overrides, str):
        raise UserError(f"overrides must be a list such as ['dataset.limit=100'], not {overrides!r}")
    lines = [*map(_override, overrides), *(as_override(name, value) for name, value in settings.items())]
    model_config = None
    if isinstance(model, str):
        lines.append(as_override("model", model))
    elif model is not None:
        model_config = _as_model_config(model)
        lines += _model_overrides(model_config)
    table = None
    if isinstance(dataset, str | Path):
        lines.append(as_override("dataset", dataset))
    elif dataset is not None:
        rows = records(dataset, "dataset")
        table = KeptTable(_mlruns(lines), json_lines(rows).encode("utf-8", "surrogatepass"), ".jsonl")
        has_extra_columns = any(row.keys() & JSONL_COLUMNS for row in rows)
        lines = [f"dataset={'jsonl' if has_extra_columns else 'local'}", "dataset.name=local", *lines]
        lines.append(as_override("dataset.path", str(table.file)))
    config, composed = composed_run(with_own_options(with_log(lines)))
    if model_config is not None:
        config = replace(config, model=model_config).in_needed_precision()
    output = Path(config.paths.mlruns) / "runs" / timestamp() if folder is None else _folder(folder)
    with writing("the run", output):
        output.mkdir(parents=True, exist_ok=True)
        if table is not None:
            table.write()
    with _RUNNING, _logged(output / LOG):
        run_experiment(config, composed, output)
    return Evaluation(output)


@_printable_errors()
def load(folder: str | Path) -> Evaluation:
    """Return the finished run in a folder (``mlruns/runs/DATE/TIME``). Raises UserError where there is none.

    >>> load("runs/first").title
    'recorded on local: 1 of 1 questions kept'
    """
    return Evaluation(_folder(folder))


@_printable_errors()
def compare(runs: Sequence[Evaluation | str | Path], folder: str | Path | None = None) -> ComparedRuns:
    """Compare finished ``runs``, which are results of :func:`run` or folders of runs and sweeps; return the comparison.

    The comparison is written to ``folder``, by default to a new one under ``mlruns/comparisons``. Raises UserError if
    no run is given, or one cannot be read.

    >>> pairs = compare(["runs/first", "runs/second"], folder="comparison").pairs
    >>> pairs.set_index("metric").loc["certainty.error_rate.t1", ["first", "second", "n"]].tolist()
    [0.0, 1.0, 1.0]
    """
    if not isinstance(runs, Sequence) or isinstance(runs, str):
        raise UserError(f"compare() needs a list of runs, or of their folders, not {type(runs).__name__}")
    finished_runs = [each_run for each in runs for each_run in _finished(each)]
    if not finished_runs:
        raise UserError("compare() needs at least one run")
    compared = compare_runs(finished_runs)
    output = _mlruns([]) / "comparisons" / timestamp() if folder is None else _folder(folder)
    with writing("the comparison", output):
        write_comparison(compared, output)
    return ComparedRuns(output, [printable(sentence) for sentence in sentences(compared)])


@_printable_errors()
def score(
    answers: Rows, questions: Rows, metrics: Sequence[str] = ("certainty",), model: str = "recorded", **settings: Any
) -> Evaluation:
    """Grade and score answers of ``model`` that were collected elsewhere; no model is queried.

    ``answers`` has a row for each answer with ``question_id``, ``text`` and ``temperature`` and, if a question has
    several answers, ``trial`` or ``rewrite`` (docs/harnesses.md). ``questions`` has a row for each question with its
    ``id`` and the columns of ``dataset=local``. ``metrics`` are names of options (agreement, certainty, frs, …),
    ``settings`` those of :func:`run`. Like :func:`run`, it writes a folder and returns the evaluation. Raises UserError
    for user errors.

    >>> score(
    ...     [{"question_id": "1", "text": "Rome", "temperature": 1.0, "trial": trial} for trial in range(20)],
    ...     [{"id": "1", "question": "What is the capital of Italy?", "answers": ["Rome"]}],
    ...     tracking="none",
    ... ).title
    'recorded on local: 1 of 1 questions kept'
    """
    register()
    if isinstance(metrics, str) or not all(isinstance(name, str) for name in metrics):
        raise UserError(f"metrics must be a list of names such as ['certainty'], not {metrics!r}")
    try:
        rows = records(answers, "answers")
        names = dict.fromkeys(name for row in rows for name in row)  # the first row need not have all of them
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
    except (pa.ArrowException, TypeError) as problem:
        raise UserError(f"answers: {first_line(problem)}") from problem
    written = io.BytesIO()
    pq.write_table(table, written)
    lines = [as_override(name, value) for name, value in settings.items()]
    recorded = KeptTable(_mlruns(lines), written.getvalue(), ".parquet")
    recorded.write()
    file = {"sampler.recorded.file": str(recorded.file), "model.name": model}
    return run(["sampler=recorded"], dataset=questions, metric=list(metrics), **file, **settings)


def load_answers(*files: str | Path) -> list[LoadedAnswers]:
    """Return the answers in ``files``, which are logs of inspect_ai, lm-eval, OpenAI batches, HELM and Every Eval Ever,
    or folders of them.

    Logs of one model and task are joined, whatever their temperatures. Raises UserError with file and sample if one is
    broken or of unknown format.

    >>> load_answers("logs")
    [small on requests: 1 answers to 1 questions at temperature 0.7; 1 of 1 questions ungraded]
    """
    paths = [each for file in files for each in (logs(Path(file)) if Path(file).is_dir() else [Path(file)])]
    if not paths:
        raise UserError(f"there are no logs in {', '.join(map(str, files))}" if files else "name at least one log")
    return [LoadedAnswers(each) for each in collect(paths)]


def _folder(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise UserError(f"folder must be the path of a folder, not {path!r}")
    return Path(path)


def _override(line: object) -> str:
    if not isinstance(line, str):
        raise UserError(f"an override must be a string such as 'dataset.limit=100', not {line!r}")
    return line


def _as_model_config(model: object) -> ModelConfig:
    if isinstance(model, type):
        raise UserError(f"model={model.__qualname__} is a class: pass an instance, {model.__qualname__}(…)")
    if ModelConfig in type(model).__mro__:
        return cast(ModelConfig, model)
    if callable(model):
        return FunctionModel(model, getattr(model, "__name__", type(model).__name__))
    raise UserError(
        "model must be the name of an option, a function from prompts to strings, or an instance of a subclass of "
        f"robust_eval.ModelConfig, not {type(model).__name__}"
    )


def _model_overrides(model: ModelConfig) -> list[str]:
    """Return the overrides that describe a Python model object, which a configuration cannot hold."""
    if not isinstance(getattr(model, "name", None), str) or not model.name:
        raise UserError(f"model: {type(model).__qualname__} must have a name, which tables and the tracker show")
    names: list[str] = [field.name for field in fields(model)] if is_dataclass(model) else []
    values = {name: getattr(model, name) for name in names if name != "name"}
    plain = {name: value for name, value in values.items() if isinstance(value, str | int | float | bool | None)}
    style = "chat" if model.service_limits().chat else "plain"
    described = {"name": model.name, "kind": type(model).__qualname__, "settings": plain, "prompt_style": style}
    return ["model=given", *(as_override(f"model.{name}", value) for name, value in described.items())]


def _mlruns(lines: Sequence[str]) -> Path:
    """Return the output folder ``mlruns`` of these overrides."""
    register()
    config, _ = composed_run([line for line in lines if line.startswith("paths.mlruns=")])
    return Path(config.paths.mlruns)


def _finished(run: object) -> list[FinishedRun]:
    if isinstance(run, Evaluation):
        return [run.finished]
    if not isinstance(run, str | Path):
        raise UserError(f"compare() needs runs, or their folders, not {type(run).__name__}")
    return [read_run(job) for job in finished_jobs(Path(run)) or [Path(run)]]


@contextmanager
def _logged(file: Path) -> Iterator[None]:
    """Write the warnings of a run from Python into its folder, as the command does (conf/hydra/job_logging/)."""
    handler = logging.FileHandler(file, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _as_html(head: Sequence[str], table: pd.DataFrame, foot: Sequence[str]) -> str:
    before, after = (
        "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in each if paragraph) for each in (head, foot)
    )
    return f"{before}{table.to_html(index=False, border=0)}{after}"


def _in_notebook() -> bool:
    """Return True if a kernel of Jupyter runs this Python process."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None

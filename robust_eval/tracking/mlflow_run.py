"""Run in MLflow, in a local store or on a server that may become unreachable."""

import base64
import hashlib
import json
import logging
import math
import re
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from robust_eval.answer import NO_REPLY
from robust_eval.error import first_line
from robust_eval.metric.metric_spec import HEADLINE, MetricSpec, spec_of
from robust_eval.metric.score import Score
from robust_eval.question import Question
from robust_eval.runtime.text import printable_lines
from robust_eval.tracking.base import Run, TracedAnswer
from robust_eval.tracking.run_folder import ERROR

log = logging.getLogger(__name__)

PARENT = "mlflow.parentRunId"
"""Tag of a job with the id of its sweep."""
IDENTITY = "robust_eval.identity"
"""Tag of a LoggedModel with the hash of its identity."""
MAX_JOBS = 10_000
"""Maximum number of jobs of a sweep whose metrics are summarised."""
UNITS = {100: "hundredths", 1000: "thousandths", 10**6: "millionths"}
"""Units of the steps of a curve."""

PREVIEW = 1000
"""Maximum characters of a question and a reply in MLflow's list of traces."""


class MlflowRun(Run):
    """Run in MLflow.

    Calls use its id, because the library's global active run would stay active after a server failure. With
    ``on_server`` the first failure is a warning, and nothing is sent after it. ``sweep`` is the id of the parent of the
    sweep, if this run is the parent or a job; ``traces`` is the maximum number of answers recorded as traces.
    """

    def __init__(
        self, client: Any, run_id: str, on_server: bool = False, sweep: str | None = None, traces: int = 0
    ) -> None:
        self._client = client
        self.run_id: str = run_id
        self._on_server = on_server
        self._sweep = sweep
        self.traces = traces
        self._discarded = False
        self._measured: dict[str, str] = {}
        self.lost = False

    @cached_property
    def _experiment_id(self) -> str:
        return str(self._client.get_run(self.run_id).info.experiment_id)

    def end(self, status: str) -> None:
        """End the MLflow run with the status FINISHED, FAILED or KILLED."""
        if not self._discarded:
            self._write(lambda: self._client.set_terminated(self.run_id, status))

    def fail(self, problem: BaseException) -> None:
        """Record the failure and end the MLflow run: KILLED by Ctrl-C or a signal, FAILED by any other exception."""
        from mlflow.exceptions import MlflowException

        if self._discarded:
            return
        stopped = isinstance(problem, SystemExit) and problem.code in (130, 143)  # a job of a sweep, by a signal
        killed = stopped or isinstance(problem, KeyboardInterrupt)
        reason = printable_lines(f"{type(problem).__name__}: {problem}")
        try:
            self._client.set_tag(self.run_id, "error", reason[:5000])
            self._client.set_terminated(self.run_id, "KILLED" if killed else "FAILED")
            self._client.log_text(self.run_id, printable_lines("".join(traceback.format_exception(problem))), ERROR)
        except (MlflowException, OSError) as second:
            log.warning("the run could not be marked as failed: %s", first_line(second))
            self.lost = True

    def write_id(self, file: Path) -> None:
        file.write_text(f"{self.run_id}\n", encoding="utf-8")

    def parameters(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        self._batches(params=[Param(key, str(value)[:6000]) for key, value in values.items()])

    def tags(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self._batches(tags=[RunTag(key, value) for key, value in values.items()])

    def dataset(self, name: str, source: str, questions: Sequence[Question], digest: str) -> None:
        """Record the questions as a data set, an input of this MLflow run."""
        import pandas as pd
        from mlflow.data.dataset_source_registry import get_dataset_source_from_json
        from mlflow.data.pandas_dataset import PandasDataset
        from mlflow.entities import DatasetInput, InputTag

        kind, key = ("http", "url") if source.startswith("https://") else ("local", "uri")
        origin = get_dataset_source_from_json(json.dumps({key: source}), kind)
        answers = ["; ".join(question.answers) for question in questions]
        ids, titles = [question.id for question in questions], [question.title for question in questions]
        frame = pd.DataFrame({"id": ids, "question": titles, "answers": answers})
        # MLflow's store takes 36 characters of a digest; the parameters have all.
        data = PandasDataset(frame, source=origin, name=name, digest=digest[:36])
        used = DatasetInput(data._to_mlflow_entity(), [InputTag("mlflow.data.context", "evaluation")])
        self._write(lambda: self._client.log_inputs(self.run_id, [used]))
        self._measured |= {"dataset_name": name, "dataset_digest": digest[:36]}

    def model(self, name: str, identity: Mapping[str, object]) -> None:
        """Record the model as a LoggedModel of MLflow, an input of this run; runs with the same identity share it."""
        from mlflow.entities import LoggedModelInput, LoggedModelStatus

        params = {key: str(value)[:6000] for key, value in identity.items()}
        digest = hashlib.sha256(json.dumps([name, params], sort_keys=True).encode()).hexdigest()

        def write() -> None:
            same_identity = f"tags.`{IDENTITY}` = '{digest}'"
            models = self._client.search_logged_models([self._experiment_id], same_identity, max_results=1)
            if models:
                model_id = models[0].model_id
            else:
                allowed_name = re.sub(r"""[/:.%"']""", "-", printable_lines(name)[:200])
                model_id = self._client.create_logged_model(
                    self._experiment_id, allowed_name, self.run_id, {IDENTITY: digest}, params, "language model"
                ).model_id
                self._client.finalize_logged_model(model_id, LoggedModelStatus.READY)
            self._client.log_inputs(self.run_id, models=[LoggedModelInput(model_id)])
            self._measured["model_id"] = model_id

        self._write(write)

    def scores(self, scores: Sequence[Score], metrics: Mapping[str, float]) -> None:
        """Record the points of :func:`metric_points` in MLflow, with the model and the data set that they belong to."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = metric_points(scores, metrics)
        measured = self._measured if "model_id" in self._measured else {}
        self._batches(
            metrics=[Metric(name, value, now, step, run_id=self.run_id, **measured) for name, value, step in points]
        )

    def best_of_sweep(self, specs: Sequence[MetricSpec]) -> None:
        """Record the best value, the minimum and the maximum of each headline metric of a sweep; the step is the number
        of jobs that have it, so that of two concurrent jobs the one that read more wins.
        """
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException

        if self._sweep is None or self.lost:
            return
        try:
            is_job = f"tags.`{PARENT}` = '{self._sweep}'"
            jobs = self._client.search_runs(
                [self._experiment_id], is_job, max_results=MAX_JOBS, order_by=["attributes.start_time"]
            )
            metrics = {f"{job.info.run_name} ({job.info.run_id})": job.data.metrics for job in jobs}
            values, best = best_and_range(metrics, specs)
            sweep = MlflowRun(self._client, self._sweep)
            now = int(time.time() * 1000)
            sweep._batches(metrics=[Metric(name, value, now, step) for name, value, step in values])
            sweep.tags(best)
        except (MlflowException, OSError) as problem:
            log.warning("tracking: the best values of the sweep are not recorded: %s", first_line(problem))

    def answers(self, answers: Sequence[TracedAnswer]) -> None:
        """Record each answer as an MLflow trace with its verdict as an assessment."""

        def write() -> None:
            model_id = self._measured.get("model_id")
            try:
                _record_traces(self._client, self._experiment_id, self.run_id, model_id, answers)
            except NotImplementedError as problem:
                log.warning("tracking: the server does not support traces: %s", first_line(problem))

        self._write(write)

    def note(self, markdown: str) -> None:
        self.tags({"mlflow.note.content": markdown})

    def tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Record tables as JSON, which MLflow's page can show, unlike Parquet."""

        def write() -> None:
            for name, table in tables.items():
                frame = table.to_pandas().astype(object)  # pandas 3 warns of the way in which MLflow selects columns
                self._client.log_table(self.run_id, frame, f"tables/{name}.json")

        self._write(write)

    def folder(self, path: Path) -> None:
        self._write(lambda: self._client.log_artifacts(self.run_id, str(path)))

    def discard(self) -> None:
        self._write(lambda: self._client.delete_run(self.run_id))
        self._discarded = not self.lost

    def _batches(self, **entities: Sequence[Any]) -> None:
        ((kind, values),) = entities.items()
        limit = 1000 if kind == "metrics" else 100  # of one request

        def write() -> None:
            for start in range(0, len(values), limit):
                self._client.log_batch(self.run_id, **{kind: values[start : start + limit]})

        self._write(write)

    def _write(self, write: Callable[[], object]) -> None:
        from mlflow.exceptions import MlflowException

        if self.lost:
            return
        try:
            write()
        except (MlflowException, OSError) as problem:
            if not self._on_server:
                raise
            log.warning("tracking: the server is unreachable: %s", first_line(problem))
            self.lost = True


class Point(NamedTuple):
    """Value of an MLflow metric at a step; the step is 0 without a curve."""

    name: str
    value: float
    step: int = 0


def metric_points(scores: Sequence[Score], metrics: Mapping[str, float]) -> list[Point]:
    """Return the defined points to record in MLflow: of the headline metrics with their intervals, of other flat
    metrics, and of the curves by step, under ``curve/``.
    """
    flat: dict[str, float] = {}
    for score in scores:
        for name, estimate in score.headline().metrics().items():
            if _is_metric(score, name):
                bounds = {} if math.isnan(estimate.low) else {"low": estimate.low, "high": estimate.high}
                flat |= {name: estimate.value, **{f"{name}.{end}": bound for end, bound in bounds.items()}}
    points = [Point(name, value) for name, value in (flat | dict(metrics)).items()]
    for name, curve in [each for score in scores for each in score.curves.items() if _is_metric(score, each[0])]:
        unit, steps = integer_steps(list(curve))
        values = (estimate.value for estimate in curve.values())
        points += [Point(f"curve/{name} by t in {unit}", *each) for each in zip(values, steps, strict=True)]
    return [point for point in points if math.isfinite(point.value)]


def best_and_range(
    metrics: Mapping[str, Mapping[str, float]], specs: Sequence[MetricSpec]
) -> tuple[list[Point], dict[str, str]]:
    """Return the best value, the minimum and the maximum of each headline metric of several runs, with the number of
    these runs as the step, and the best run of each metric.

    ``metrics`` maps each run to the values of its metrics.

    >>> best_and_range({"one": {"steps": 5}, "two": {"steps": 3}}, [MetricSpec("steps", "", more_is_better=False)])[1]
    {'best.steps': 'two'}
    """
    points, best = [], {}
    for name in dict.fromkeys(name for each in metrics.values() for name in each):
        spec = spec_of(name, specs)
        if spec is None or not _is_headline(spec):
            continue
        values = {run: each[name] for run, each in metrics.items() if name in each}
        ends = {"minimum": min(values.values()), "maximum": max(values.values())}
        if spec.more_is_better is not None:
            ends["best"] = ends["maximum" if spec.more_is_better else "minimum"]
            best[f"best.{name}"] = next(run for run, value in values.items() if value == ends["best"])
        points += [Point(f"{name}.{end}", value, len(values)) for end, value in ends.items()]
    return points, best


def integer_steps(temperatures: Sequence[float]) -> tuple[str, list[int]]:
    """Turn temperatures into MLflow's integer steps: their unit, and each in it.

    The unit is hundredths, so that curves of different grids align, or the first of :data:`UNITS` that represents the
    temperatures exactly. The default temperature (NaN) has step 0.

    >>> integer_steps([0.2, 1.0]), integer_steps([0.125])
    (('hundredths', [20, 100]), ('thousandths', [125]))
    """
    finite = [t for t in temperatures if not math.isnan(t)]
    scale = next(
        (scale for scale in UNITS if all(abs(round(t * scale) - t * scale) < 1e-9 * scale for t in finite)), max(UNITS)
    )
    return UNITS[scale], [0 if math.isnan(t) else round(t * scale) for t in temperatures]


def _is_metric(score: Score, name: str) -> bool:
    """Return True if MLflow records a metric of a score: a headline metric, or any if its class declares none."""
    spec = score.spec(name)
    return not score.specs if spec is None else _is_headline(spec)


def _is_headline(spec: MetricSpec) -> bool:
    """Return True if a metric is a headline, primary or short one."""
    return bool(spec.shown == HEADLINE or spec.primary or spec.short)


def _record_traces(
    client: Any, experiment_id: str, run_id: str, model_id: str | None, answers: Sequence[TracedAnswer]
) -> None:
    """Record each answer of a run as an MLflow trace, the first on top of MLflow's list.

    The traces go to the store of the client, not to MLflow's global one as from its decorators. Their time is that of
    the record, because an answer may be years old.
    """
    from mlflow.entities import AssessmentSource, Feedback, Span, SpanType, TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient
    from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey, TraceTagKey

    tracing, spans, now = TracingClient(client.tracking_uri), [], time.time_ns() // 10**6
    metadata = {TraceMetadataKey.SOURCE_RUN: run_id, **({TraceMetadataKey.MODEL_ID: model_id} if model_id else {})}
    for place, answer in enumerate(answers):
        number = uuid.uuid4()
        trace_id, start = f"tr-{number.hex}", now - place
        source = AssessmentSource(*(("LLM_JUDGE", answer.judge) if answer.judge else ("CODE", "robust_eval")))
        verdict = Feedback("correct", answer.correct, source=source, trace_id=trace_id, rationale=answer.reason)
        is_reply = answer.condition["outcome"] not in NO_REPLY
        condition = {name: value for name, value in answer.condition.items() if name not in ("question_id", "outcome")}
        asked_as = f" [{', '.join(map(' '.join, condition.items()))}]"  # MLflow pairs the traces of two runs by it
        info = TraceInfo(
            trace_id=trace_id,
            trace_location=TraceLocation.from_experiment_id(experiment_id),
            request_time=start,
            state=TraceState.OK if is_reply else TraceState.ERROR,
            request_preview=" ".join(answer.question.values())[: PREVIEW - len(asked_as)] + asked_as,
            response_preview=answer.reply[:PREVIEW],
            trace_metadata=metadata,
            tags={**answer.condition, TraceTagKey.TRACE_NAME: answer.condition["sampler"]},
            assessments=[] if answer.correct is None else [verdict],
        )
        tracing.start_trace(info)
        attributes = {
            SpanAttributeKey.REQUEST_ID: trace_id,
            SpanAttributeKey.SPAN_TYPE: SpanType.LLM,
            SpanAttributeKey.INPUTS: dict(answer.question),
            SpanAttributeKey.OUTPUTS: answer.reply,
            **answer.condition,
        }
        span = {
            "name": answer.condition["sampler"],
            "trace_id": base64.b64encode(number.bytes).decode(),
            "span_id": base64.b64encode(number.bytes[:8]).decode(),
            "parent_span_id": "",
            "start_time_unix_nano": start * 10**6,
            "end_time_unix_nano": start * 10**6,
            "attributes": {name: json.dumps(value) for name, value in attributes.items()},
            "status": {"code": "STATUS_CODE_OK" if is_reply else "STATUS_CODE_ERROR"},
        }
        spans.append(Span.from_dict(span))
    tracing.log_spans(experiment_id, spans)

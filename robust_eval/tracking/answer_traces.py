"""Graded answers as traces of MLflow, with their verdicts as assessments."""

import base64
import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from robust_eval.answer import NO_REPLY
from robust_eval.tracking.base import TracedAnswer

PREVIEW = 1000
"""Maximum characters of a question and a reply in MLflow's list of traces."""


def record_traces(
    client: Any, experiment_id: str, run_id: str, model_id: str | None, answers: Sequence[TracedAnswer]
) -> None:
    """Record each answer of a run as a trace, the first on top of MLflow's list.

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

"""Everything in this process, on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from robust_eval.answer import CURVES, SCHEMA, AnswerLog, Answers, answer_table
from robust_eval.model.base import LanguageModel, Reply, Request
from robust_eval.progress import progress


@dataclass
class Local:
    """Requests go to the model one block after the other."""

    threads: int | None = None
    """CPU threads of torch; null: as many as are fastest on this machine, measured once. Set it when several runs share
    a machine."""

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")

    def prepare(self) -> None:
        """Set what must be set before a model is loaded."""
        import torch

        from robust_eval.engine.threads import fastest_threads

        torch.set_num_threads(self.threads or fastest_threads())

    def run(self, model: LanguageModel, requests: Sequence[Request], log: AnswerLog, stage: str) -> Answers:
        """The answers to all requests, in the order of the requests; each is in the log as soon as it is there."""
        place = {(request.question_id, request.rewrite): index for index, request in enumerate(requests)}
        tables = [SCHEMA.empty_table()] * len(requests)
        curves = [CURVES.empty_table()] * len(requests)
        with progress(stage, total=len(requests), unit="questions") as advance:
            for reply in model.complete(requests):
                index = place[reply.request.question_id, reply.request.rewrite]
                tables[index] = answers_of(reply)
                curves[index] = curve_of(reply)
                log.append(tables[index])
                advance(1)
        return Answers(
            pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks(),
            pa.concat_tables([CURVES.empty_table(), *curves]).combine_chunks(),
        )


def answers_of(reply: Reply) -> pa.Table:
    """The completions of one request as rows of the answer table, not yet graded."""
    return answer_table(
        {
            "question_id": reply.request.question_id,
            "rewrite": reply.request.rewrite,
            "temperature": completion.temperature,
            "trial": completion.trial,
            "text": completion.text,
            "outcome": "ok" if completion.text else "empty",
            "weight": completion.weight,
            "token_ids": completion.token_ids,
            "token_logprobs": completion.token_logprobs,
            "sampling_logprobs": completion.sampling_logprobs,
            "top_logprobs": completion.top_logprobs,
            "answer_tokens": completion.answer_tokens,
            "finish_reason": completion.finish_reason,
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": len(completion.token_ids),
        }
        for completion in reply.completions
    )


def curve_of(reply: Reply) -> pa.Table:
    """The accuracy curve of one request as rows of a table of curves; none where it has no curve."""
    if reply.curve is None:
        return CURVES.empty_table()
    columns = {name: getattr(reply.curve, name) for name in CURVES.names[3:]}
    rows = len(reply.curve.temperatures)
    return pa.table(
        {
            "question_id": [reply.request.question_id] * rows,
            "rewrite": [reply.request.rewrite] * rows,
            "temperature": reply.curve.temperatures,
            **columns,
        },
        schema=CURVES,
    )

"""Everything in this process, on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from robust_eval.answer import SCHEMA, AnswerLog, answer_table
from robust_eval.model.base import Completion, LanguageModel, Request
from robust_eval.progress import progress


@dataclass
class Local:
    """Requests go to the model one block after the other."""

    threads: int | None = None
    """CPU threads of torch; null: its own choice (the physical cores). Set it when several runs share a machine."""

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")

    def prepare(self) -> None:
        """Set what must be set before a model is loaded."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)

    def run(self, model: LanguageModel, requests: Sequence[Request], log: AnswerLog, stage: str) -> pa.Table:
        """The answers to all requests, in the order of the requests; each is in the log as soon as it is there."""
        place = {(request.question_id, request.rewrite): index for index, request in enumerate(requests)}
        tables: list[pa.Table] = [SCHEMA.empty_table()] * len(requests)
        with progress(stage, total=len(requests), unit="questions") as advance:
            for request, completions in model.complete(requests):
                table = answers_of(request, completions)
                log.append(table)
                tables[place[request.question_id, request.rewrite]] = table
                advance(1)
        return pa.concat_tables(tables).combine_chunks() if tables else SCHEMA.empty_table()


def answers_of(request: Request, completions: Sequence[Completion]) -> pa.Table:
    """Completions of one request as rows of the answer table, not yet graded."""
    return answer_table(
        {
            "question_id": request.question_id,
            "rewrite": request.rewrite,
            "temperature": completion.temperature,
            "trial": completion.trial,
            "text": completion.text,
            "outcome": "ok" if completion.text else "empty",
            "weight": 1 / request.trials,
            "token_ids": completion.token_ids,
            "token_logprobs": completion.token_logprobs,
            "sampling_logprobs": completion.sampling_logprobs,
            "top_logprobs": completion.top_logprobs,
            "answer_tokens": completion.answer_tokens,
            "finish_reason": completion.finish_reason,
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": len(completion.token_ids),
        }
        for completion in completions
    )

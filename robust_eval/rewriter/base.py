"""Protocol of rewriters."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from robust_eval.answer import SCHEMA
from robust_eval.model.base import Temperatures
from robust_eval.model.model_config import ModelConfig
from robust_eval.question import Question
from robust_eval.store.stored_model import StoredModel

MODEL_REWRITES = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),  # from 0
        pa.field("text", pa.string(), nullable=False),
        pa.field("fate", pa.string(), nullable=False),  # one of FATES
        pa.field("cosine", pa.float64()),  # to the question; null if not compared
        pa.field("drifted", pa.bool_()),  # the cosine is below the threshold
    ]
)
"""Table of the rewrites by a model, and the fate of each."""
FATES = {
    "kept": "kept",
    "echo": "the same as the question",
    "duplicate": "repeated",
    "no_question": "not a question",
    "cut": "truncated",
    "drifted": "changed in meaning",
    "surplus": "beyond the requested number",
}
"""Fates of a rewrite, with their names in words."""


class Rewritten(NamedTuple):
    """Questions with their rewrites, the rewrites by a model (:data:`MODEL_REWRITES`), and its replies (answers)."""

    questions: list[Question]
    model_rewrites: pa.Table = MODEL_REWRITES.empty_table()
    replies: pa.Table = SCHEMA.empty_table()


class Rewriter(Protocol):
    """Protocol of rewriters, the sources of rewrites: dataclasses whose fields are their configuration."""

    @property
    def model(self) -> ModelConfig | None:
        """Settings of the rewriter's model; None for the measured model, or without any."""

    @property
    def asks(self) -> bool:
        """True if the rewriter asks a model."""

    def within(self, takes: Callable[[float], Temperatures]) -> "Rewriter":
        """Return the rewriter within a model's temperatures, which ``takes`` returns up to a highest one."""

    def rewrite(self, questions: Sequence[Question], model: StoredModel, seed: int) -> Rewritten:
        """Return questions with the rewriter's rewrites, perhaps by the ``model``, and their contexts and choices."""

    def expected(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions with texts as long as the missing rewrites, for the plan."""

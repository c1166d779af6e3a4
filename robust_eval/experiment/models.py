"""Models of a run: the measured one, the writer of rewrites, and the judge."""

from collections.abc import Callable, Mapping
from typing import Any

from robust_eval.aggregator.base import Aggregator
from robust_eval.engine.base import Engine
from robust_eval.grader.base import Grader
from robust_eval.model.model_config import ModelConfig
from robust_eval.rewriter.base import Rewriter
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import Entries
from robust_eval.store.stored_model import StoredModel


class Models:
    """The ``measured`` model, the ``writer`` of rewrites and the ``judge`` of replies, which may be the same.

    All use the store. ``begin`` is called before the first request to one of them.
    """

    def __init__(
        self,
        model: ModelConfig,
        rewriter: Rewriter,
        grader: Grader,
        engine: Engine,
        entries: Entries,
        watch: Stopwatch,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        self.measured = StoredModel(model, engine, entries, watch, begin=begin)

        def stored(other: ModelConfig | None) -> StoredModel:
            if other is None or other == model:
                return self.measured
            return StoredModel(other, engine, entries, watch, begin=begin)

        self.writer, self.judge = stored(rewriter.model), stored(grader.judge_config)
        self._asked = self._found = 0
        self._writer: dict[str, Any] = {}
        self._served: dict[str, Mapping[str, set[str]]] = {}

    def with_judge(
        self, grader: Grader, aggregator: Aggregator, seed: int, cached_only: bool = False
    ) -> tuple[Grader, Aggregator]:
        """Return the grader and the aggregator with their judge, or with a cache-only judge."""
        grader = grader.with_model(self.judge.cached_only() if cached_only else self.judge, seed)
        return grader, aggregator.with_judge(grader)

    def release_writer(self) -> None:
        """Drop the writer after the last rewrite, to free its memory; its description stays."""
        if self.writer is not self.measured:
            self._asked, self._found = self.writer.asked, self.writer.found
            self._writer = _description(self.writer, "rewriter.")
            self._served = {"rewriter.": self.writer.served}
            self.writer = self.measured

    @property
    def asked(self) -> int:
        """Number of prompts sent to the models."""
        return self._asked + self.measured.asked + (self.judge.asked if self.judge is not self.measured else 0)

    @property
    def found(self) -> int:
        """Number of cache hits."""
        return self._found + self.measured.found + (self.judge.found if self.judge is not self.measured else 0)

    def served(self) -> dict[str, Mapping[str, set[str]]]:
        """Return the services' names of models and builds, by the prefix of each model's settings and by column."""
        judge = {} if self.judge is self.measured else {"grader.": self.judge.served}
        return {"": self.measured.served} | self._served | judge

    def description(self) -> dict[str, Any]:
        """Return the description of each model."""
        judge = {} if self.judge is self.measured else _description(self.judge, "grader.")
        return self._writer | judge | _description(self.measured, "")


def _description(model: StoredModel, prefix: str) -> dict[str, Any]:
    loaded = {f"loaded.{prefix}{name}": value for name, value in model.description().items()}
    return loaded | {f"identity.{prefix}{name}": value for name, value in model.identity.items()}

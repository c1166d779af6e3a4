"""Models of a run: the measured one, the writer of rewrites, and the judge."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from robust_eval.aggregator.base import Aggregator
from robust_eval.engine.base import Engine
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.model.model_config import ModelConfig
from robust_eval.rewriter.base import Rewriter
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import Entries
from robust_eval.store.stored_model import StoredModel


class Models:
    """Models of a run: ``measured``, the ``writer`` of rewrites and the ``judge`` of replies, which may be the same.

    All use the store. ``start_run`` is called before the first request to one of them.
    """

    def __init__(
        self,
        model: ModelConfig,
        rewriter: Rewriter,
        reply_grader: ReplyGrader,
        engine: Engine,
        entries: Entries,
        watch: Stopwatch,
        start_run: Callable[[], object] = lambda: None,
    ) -> None:
        def stored(other: ModelConfig | None) -> StoredModel:
            if other is None or other == model:
                return self.measured
            return StoredModel(other, engine, entries, watch, start_run=start_run)

        self.measured = StoredModel(model, engine, entries, watch, start_run=start_run)
        self.writer, self.judge = stored(rewriter.model), stored(reply_grader.grader.judge_config)
        self._reply_grader = reply_grader
        self._prompts_asked = self._cache_hits = 0
        self._writer: dict[str, Any] = {}
        self._writer_served: dict[str, Mapping[str, set[str]]] = {}

    def with_judge(
        self, aggregator: Aggregator, seed: int, cached_only: bool = False
    ) -> tuple[ReplyGrader, Aggregator]:
        """Return the grader of replies and the aggregator with the judge of these models, or a cache-only judge."""
        grader = self._reply_grader.grader.with_judge(self.judge.cached_only() if cached_only else self.judge, seed)
        return replace(self._reply_grader, grader=grader), aggregator.with_judge(grader)

    def release_writer(self) -> None:
        """Drop the writer after the last rewrite, to free its memory; its description stays."""
        if self.writer is not self.measured:
            self._prompts_asked, self._cache_hits = self.writer.prompts_asked, self.writer.cache_hits
            self._writer = _description(self.writer, "rewriter.")
            self._writer_served = {"rewriter.": self.writer.served}
            self.writer = self.measured

    @property
    def prompts_asked(self) -> int:
        """Number of prompts sent to the models of the run."""
        return self._prompts_asked + sum(model.prompts_asked for model in self._by_prefix.values())

    @property
    def cache_hits(self) -> int:
        """Number of the run's prompts with an answer in the store."""
        return self._cache_hits + sum(model.cache_hits for model in self._by_prefix.values())

    @property
    def _by_prefix(self) -> dict[str, StoredModel]:
        """Models of the run, the measured one and a separate judge, by the prefix of their settings."""
        return {"": self.measured} | ({} if self.judge is self.measured else {"grader.": self.judge})

    def served(self) -> dict[str, Mapping[str, set[str]]]:
        """Return the services' names of models and builds, by the prefix of each model's settings and by column."""
        return (
            {"": self.measured.served}
            | self._writer_served
            | {name: each.served for name, each in self._by_prefix.items()}
        )

    def description(self) -> dict[str, Any]:
        """Return the description of each model of the run."""
        described = dict(self._writer)
        for prefix, model in reversed(self._by_prefix.items()):
            described |= _description(model, prefix)
        return described


def _description(model: StoredModel, prefix: str) -> dict[str, Any]:
    loaded = {f"loaded.{prefix}{name}": value for name, value in model.description().items()}
    return loaded | {f"identity.{prefix}{name}": value for name, value in model.identity.items()}

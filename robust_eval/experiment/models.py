"""Models of a run: the measured one, the writer of rewrites, and the judge."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from robust_eval.aggregator.base import Aggregator
from robust_eval.config.config import Config
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.runtime.process import Stopwatch
from robust_eval.store.base import Entries
from robust_eval.store.stored_model import StoredModel


class Models:
    """Models of a run: ``measured``, the ``writer`` of rewrites and the ``judge`` of replies. Equal ones are the same.

    All use the store. ``start_run`` is called before the first request to one of them.
    """

    def __init__(
        self, config: Config, entries: Entries, watch: Stopwatch, start_run: Callable[[], object] = lambda: None
    ) -> None:
        self._config = config
        configs = [each or config.model for each in (config.model, config.rewriter.model, config.grader.judge_config)]
        first_equal = [configs.index(each) for each in configs]
        self._distinct = {
            number: StoredModel(configs[number], config.engine, entries, watch, start_run=start_run)
            for number in set(first_equal)
        }
        self.measured, self.writer, self.judge = (self._distinct[number] for number in first_equal)

    def with_judge(self, cached_only: bool = False) -> tuple[ReplyGrader, Aggregator]:
        """Return the grader of replies and the aggregator with the judge of these models, or a cache-only judge."""
        config, judge = self._config, self.judge.cached_only() if cached_only else self.judge
        grader = config.grader.with_judge(judge, config.seed)
        return replace(config.reply_grader, grader=grader), config.aggregator.with_judge(grader)

    def release_writer(self) -> None:
        """Free the memory of a writer that has no other part in the run, after the last rewrite."""
        if self.writer not in (self.measured, self.judge):
            self.writer.release()

    @property
    def prompts_asked(self) -> int:
        """Number of prompts sent to the models of the run."""
        return sum(model.prompts_asked for model in self._distinct.values())

    @property
    def cache_hits(self) -> int:
        """Number of the run's prompts with an answer in the store."""
        return sum(model.cache_hits for model in self._distinct.values())

    @property
    def _by_prefix(self) -> dict[str, StoredModel]:
        """Models of the run, the measured one and a separate writer and judge, by the prefix of their settings."""
        others = {"rewriter.": self.writer, "grader.": self.judge}
        return {"": self.measured} | {name: each for name, each in others.items() if each is not self.measured}

    def served(self) -> dict[str, Mapping[str, set[str]]]:
        """Return the services' names of models and builds, by the prefix of each model's settings and by column."""
        return {prefix: model.served for prefix, model in self._by_prefix.items()}

    def description(self) -> dict[str, Any]:
        """Return the description of each model of the run, the measured one last."""
        described: dict[str, Any] = {}
        for prefix, model in sorted(self._by_prefix.items(), reverse=True):
            described |= {f"loaded.{prefix}{name}": value for name, value in model.description().items()}
            described |= {f"identity.{prefix}{name}": value for name, value in model.identity.items()}
        return described

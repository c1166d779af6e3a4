"""Configuration of a run, as objects."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import MISSING

from robust_eval.aggregator.base import Aggregator
from robust_eval.dataset.selection import Selection
from robust_eval.engine.base import Engine
from robust_eval.grader.base import Grader
from robust_eval.grader.reply_grader import ReplyGrader
from robust_eval.metric.score import Metric
from robust_eval.model.model_config import ModelConfig
from robust_eval.reader.base import Reader
from robust_eval.reader.reply import ByPromptStyle
from robust_eval.rewriter.base import Rewriter
from robust_eval.sampler.base import Sampler
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.store.base import Store
from robust_eval.tracking.base import Tracking


@dataclass
class Paths:
    """Folders for the results of a run."""

    mlruns: str = MISSING
    """Folder of the MLflow database, its artifacts, and the run folders."""


@dataclass(kw_only=True)
class Config:
    """Configuration of a run. ``sampler`` and ``metric`` map the names of the chosen options to their settings."""

    seed: int
    """Seed of every random number: the same seed gives the same answers."""
    model: ModelConfig
    dataset: Selection
    sampler: dict[str, Sampler]
    """Empty where the answers are ``recorded``."""
    recorded: RecordedAnswers | None = None
    """The file of answers, with sampler=recorded."""
    metric: dict[str, Metric]
    rewriter: Rewriter
    reader: Reader | ByPromptStyle = field(default_factory=ByPromptStyle)
    grader: Grader
    aggregator: Aggregator
    engine: Engine
    store: Store
    tracking: Tracking
    paths: Paths = field(default_factory=Paths)
    target_half_width: Mapping[str, float] = field(default_factory=dict)
    """Target half-widths of the 95 % intervals of metrics: questions are sampled in seeded order until every
    target is met. Empty: all questions are sampled."""
    question_types: str | None = None
    """Folder of a classifier for questions without a type (robust_eval/question_type/)."""
    labels: str | None = None
    """File of human labels of answers, which correct the metrics (docs/judges.md); default: labels.parquet in the run
    folder, if it exists."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    """Samplers and metrics that a profile leaves out, such as ``metric.order``, and the reason of each."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")
        for name, width in self.target_half_width.items():
            if isinstance(width, bool) or not isinstance(width, int | float) or not 0 < width < math.inf:
                raise ValueError(f"target_half_width={{{name}: {width}}}: a half-width must be a finite number above 0")
        if self.question_types is not None and not Path(self.question_types).is_dir():
            raise ValueError(
                f"question_types={self.question_types}: there is no such folder; name an output folder of "
                "robust-eval train-question-types"
            )
        if self.labels is not None and not Path(self.labels).is_file():
            raise ValueError(f"labels={self.labels}: there is no such file; name the labels.parquet of a run")

    def in_needed_precision(self) -> "Config":
        """Return the configuration with its model in the precision that a sampler of probabilities needs."""
        is_exact = any(sampler.estimator == "exact" for sampler in self.sampler.values())
        return replace(self, model=self.model.for_probabilities()) if is_exact else self

    @property
    def reply_grader(self) -> ReplyGrader:
        """Reader and grader of the model's replies.

        If the reader needs only the first line, a reply ends there, except in a conversation with a server, whose
        replies are stored complete for other readers. Recorded answers of a run whose replies did not end with their
        first line are read as those of a conversation, whatever its prompts were.
        """
        metadata = None if self.recorded is None else self.recorded.metadata
        conversation = self.model.service_limits().chat if metadata is None else not metadata.first_lines
        reader, served = self.reader.of(conversation), self.model.remote
        return ReplyGrader(reader, self.grader, not reader.whole_reply and not (conversation and served), served)

"""The whole configuration of a run, as the objects that do the work."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """Folder of the MLflow database, its artifacts, and the folders of the runs."""


@dataclass(kw_only=True)
class Config:
    """A whole run. ``sampler`` and ``metric`` map the names of the chosen options to their settings."""

    seed: int
    """Of every random number: the same seed gives the same answers."""
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
    """Metrics with the half-width that their 95 % intervals shall have: questions are taken in an order of the seed
    until they have it. Empty: all questions are."""
    question_types: str | None = None
    """Folder of a classifier that gives a type to questions that have none (robust_eval/question_type/)."""
    labels: str | None = None
    """File of labels that people gave to answers of the run, which correct its metrics (docs/judges.md); without one
    it is labels.parquet in the folder of the run, where that is there."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")
        for name, width in self.target_half_width.items():
            if isinstance(width, bool) or not isinstance(width, int | float) or not 0 < width < math.inf:
                raise ValueError(
                    f"target_half_width={{{name}: {width}}}: the half-width of an interval must be a number above 0"
                )
        if self.question_types is not None and not Path(self.question_types).is_dir():
            raise ValueError(
                f"question_types={self.question_types}: there is no such folder; it must be one where "
                "robust-eval train-question-types saved a classifier"
            )
        if self.labels is not None and not Path(self.labels).is_file():
            raise ValueError(f"labels={self.labels}: there is no such file; it must be labels.parquet of a run")

    @property
    def judge(self) -> ReplyGrader:
        """Reader and grader of the model's replies.

        If the reader reads only the first line, a reply ends there, except in a conversation with a server: that is
        stored whole, so that another reader can read it later without a new request. Recorded answers of a run have
        the prompt style of that run.
        """
        asked = None if self.recorded is None else self.recorded.metadata
        chat = self.model.service_limits().chat if asked is None else not asked.first_lines
        reader = self.reader.of(chat)
        served = self.model.remote
        return ReplyGrader(reader, self.grader, not reader.whole_reply and not (chat and served), served)

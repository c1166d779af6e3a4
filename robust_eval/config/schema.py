"""The configuration: a schema for every group, and the objects that a composed configuration describes.

The classes that do the work are their own schemas: the fields of a dataclass are its configuration, and its
``__post_init__`` refuses values that make no sense. To add a kind of model, data set, sampler or metric: write the
class, name it in :data:`SCHEMAS`, and give it a file under ``conf/``.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, OmegaConf

from robust_eval.aggregator.clusters import Clusters
from robust_eval.aggregator.text import EqualText
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.dataset.published import Published
from robust_eval.dataset.table import Table
from robust_eval.engine.local import Local
from robust_eval.engine.ray.engine import Ray
from robust_eval.grader.cosine import Cosine
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.grader.references import References
from robust_eval.metric.answer_agreement import AnswerAgreement
from robust_eval.metric.certainty import AnswerCertainty
from robust_eval.metric.factual_robustness import FactualRobustness
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.recorded_model import RecordedModel
from robust_eval.model.served.openai import OpenAI
from robust_eval.record.tracking import Mlflow, Untracked
from robust_eval.rewriter.llm import Llm
from robust_eval.rewriter.recorded_rewrites import Recorded
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.perturbation import Perturbation
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.repetition import Repetition
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.store.base import NoStore
from robust_eval.store.parquet import ParquetStore
from robust_eval.store.sqlite import SqliteStore

PROJECT = Path(__file__).resolve().parents[2]
"""The folder that holds run.py and conf/."""
CONF = PROJECT / "conf"


@dataclass
class Paths:
    """Where a run leaves what it makes."""

    mlruns: str = MISSING
    """Folder of the MLflow database, its artifacts, and the folders of the runs."""


@dataclass
class Config:
    """A whole run. ``sampler`` and ``metric`` map the names of the chosen options to their settings."""

    seed: int = MISSING
    """Of every random number: the same seed gives the same answers."""
    model: Any = MISSING
    dataset: Any = MISSING
    sampler: dict[str, Any] = field(default_factory=dict)
    metric: dict[str, Any] = field(default_factory=dict)
    rewriter: Any = MISSING
    grader: Any = MISSING
    aggregator: Any = MISSING
    engine: Any = MISSING
    store: Any = MISSING
    tracking: Any = MISSING
    paths: Paths = field(default_factory=Paths)
    question_types: str | None = None
    """Folder of a classifier that gives a type to questions that have none (robust_eval/question_type/)."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")
        if self.question_types is not None and not Path(self.question_types).is_dir():
            raise ValueError(
                f"question_types={self.question_types}: there is no such folder; it must be one where python -m "
                "robust_eval.cli.train_question_types saved a classifier"
            )


SCHEMAS: dict[str, dict[str, type]] = {
    "model": {"transformers": Transformers, "openai": OpenAI, "recorded": RecordedModel},
    "dataset": {"jsonl": JsonLines, "published": Published, "local": Table},
    "rewriter": {"recorded": Recorded, "llm": Llm},
    "sampler": {
        "temperature_sweep": TemperatureSweep,
        "exact": Exact,
        "perturbation": Perturbation,
        "repetition": Repetition,
        "recorded": RecordedAnswers,
    },
    "metric": {"frs": FactualRobustness, "certainty": AnswerCertainty, "agreement": AnswerAgreement},
    "grader": {"matching": Matching, "levenshtein": Levenshtein, "cosine": Cosine, "references": References},
    "aggregator": {"text": EqualText, "clusters": Clusters},
    "engine": {"local": Local, "ray": Ray},
    "store": {"sqlite": SqliteStore, "parquet": ParquetStore, "none": NoStore},
    "tracking": {"mlflow": Mlflow, "none": Untracked},
}


def register() -> None:
    """Make the schemas known to Hydra: ``schema`` for the whole, ``schema/GROUP/NAME`` for the parts."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for group, schemas in SCHEMAS.items():
        for name, schema in schemas.items():
            store.store(group=f"schema/{group}", name=name, node=schema)


def own_device(devices: int) -> str:
    """The number of the GPU that a job of a sweep has to itself, of so many that the jobs take in turns."""
    number: int = HydraConfig.get().job.num
    return str(number % devices)


OmegaConf.register_new_resolver("here", lambda: str(Path.cwd()), replace=True)  # also where only a job is run
OmegaConf.register_new_resolver("own_device", own_device, replace=True)

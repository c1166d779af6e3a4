"""The schemas of the configuration: one for the whole, and one for each option of a group.

The classes that do the work are their own schemas: the fields of a dataclass are its configuration, and its
``__post_init__`` refuses values that make no sense. A class that belongs to this package stands in :data:`SCHEMAS` and
has a file under ``conf/``; one of a package or script of one's own is registered (docs/extend.md) and needs no file.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, OmegaConf

from robust_eval.aggregator.base import Aggregator, EqualText
from robust_eval.aggregator.clusters import Clusters
from robust_eval.aggregator.entailment import Entailment
from robust_eval.config.config import Paths
from robust_eval.config.plugins import load_plugins
from robust_eval.dataset.base import Dataset
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.dataset.own_table import OwnTable
from robust_eval.dataset.published import Published
from robust_eval.engine.base import Engine
from robust_eval.engine.local import Local
from robust_eval.engine.ray.engine import Ray
from robust_eval.error import UserError
from robust_eval.grader.base import Grader
from robust_eval.grader.cosine import Cosine, References
from robust_eval.grader.judge_model import JudgeModel
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.certainty_metric import AnswerCertainty
from robust_eval.metric.challenge_metric import PushbackRobustness
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.order_metric import ChoiceOrder
from robust_eval.metric.score import Metric
from robust_eval.metric.thinking_metric import ReasoningBudget
from robust_eval.model.config import InMemoryModel, ModelConfig, RecordedModel
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.served.inspect_ai import InspectAI
from robust_eval.model.served.openai import OpenAI
from robust_eval.reader.reply import ByPromptStyle, FirstLineReader, ReplyReader
from robust_eval.rewriter.base import Rewriter
from robust_eval.rewriter.llm import Llm
from robust_eval.rewriter.recorded_rewrites import RecordedRewrites
from robust_eval.runtime.registry import REGISTRY
from robust_eval.sampler.base import Sampler
from robust_eval.sampler.challenge import Challenge
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.perturbation import ChoiceOrders, Perturbation
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.sampler.repetition import Repetition
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.sampler.thinking import Thinking
from robust_eval.store.base import NoStore, Store
from robust_eval.store.parquet import ParquetStore
from robust_eval.store.sqlite import SqliteStore
from robust_eval.tracking.base import Tracking, Untracked
from robust_eval.tracking.mlflow_tracker import Mlflow
from robust_eval.tracking.settings import SEVERAL

PROJECT = Path(__file__).resolve().parents[2]
"""The folder that holds the package; of a clone it holds run.py and conf/ as well."""
CONF = next(
    folder for folder in (PROJECT / "robust_eval" / "conf", PROJECT / "conf") if (folder / "config.yaml").is_file()
)
"""The files of settings: inside the package where it is installed, at the top of a clone."""

_MODELS: dict[str, type[ModelConfig]] = {
    "transformers": Transformers,
    "openai": OpenAI,
    "inspect": InspectAI,
    "recorded": RecordedModel,
    "given": InMemoryModel,
}
_DATASETS: dict[str, type[Dataset]] = {"jsonl": JsonLines, "published": Published, "local": OwnTable}
_REWRITERS: dict[str, type[Rewriter]] = {"recorded": RecordedRewrites, "llm": Llm}
_SAMPLERS: dict[str, type[Sampler] | type[RecordedAnswers]] = {
    "temperature_sweep": TemperatureSweep,
    "exact": Exact,
    "perturbation": Perturbation,
    "order": ChoiceOrders,
    "challenge": Challenge,
    "thinking": Thinking,
    "repetition": Repetition,
    "recorded": RecordedAnswers,
}
_METRICS: dict[str, type[Metric]] = {
    "frs": FactualRobustness,
    "certainty": AnswerCertainty,
    "agreement": AnswerAgreement,
    "order": ChoiceOrder,
    "challenge": PushbackRobustness,
    "thinking": ReasoningBudget,
}
_GRADERS: dict[str, type[Grader]] = {
    "matching": Matching,
    "levenshtein": Levenshtein,
    "cosine": Cosine,
    "references": References,
    "judge": JudgeModel,
}
_READERS = {"by_prompt_style": ByPromptStyle, "first_line": FirstLineReader, "reply": ReplyReader}
_AGGREGATORS: dict[str, type[Aggregator]] = {"text": EqualText, "clusters": Clusters, "entailment": Entailment}
_ENGINES: dict[str, type[Engine]] = {"local": Local, "ray": Ray}
_STORES: dict[str, type[Store]] = {"sqlite": SqliteStore, "parquet": ParquetStore, "none": NoStore}
_TRACKING: dict[str, type[Tracking]] = {"mlflow": Mlflow, "none": Untracked}

SCHEMAS: dict[str, dict[str, Any]] = {
    "model": _MODELS,
    "dataset": _DATASETS,
    "rewriter": _REWRITERS,
    "sampler": _SAMPLERS,
    "metric": _METRICS,
    "reader": _READERS,
    "grader": _GRADERS,
    "aggregator": _AGGREGATORS,
    "engine": _ENGINES,
    "store": _STORES,
    "tracking": _TRACKING,
}


_OWN = {group: {*schemas, *(file.stem for file in (CONF / group).glob("*.yaml"))} for group, schemas in SCHEMAS.items()}
"""Names of options that are taken."""


@dataclass
class Schema:
    """Schema of a whole run for Hydra, which has no protocols; see :class:`robust_eval.config.config.Config`."""

    seed: int = MISSING
    model: Any = MISSING
    dataset: Any = MISSING
    sampler: dict[str, Any] = field(default_factory=dict)
    metric: dict[str, Any] = field(default_factory=dict)
    rewriter: Any = MISSING
    reader: Any = MISSING
    grader: Any = MISSING
    aggregator: Any = MISSING
    engine: Any = MISSING
    store: Any = MISSING
    tracking: Any = MISSING
    paths: Paths = field(default_factory=Paths)
    until: Any = None
    question_types: str | None = None
    labels: str | None = None


def register() -> None:
    """Make the schemas known to Hydra: ``schema`` for the whole, ``schema/GROUP/NAME`` for the parts.

    A registered class is an option besides, ``GROUP=NAME``; a file of settings of the same name goes before it.
    Raises UserError where a registered name is one of this package.
    """
    load_plugins()
    _store(None, "schema", Schema)
    _store("model", "given", InMemoryModel)
    for group, parts in REGISTRY.items():
        for name, part in parts.items():
            if name in _OWN[group]:
                raise UserError(f"{group}={name} is an option of robust_eval: call {part.__qualname__} something else")
            SCHEMAS[group][name] = part
            _store(group, name, part, f"{group}.{name}" if group in SEVERAL else None)
    for group, schemas in SCHEMAS.items():
        for name, schema in schemas.items():
            _store(f"schema/{group}", name, schema)


_stored: dict[tuple[str | None, str], type] = {}
"""Registered schemas: registering all of it again takes a third as long as composing a configuration."""


def _store(group: str | None, name: str, schema: type, package: str | None = None) -> None:
    if _stored.get((group, name)) is not schema:
        ConfigStore.instance().store(group=group, name=name, node=schema, package=package)
        _stored[group, name] = schema


def own_device(devices: int) -> str:
    """Return the number of the GPU of a job of a sweep, whose jobs take so many ``devices`` in turns."""
    number: int = HydraConfig.get().job.num
    return str(number % devices)


OmegaConf.register_new_resolver("here", lambda: str(Path.cwd()), replace=True)  # also where only a job is run
OmegaConf.register_new_resolver("own_device", own_device, replace=True)

"""Schemas of the configuration: one for a run, and one for each option of a group.

Classes are their own schemas: the fields of a dataclass are its settings, and its ``__post_init__`` refuses invalid
values. A class of this package is in :data:`SCHEMAS` and has a file under ``conf/``; a class of another package or
script is registered (docs/extend.md) and needs no file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig, OmegaConf

from robust_eval.aggregator.base import Aggregator, EqualText
from robust_eval.aggregator.clusters import Clusters
from robust_eval.aggregator.entailment import Entailment
from robust_eval.config.config import Paths
from robust_eval.config.groups import CONF
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.dataset.own_table import OwnTable
from robust_eval.dataset.published import Published
from robust_eval.dataset.selection import Selection
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
from robust_eval.metric.reliability_metric import TrialReliability
from robust_eval.metric.score import Metric
from robust_eval.metric.thinking_metric import ReasoningBudget
from robust_eval.metric.uncertainty_metric import ErrorDetection
from robust_eval.metric.variance_metric import VarianceDecomposition
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.model_config import InMemoryModel, ModelConfig, RecordedModel
from robust_eval.model.served.inspect_ai import InspectAI
from robust_eval.model.served.openai import OpenAI
from robust_eval.reader.reply import ByPromptStyle, FirstLineReader, ReplyReader
from robust_eval.rewriter.base import Rewriter
from robust_eval.rewriter.llm import Llm
from robust_eval.rewriter.recorded_rewrites import RecordedRewrites
from robust_eval.runtime import registry
from robust_eval.runtime.registry import COMBINABLE_GROUPS, load_plugins
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
from robust_eval.tracking.base import Tracking
from robust_eval.tracking.mlflow_tracker import Mlflow

_MODELS: dict[str, type[ModelConfig]] = {
    "transformers": Transformers,
    "openai": OpenAI,
    "inspect": InspectAI,
    "recorded": RecordedModel,
    "given": InMemoryModel,
}
_DATASETS: dict[str, type[Selection]] = {"jsonl": JsonLines, "published": Published, "local": OwnTable}
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
    "uncertainty": ErrorDetection,
    "reliability": TrialReliability,
    "variance": VarianceDecomposition,
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
_TRACKING: dict[str, type[Tracking]] = {"mlflow": Mlflow, "none": Tracking}

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
"""Names of the options of this package."""


@dataclass
class Schema:
    """Schema of a run for Hydra, which does not support protocols; see :class:`robust_eval.config.config.Config`."""

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
    target_half_width: Any = None
    question_types: str | None = None
    labels: str | None = None


def register() -> None:
    """Register the schemas with Hydra: ``schema`` for a run, ``schema/GROUP/NAME`` for its parts.

    A registered class is also an option, ``GROUP=NAME``, unless a settings file has that name. Raises UserError if a
    registered name is that of a built-in option.
    """
    load_plugins()
    _store(None, "schema", Schema)
    _store("model", "given", InMemoryModel)
    for group, classes in registry.REGISTRY.items():
        for name, cls in classes.items():
            if name in _OWN[group]:
                raise UserError(f"{group}={name} is a built-in option: register {cls.__qualname__} under another name")
            SCHEMAS[group][name] = cls
            _store(group, name, cls, f"{group}.{name}" if group in COMBINABLE_GROUPS else None)
    for group, schemas in SCHEMAS.items():
        for name, schema in schemas.items():
            _store(f"schema/{group}", name, schema)


_stored: dict[tuple[str | None, str], type] = {}
"""Registered schemas: to register all again takes a third as long as to compose a configuration."""


def _store(group: str | None, name: str, schema: type, package: str | None = None) -> None:
    if _stored.get((group, name)) is not schema:
        ConfigStore.instance().store(group=group, name=name, node=schema, package=package)
        _stored[group, name] = schema


def own_device(devices: int) -> str:
    """Return the number of the GPU for a job of a sweep, whose jobs use ``devices`` GPUs in turn."""
    number: int = HydraConfig.get().job.num
    return str(number % devices)


OmegaConf.register_new_resolver("here", lambda: str(Path.cwd()), replace=True)  # also where only a job is run
OmegaConf.register_new_resolver("own_device", own_device, replace=True)


def repeatable(composed: DictConfig) -> str:
    """Return the text of a configuration file that Hydra composes to the same configuration (``repeat=FOLDER``)."""
    settings = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(settings, dict)
    return configuration_file(schemas_of(composed), {str(name): value for name, value in settings.items()})


def configuration_file(schemas: Iterable[tuple[str, str]], settings: Mapping[str, Any]) -> str:
    """Return the text of a configuration file that Hydra composes to these settings.

    The file names the ``schemas`` of its parts (path and name of each, outer ones first) and the folders of runs, and
    depends on no other file.
    """
    schema_entries = [f"/schema/{name}@{path}" for path, name in schemas]
    main = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    logging = [entry for entry in main["defaults"] if isinstance(entry, dict) and "override" in next(iter(entry))]
    head = {"defaults": ["schema", *schema_entries, "_self_", *logging]}
    return str(yaml.safe_dump({**head, **settings, "hydra": main["hydra"]}, sort_keys=False, allow_unicode=True))


def schemas_of(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each node with a schema of a group, and the schema's name; outer nodes first."""
    names = {schema: f"{group}/{name}" for group, schemas in SCHEMAS.items() for name, schema in schemas.items()}
    for key, child in node.items_ex(resolve=False):
        if isinstance(child, DictConfig):
            schema = OmegaConf.get_type(child)
            if schema in names:
                yield f"{path}{key!s}", names[schema]
            yield from schemas_of(child, f"{path}{key!s}.")

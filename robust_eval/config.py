"""The configuration: a schema for every group, and the objects that a composed configuration describes.

The classes that do the work are their own schemas: the fields of a dataclass are its configuration, and its
``__post_init__`` refuses values that make no sense. To add a kind of model, data set, sampler or metric: write the
class, name it in :data:`SCHEMAS`, and give it a file under ``conf/``.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

from robust_eval.aggregator.clusters import Clusters
from robust_eval.aggregator.text import EqualText
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.dataset.published import Published
from robust_eval.dataset.table import Table
from robust_eval.engine.local import Local
from robust_eval.engine.ray import Ray
from robust_eval.error import UserError, first_line
from robust_eval.grader.cosine import Cosine
from robust_eval.grader.levenshtein import Levenshtein
from robust_eval.grader.matching import Matching
from robust_eval.grader.references import References
from robust_eval.metric.answer_agreement import AnswerAgreement
from robust_eval.metric.certainty import AnswerCertainty
from robust_eval.metric.factual_robustness import FactualRobustness
from robust_eval.metric.source import sources
from robust_eval.model.openai import OpenAI
from robust_eval.model.recorded import RecordedModel
from robust_eval.model.transformers import Transformers
from robust_eval.parquet_store import ParquetStore
from robust_eval.rewriter.llm import Llm
from robust_eval.rewriter.recorded import Recorded
from robust_eval.run_folder import read_configuration
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.perturbation import Perturbation
from robust_eval.sampler.recorded import RecordedAnswers
from robust_eval.sampler.repetition import Repetition
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.sqlite_store import SqliteStore
from robust_eval.store import NoStore
from robust_eval.tracking import Mlflow, Untracked

PROJECT = Path(__file__).resolve().parents[1]
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
                "robust_eval.question_type.train saved a classifier"
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
SEVERAL = ("sampler", "metric")
"""Groups that take several options at once, each under its own name."""


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


def repeatable(composed: DictConfig) -> str:
    """The composed configuration as a file that Hydra composes to the same (``repeat=FOLDER``)."""
    settings = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(settings, dict)
    return configuration_file(_schemas(composed), {str(name): value for name, value in settings.items()})


def configuration_file(schemas: Iterable[tuple[str, str]], settings: Mapping[str, Any]) -> str:
    """A file that Hydra composes to these settings.

    It names the ``schemas`` of its parts (path and name of each, outer ones first), which are all that it takes from
    elsewhere, and where Hydra puts runs.
    """
    named = [f"/schema/{name}@{path}" for path, name in schemas]
    main = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))
    logging = [entry for entry in main["defaults"] if isinstance(entry, dict) and "override" in next(iter(entry))]
    head = {"defaults": ["schema", *named, "_self_", *logging]}
    return str(yaml.safe_dump({**head, **settings, "hydra": main["hydra"]}, sort_keys=False, allow_unicode=True))


def _schemas(node: DictConfig, path: str = "") -> Iterator[tuple[str, str]]:
    """The paths of the nodes that have a schema of a group, each with the name of that, outer ones first."""
    names = {schema: f"{group}/{name}" for group, schemas in SCHEMAS.items() for name, schema in schemas.items()}
    for key, child in node.items_ex(resolve=False):
        if isinstance(child, DictConfig):
            schema = OmegaConf.get_type(child)
            if schema in names:
                yield f"{path}{key!s}", names[schema]
            yield from _schemas(child, f"{path}{key!s}.")


def read_settings(file: Path) -> dict[str, Any]:
    """The settings in a file that :func:`repeatable` made, flat."""
    whole = read_configuration(file)
    return flat({name: value for name, value in whole.items() if name not in ("defaults", "hydra")})


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    if not isinstance(tree, Mapping):
        return {prefix.removesuffix("."): tree}
    return {key: value for name, child in tree.items() for key, value in flat(child, f"{prefix}{name}.").items()}


def to_config(composed: DictConfig) -> Config:
    """The composed configuration as objects that do the work; UserError names the setting that makes no sense."""
    _refuse_unknown(composed)
    names = [entry.name for entry in fields(Config)]
    try:
        nodes = {name: composed[name] for name in names if name not in SEVERAL}
    except OmegaConfBaseException as problem:
        raise UserError(first_line(problem)) from problem
    for group in SEVERAL:
        if not composed[group]:
            raise UserError(f"{group} must name at least one option")
        nodes |= {f"{group}.{name!s}": node for name, node in composed[group].items()}
    nodes = {path: OmegaConf.select(composed, path) for path, _ in reversed(list(_schemas(composed)))} | nodes
    for path, node in nodes.items():
        if isinstance(node, DictConfig):
            _instance(path, node)
        elif path not in ("seed", "question_types"):
            none = f", or {path}=none" if path in ("store", "tracking") else ""
            raise UserError(f"{path} must be one of its options, not {node}{none}: see conf/{path.split('.')[0]}/")
    config = _instance("", composed)
    assert isinstance(config, Config)
    asked = ",".join(config.sampler)
    if isinstance(config.rewriter, Llm) and not any(isinstance(s, Perturbation) for s in config.sampler.values()):
        raise UserError(
            f"rewriter=llm writes rewrites, which sampler={asked} does not ask: choose sampler=perturbation, or "
            "rewriter=recorded"
        )
    if isinstance(config.rewriter.model, RecordedModel):
        raise UserError("rewriter.model=recorded cannot be asked for rewrites: choose another model")
    recorded = [sampler for sampler in config.sampler.values() if isinstance(sampler, RecordedAnswers)]
    if recorded and len(config.sampler) > 1:
        raise UserError(f"sampler=recorded stands alone, because nothing is asked: it cannot be one of {asked}")
    if recorded:
        _check_recorded(config, recorded[0])
    else:
        _check_asked(config, asked)
    return config


def _check_asked(config: Config, asked: str) -> None:
    """UserError unless there is a model to ask, all prompts are the same, and a metric reads the answers of each."""
    if isinstance(config.model, RecordedModel):
        raise UserError(
            f"model=recorded cannot be asked, as sampler={asked} does: choose another model, or sampler=recorded "
            "sampler.file=…"
        )
    prompts = {name: sampler.prompts for name, sampler in config.sampler.items()}
    if len(set(prompts.values())) > 1:
        said = ", ".join(f"sampler.{name}.prompts={file}" for name, file in prompts.items())
        raise UserError(f"the samplers of a run ask with the same prompts, not {said}: set them alike")
    read = sources(config.metric, config.sampler)
    if unread := [name for name in config.sampler if name not in read.values()]:
        for metric in config.metric.values():
            if metric.axis == config.sampler[unread[0]].axis:  # it would read them if they had what it needs
                metric.check(config.sampler[unread[0]].temperatures, config.sampler[unread[0]].repetitions)
        readers = ", ".join(f"{metric} those of {name}" for metric, name in read.items())
        raise UserError(
            f"no metric reads the answers of sampler={unread[0]} (of the metrics, {readers}): leave it out, or add one "
            "that does"
        )


def _check_recorded(config: Config, sampler: RecordedAnswers) -> None:
    """UserError unless recorded answers are those of a recorded model, and have what the metrics read of them."""
    if not isinstance(config.model, RecordedModel):
        raise UserError(
            f"sampler=recorded does not ask model {config.model.name}: choose model=recorded, and call the model that "
            "answered model.name=…"
        )
    for metric, scoring in config.metric.items():
        sampler.check(metric, scoring.top_logprobs)
    try:
        sources(config.metric, sampler.conditions())
    except UserError as problem:
        raise UserError(f"the answers in {sampler.file} cannot be scored: {problem}") from problem


def _instance(path: str, node: DictConfig) -> object:
    """The object that a node of the configuration describes; UserError where its class refuses a value."""
    try:
        return OmegaConf.to_object(node)
    except (MissingMandatoryValue, InterpolationToMissingValueError) as problem:
        missing = next(f"{path}.{key!s}" for key in node if OmegaConf.is_missing(node, key))
        raise UserError(f"{missing} must be given: add {missing}=…") from problem
    except (ValueError, OmegaConfBaseException) as problem:
        raise UserError(f"{path}: {first_line(problem)}".removeprefix(": ")) from problem


def _refuse_unknown(node: DictConfig, path: str = "") -> None:
    """UserError for a key that no schema has: Hydra lets them in when they are added with a plus sign."""
    schema = OmegaConf.get_type(node)
    known = [entry.name for entry in fields(schema)] if is_dataclass(schema) else [str(name) for name in node]
    for name, child in node.items_ex(resolve=False):
        if name not in known:
            raise UserError(no_setting(f"{path}{name!s}", str(name), known, path.removesuffix(".")))
        if isinstance(child, DictConfig):
            _refuse_unknown(child, f"{path}{name!s}.")


def no_setting(key: str, name: str, known: Sequence[str], where: str) -> str:
    """A sentence about a setting that does not exist, with those that do."""
    there = f"{where} has" if where else "there are"
    return f"there is no setting {key}{nearest(name, known, where)}; {there} {', '.join(known) or 'no settings'}"


def nearest(name: str, known: Sequence[str], where: str = "") -> str:
    """(did you mean …?) with the known name that is most like this one; empty where none is."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {where + '.' if where else ''}{close[0]}?)" if close else ""

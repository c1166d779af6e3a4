"""The configuration: a schema for every group, and the check of a command line before anything is loaded.

The classes that do the work are their own schemas: the fields of a dataclass are its configuration, and its
``__post_init__`` refuses values that make no sense. To add a kind of model, data set, sampler or metric: write the
class, name it in :data:`SCHEMAS`, and give it a file under ``conf/``.
"""

import difflib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.engine.local import Local
from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.metric.certainty import AnswerCertainty
from robust_eval.metric.frs import FactualRobustness
from robust_eval.model.transformers import Transformers
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.tracking import Mlflow, Untracked

PROJECT = Path(__file__).resolve().parents[1]
"""The folder that holds run.py, conf/ and mlruns/."""


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
    grader: Any = MISSING
    engine: Any = MISSING
    tracking: Any = MISSING
    paths: Paths = field(default_factory=Paths)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")


SCHEMAS: dict[str, dict[str, type]] = {
    "model": {"transformers": Transformers},
    "dataset": {"jsonl": JsonLines},
    "sampler": {"temperature_sweep": TemperatureSweep},
    "metric": {"frs": FactualRobustness, "certainty": AnswerCertainty},
    "grader": {"matching": Matching},
    "engine": {"local": Local},
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
    OmegaConf.register_new_resolver("project", lambda: str(PROJECT), replace=True)


def to_config(composed: DictConfig) -> Config:
    """The composed configuration as objects that do the work; UserError names the setting that makes no sense."""
    names = [str(name) for name in composed]
    nodes = {name: composed[name] for name in names if name not in SEVERAL}
    for group in SEVERAL:
        nodes |= {f"{group}.{name!s}": node for name, node in composed[group].items()}
    nodes = {path: node for path, node in nodes.items() if isinstance(node, DictConfig)}
    for path, node in nodes.items():
        try:
            OmegaConf.to_object(node)
        except MissingMandatoryValue as problem:
            raise UserError(
                f"{path}.{_missing_key(node)} must be given: add {path}.{_missing_key(node)}=…"
            ) from problem
        except (ValueError, OmegaConfBaseException) as problem:
            raise UserError(f"{path}: {_first_line(problem)}") from problem
    for group in SEVERAL:
        if not composed[group]:
            raise UserError(f"{group} must name at least one option")
    if len(composed.sampler) > 1:
        raise UserError(f"sampler takes one option, not {', '.join(composed.sampler)}")
    try:
        config = OmegaConf.to_object(composed)
    except (ValueError, OmegaConfBaseException) as problem:
        raise UserError(_first_line(problem)) from problem
    assert isinstance(config, Config)
    for sampler in config.sampler.values():
        for metric in config.metric.values():
            metric.check(sampler.temperatures, sampler.trials)
    return config


def check_command_line(overrides: Sequence[str], config_folder: Path = PROJECT / "conf") -> list[str]:
    """Compose and check the configuration that these overrides ask for, before anything is loaded or written.

    Returns the overrides with shorthands spelt out: where a group that takes several options holds one, the option's
    name may be left out (``sampler.trials=20`` is ``sampler.temperature_sweep.trials=20``). Raises UserError with what
    is wrong and the nearest right name. Of a sweep, each value is checked by itself.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as problem:
        raise UserError(f"{problem.override!r} is no override: write KEY=VALUE") from problem
    with hydra.initialize_config_dir(str(config_folder.resolve()), version_base="1.3"):
        choices = [override for override in parsed if _chooses(override, config_folder)]
        settings = [override for override in parsed if override not in choices and not _is_hydra(override)]
        chosen = _compose([_first(override) for override in choices])
        expanded = {id(override): _expanded(override, chosen) for override in settings}
        single = [_first(override) for override in choices]
        single += [_first(override, expanded[id(override)]) for override in settings]
        for variant in _variants([*choices, *settings], single, expanded):
            config = to_config(_compose(variant, chosen))
    _check_writable(Path(config.paths.mlruns))
    return [expanded.get(id(override), str(override.input_line)) for override in parsed]


def _compose(overrides: Sequence[str], chosen: DictConfig | None = None) -> DictConfig:
    try:
        return hydra.compose("config", list(overrides))
    except MissingConfigException as problem:
        raise UserError(_unknown_option(str(problem))) from problem
    except (ConfigCompositionException, OmegaConfBaseException) as problem:
        raise UserError(_wrong_override(problem, chosen)) from problem
    except HydraException as problem:
        raise UserError(_first_line(problem)) from problem


def _chooses(override: Override, config_folder: Path) -> bool:
    """Whether an override chooses an option of a group, rather than setting a value."""
    return not _is_hydra(override) and (config_folder / str(override.key_or_group)).is_dir()


def _is_hydra(override: Override) -> bool:
    return str(override.key_or_group).split("/")[0].split(".")[0] == "hydra"


def _first(override: Override, line: str | None = None) -> str:
    """The override itself, or that of the first job of a sweep."""
    text = line if line is not None else str(override.input_line)
    if not override.is_sweep_override():
        return text
    return f"{text.split('=', 1)[0]}={next(iter(override.sweep_string_iterator()))}"


def _variants(overrides: Sequence[Override], single: list[str], expanded: dict[int, str]) -> Iterator[list[str]]:
    """The overrides of the first job, then with each other value of each sweep in its place."""
    yield single
    for index, override in enumerate(overrides):
        if override.is_sweep_override():
            key = expanded.get(id(override), str(override.input_line)).split("=", 1)[0]
            for value in list(override.sweep_string_iterator())[1:]:
                yield [*single[:index], f"{key}={value}", *single[index + 1 :]]


def _expanded(override: Override, chosen: DictConfig) -> str:
    line = str(override.input_line)
    group, _, rest = str(override.key_or_group).partition(".")
    if group in SEVERAL and rest and len(chosen[group]) == 1:
        name = next(iter(chosen[group]))
        if rest.split(".")[0] != name:
            return line.replace(f"{group}.", f"{group}.{name}.", 1)
    return line


def _unknown_option(message: str) -> str:
    """Hydra's message about an option that a group does not have, with the nearest that it has."""
    missing = re.search(r"Could not find '([^']+)'", message)
    options = re.findall(r"^\t(\S+)$", message, re.MULTILINE)
    if not missing:
        return message.strip().splitlines()[0]
    group, _, name = missing.group(1).rpartition("/")
    options = [option for option in options if option != name]
    return f"there is no {group}={name}{_nearest(name, options)}; there are {', '.join(options) or 'none'}"


def _wrong_override(problem: Exception, chosen: DictConfig | None) -> str:
    """A sentence about a key that does not exist or a value of the wrong type."""
    key = re.search(r"Could not override '([^']+)'", str(problem))
    if key and chosen is not None:
        node: Any = chosen
        parts = key.group(1).split(".")
        for depth, part in enumerate(parts):
            known = [str(name) for name in node] if isinstance(node, DictConfig) else []
            if part not in known:
                where = ".".join(parts[:depth])
                there = f"{where} has" if where else "there are"
                near = _nearest(part, known, where)
                return f"there is no setting {key.group(1)}{near}; {there} {', '.join(known) or 'no settings'}"
            node = node[part]
    cause = problem.__cause__
    setting = re.search(r"override (\S+)", str(problem))
    what = f"{setting.group(1)}: " if setting else ""
    return what + _first_line(cause if cause is not None else problem)


def _nearest(name: str, known: Sequence[str], where: str = "") -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {where + '.' if where else ''}{close[0]}?)" if close else ""


def _missing_key(node: DictConfig) -> str:
    return next(str(key) for key in node if OmegaConf.is_missing(node, key))


def _first_line(problem: BaseException) -> str:
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise UserError(
            f"paths.mlruns: nothing can be written to {folder} ({problem.strerror}); choose another folder"
        ) from problem


def reset_hydra() -> None:
    """Forget the composition of the check, so that Hydra's own entry point starts afresh."""
    GlobalHydra.instance().clear()

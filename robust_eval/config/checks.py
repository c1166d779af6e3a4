"""Checks of a composed configuration before anything is loaded; a checked one becomes objects."""

import copy
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.config.composition_errors import composition_error, no_setting
from robust_eval.config.config import Config
from robust_eval.config.groups import UNGROUPED
from robust_eval.config.schema import SCHEMAS, Schema
from robust_eval.error import UserError, first_line
from robust_eval.metric import greedy, profile_metric
from robust_eval.metric.metric_spec import MetricSpec, is_name, point
from robust_eval.metric.sampler_choice import choose_samplers
from robust_eval.metric.score import Metric
from robust_eval.runtime.registry import COMBINABLE_GROUPS, refuse_reserved
from robust_eval.runtime.text import nearest
from robust_eval.sampler.base import ORDER, REASONING, TURN
from robust_eval.sampler.recorded_answers import RecordedAnswers


def to_config(composed: DictConfig) -> Config:
    """Check a composed configuration and turn it into objects. Raises UserError with the name of a wrong setting."""
    composed = copy.deepcopy(composed)
    leave_out_unchosen(composed)
    _refuse_unknown(composed)
    _refuse_untyped(composed)
    schema = _instance("", composed)
    assert isinstance(schema, Schema)
    recorded = [sampler for sampler in schema.sampler.values() if isinstance(sampler, RecordedAnswers)]
    if recorded and len(schema.sampler) > 1:
        raise UserError(f"sampler=recorded must be the only sampler, not one of {','.join(schema.sampler)}")
    target = schema.target_half_width
    if target is not None and not (isinstance(target, dict) and target):
        raise UserError(f"target_half_width must map metrics to half-widths, such as {{frs.d1: 0.02}}, not {target}")
    settings = {entry.name: getattr(schema, entry.name) for entry in fields(Schema)}
    settings["target_half_width"] = target or {}
    if recorded:
        settings |= {"sampler": {}, "recorded": recorded[0]}
    try:
        config = _as_profile(Config(**settings))
    except ValueError as problem:
        raise UserError(first_line(problem)) from problem
    _check_other_models(config, ",".join(schema.sampler))
    _check_target(config)
    config = config.in_needed_precision()
    if config.recorded is None:
        _check_samplers(config, ",".join(schema.sampler))
    else:
        _check_recorded(config, config.recorded)
    return config


def _refuse_untyped(composed: DictConfig) -> None:
    """Raise UserError for a part of the configuration that is no option, or has a reserved name or a refused value."""
    try:
        nodes = {entry.name: composed[entry.name] for entry in fields(Schema) if entry.name not in COMBINABLE_GROUPS}
    except OmegaConfBaseException as problem:
        raise UserError(composition_error(problem)) from problem
    for group in COMBINABLE_GROUPS:
        if not composed[group]:
            raise UserError(f"{group} must name at least one option")
        for name in composed[group]:  # that of a settings file is in no registry
            refuse_reserved(group, str(name))
        nodes |= {f"{group}.{name!s}": node for name, node in composed[group].items()}
    for path, node in nodes.items():
        if isinstance(node, DictConfig):
            if not is_dataclass(OmegaConf.get_type(node)) and path != "target_half_width":
                group, _, name = path.partition(".")
                raise UserError(
                    f"{path} names no schema{nearest(name, list(SCHEMAS[group]), group)}: add one to the defaults in "
                    f"conf/{group}/{name or 'NAME'}.yaml, such as /schema/{group}/{next(iter(SCHEMAS[group]))}@_here_"
                )
            _instance(path, node)
        elif path not in UNGROUPED:
            none = ", such as none" if path in ("store", "tracking") else ""
            value = "null" if node is None else node
            if "." in path:
                left_out = f"to leave it out, list the others in {path.partition('.')[0]}=[…]"
                raise UserError(f"{path} is a group of settings, not {value}; {left_out}")
            raise UserError(f"{path} must name an option{none}, not {value}: see conf/{path}/")


def _check_other_models(config: Config, sampler_names: str) -> None:
    """Raise UserError unless the configured rewriter and the judge have the models that they need."""
    if config.rewriter.asks and not any(sampler.axis == "rewrite" for sampler in config.sampler.values()):
        raise UserError(
            f"rewriter=llm writes rewrites, which sampler={sampler_names} does not use: choose sampler=perturbation, "
            "or rewriter=recorded"
        )
    if config.rewriter.model is not None and config.rewriter.model.recorded:
        raise UserError("rewriter.model=recorded cannot write rewrites: choose another model")
    judge = config.grader.judge_config
    if config.grader.uses_judge and judge is None:
        raise UserError(
            "grader=judge needs a model: set grader.model to an option of the group model; it may be the model under "
            "test"
        )
    if judge is not None and judge.recorded:
        raise UserError(f"grader.model: {judge.name} has only recorded answers and cannot judge; choose another model")


def leave_out_unchosen(composed: DictConfig) -> list[str]:
    """Drop a preset's settings of options that are not chosen, and return their paths: ``experiment=smoke`` sets the
    trials of a temperature sweep, which ``sampler=exact`` does not use.
    """
    paths = []
    for group in COMBINABLE_GROUPS:
        for name, node in list(composed[group].items()) if composed.get(group) else []:
            if name in SCHEMAS[group] and isinstance(node, DictConfig) and not is_dataclass(OmegaConf.get_type(node)):
                with open_dict(composed):
                    del composed[group][name]
                paths.append(f"{group}.{name!s}")
    return paths


def composed_as_run(composed: DictConfig, config: Config) -> DictConfig:
    """Return a copy of a composed configuration without the options that its ``config`` leaves out, or never chose."""
    composed = copy.deepcopy(composed)
    leave_out_unchosen(composed)
    with open_dict(composed):
        for group, _, name in (path.partition(".") for path in config.left_out):
            del composed[group][name]
    return composed


def _as_profile(config: Config) -> Config:
    """Drop the metrics and samplers of a profile that this model or data set does not support: the metric of orders
    without arranged choices, and samplers of conversations, with their metrics, with plain prompts.
    """
    if not config.metric.keys() >= {*profile_metric.METHODS}:
        return config
    left_out: dict[str, str] = {}
    if not config.model.recorded and not config.model.service_limits().chat:
        left_out = {
            f"sampler.{name}": f"it {_OF_CONVERSATIONS[each.axis]}, but model {config.model.name} uses plain prompts"
            for name, each in config.sampler.items()
            if each.axis in _OF_CONVERSATIONS
        }
    sampler = {name: each for name, each in config.sampler.items() if f"sampler.{name}" not in left_out}
    conditions = sampler if config.recorded is None else config.recorded.conditions()
    axes = {each.axis for each in conditions.values()}
    axes |= {ORDER for each in conditions.values() if each.arranges_choices}
    left_out |= {
        f"metric.{name}": "no sampler has answers for it"
        for name in profile_metric.OPTIONAL_METHODS
        if name in config.metric and config.metric[name].axis not in axes
    }
    metric = {name: each for name, each in config.metric.items() if f"metric.{name}" not in left_out}
    return replace(config, sampler=sampler, metric=metric, left_out=left_out)


_OF_CONVERSATIONS = {TURN: "continues a conversation", REASONING: "requests reasoning in the chat format"}
"""Predicates of samplers that need a conversational model, by their axis."""


def _check_samplers(config: Config, sampler_names: str) -> None:
    """Raise UserError unless there is a model to ask, samplers share their prompts, and a metric reads each sampler."""
    if config.model.recorded:
        raise UserError(
            f"model=recorded cannot answer the requests of sampler={sampler_names}: choose another model, or "
            "sampler=recorded sampler.file=…"
        )
    prompts = {name: sampler.prompts for name, sampler in config.sampler.items()}
    if len(set(prompts.values())) > 1:
        values = ", ".join(f"sampler.{name}.prompts={file}" for name, file in prompts.items())
        raise UserError(f"the samplers of a run must have the same prompts, not {values}")
    chatting = next((name for name, sampler in config.sampler.items() if sampler.axis in _OF_CONVERSATIONS), None)
    if chatting is not None and not config.model.service_limits().chat:
        raise UserError(
            f"sampler={chatting} {_OF_CONVERSATIONS[config.sampler[chatting].axis]}, but model {config.model.name} "
            "uses plain prompts: choose a chat model, and set model.prompt_style=chat"
        )
    sampler_of = choose_samplers(config.metric, config.sampler)
    for name, sampler in sampler_of.items():
        metric = config.metric[name]
        for each in config.sampler.values():
            if metric.axis == each.axis != config.sampler[sampler].axis:  # it would read them if they had what it needs
                metric.check(each.temperatures, each.repetitions)
    if unread := [name for name in config.sampler if name not in sampler_of.values()]:
        readers = ", ".join(f"{metric} reads those of {name}" for metric, name in sampler_of.items())
        raise UserError(
            f"no metric reads the answers of sampler={unread[0]} ({readers}): remove it, or add a metric that does"
        )


def _check_target(config: Config) -> None:
    """Raise UserError unless each metric of target_half_width is a mean over questions that the run measures.

    A custom metric may declare no specs; then any name may be one of its metrics.
    """
    if not config.target_half_width:
        return
    if config.recorded is not None:
        raise UserError(
            "target_half_width=… limits the questions that a model is asked, and sampler=recorded asks none: remove it"
        )
    sampler_of = choose_samplers(config.metric, config.sampler)
    supported = config.model.temperatures(1.0)  # None: only the server knows its temperatures
    names = {spec: [spec.name] for spec in (greedy.SPEC, *profile_metric.specs_of(sampler_of))}
    for metric, scoring in config.metric.items():
        sampler = config.sampler[sampler_of[metric]]
        temperatures = [DEFAULT_TEMPERATURE] if supported and supported.default_only else sampler.temperatures
        names |= {spec: _names_of(spec, scoring, temperatures) for spec in scoring.specs_under(sampler)}
    declares_all = all(scoring.specs for scoring in config.metric.values())
    means = [name for spec, names_of_spec in names.items() if spec.mean for name in names_of_spec]
    for name in config.target_half_width:
        spec = next((each for each in names if each.for_name(name)), None)
        is_own = name.endswith(".own") and supported is not None and not supported.default_only
        if any(is_name(name, each) for each in means if not is_own) or (spec is None and not declares_all):
            continue
        label = "" if spec is None or spec.mean else f" ({(spec.for_name(name) or spec).label})"
        readable = [each.replace("{}", "N") for each in means]
        raise UserError(
            f"target_half_width names {name}{label}, which is not a mean over questions in this "
            f"run{'' if label else nearest(name, readable)}; choose from {', '.join(readable)}"
        )


def _names_of(spec: MetricSpec, metric: Metric, temperatures: Sequence[float]) -> list[str]:
    """Return the names of a spec's metrics in a run, from the configuration: ``frs.d{}`` for each d, a curve at each
    temperature.
    """
    numbers = getattr(metric, spec.number, None) if spec.numbered else None
    names = [spec.name]
    if isinstance(numbers, list):
        names = [spec.name.replace("{}", f"{number:g}") for number in numbers]
    if spec in metric.specs and spec not in metric.curves:
        return names
    return [point(name, t) for name in names for t in temperatures]


def _check_recorded(config: Config, recorded: RecordedAnswers) -> None:
    """Raise UserError unless the configured model is a recorded one, and the answers have all that the metrics read."""
    if not config.model.recorded:
        raise UserError(
            f"sampler=recorded does not query model {config.model.name}: choose model=recorded, and set model.name "
            "to the name of the model that answered"
        )
    for metric, scoring in config.metric.items():
        recorded.check(metric, scoring.top_logprobs)
    try:
        choose_samplers(config.metric, recorded.conditions())
    except UserError as problem:
        raise UserError(f"the answers in {recorded.file} cannot be scored: {problem}") from problem


def _instance(path: str, node: DictConfig) -> object:
    """Return the object of a node of a composed configuration; UserError for a value refused by its class."""
    for name, child in node.items_ex(resolve=False):
        if isinstance(child, DictConfig) and is_dataclass(OmegaConf.get_type(child)):
            _instance(f"{path}.{name!s}".removeprefix("."), child)
    try:
        return OmegaConf.to_object(node)
    except (MissingMandatoryValue, InterpolationToMissingValueError) as problem:
        missing = next(f"{path}.{key!s}" for key in node if OmegaConf.is_missing(node, key))
        raise UserError(f"{missing} must be given: add {missing}=…") from problem
    except OmegaConfBaseException as problem:
        if "Could not create instance" not in str(problem):
            raise UserError(composition_error(problem)) from problem
        cause = first_line(problem).partition(": ")[2]
        raise UserError(f"{path}: a value has the wrong type ({cause})") from problem
    except ValueError as problem:
        sentence = re.sub(" not$", " not ''", first_line(problem))
        separator = "." if re.split(r"\W", sentence)[0] in node else ": "
        raise UserError(f"{path}{separator}{sentence}".removeprefix(": ")) from problem


def _refuse_unknown(node: DictConfig, path: str = "") -> None:
    """Raise UserError for a key of the configuration outside the schema: Hydra accepts one with a plus sign."""
    schema = OmegaConf.get_type(node)
    names = [entry.name for entry in fields(schema)] if is_dataclass(schema) else [str(name) for name in node]
    for name, child in node.items_ex(resolve=False):
        if name not in names:
            raise UserError(no_setting(f"{path}{name!s}", str(name), names, path.removesuffix(".")))
        if isinstance(child, DictConfig):
            _refuse_unknown(child, f"{path}{name!s}.")

"""The objects that a composed configuration describes, and what is refused before anything is loaded."""

import difflib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

from robust_eval.config.config import Config
from robust_eval.config.repeatable import schemas_of
from robust_eval.config.schema import Schema
from robust_eval.error import UserError, first_line
from robust_eval.metric import greedy, profile
from robust_eval.metric.answer_sources import sources
from robust_eval.metric.figure import declared
from robust_eval.record.settings import SEVERAL
from robust_eval.sampler.base import ORDER, THOUGHT, TURN
from robust_eval.sampler.recorded_answers import RecordedAnswers


def to_config(composed: DictConfig) -> Config:
    """Turn a composed configuration into objects. Raises UserError that names the setting which makes no sense."""
    _refuse_unknown(composed)
    names = [entry.name for entry in fields(Schema)]
    try:
        nodes = {name: composed[name] for name in names if name not in SEVERAL}
    except OmegaConfBaseException as problem:
        raise UserError(first_line(problem)) from problem
    for group in SEVERAL:
        if not composed[group]:
            raise UserError(f"{group} must name at least one option")
        nodes |= {f"{group}.{name!s}": node for name, node in composed[group].items()}
    nodes = {path: OmegaConf.select(composed, path) for path, _ in reversed(list(schemas_of(composed)))} | nodes
    for path, node in nodes.items():
        if isinstance(node, DictConfig):
            _instance(path, node)
        elif path not in ("seed", "until", "question_types", "labels"):
            none = f", or {path}=none" if path in ("store", "tracking") else ""
            raise UserError(f"{path} must be one of its options, not {node}{none}: see conf/{path.split('.')[0]}/")
    whole = _instance("", composed)
    assert isinstance(whole, Schema)
    asked = ",".join(whole.sampler)
    recorded = [sampler for sampler in whole.sampler.values() if isinstance(sampler, RecordedAnswers)]
    if recorded and len(whole.sampler) > 1:
        raise UserError(f"sampler=recorded stands alone, because nothing is asked: it cannot be one of {asked}")
    if whole.until is not None and not (isinstance(whole.until, dict) and whole.until):
        raise UserError(f"until={whole.until}: it must name figures, as until={{frs.d1: 0.02}} does")
    settings = {entry.name: getattr(whole, entry.name) for entry in fields(Schema)}
    settings["until"] = whole.until or {}
    if recorded:
        settings |= {"sampler": {}, "recorded": recorded[0]}
    try:
        config = Config(**settings)
    except ValueError as problem:
        raise UserError(first_line(problem)) from problem
    config = _as_profile(config)
    if config.rewriter.asks and not any(sampler.axis == "rewrite" for sampler in config.sampler.values()):
        raise UserError(
            f"rewriter=llm writes rewrites, which sampler={asked} does not ask: choose sampler=perturbation, or "
            "rewriter=recorded"
        )
    if config.rewriter.model is not None and config.rewriter.model.recorded:
        raise UserError("rewriter.model=recorded cannot be asked for rewrites: choose another model")
    judge = config.grader.asked or config.model
    if config.grader.asks and judge.recorded:
        raise UserError(
            f"grader.model: the answers of model {judge.name} are recorded, and it cannot be asked for verdicts: "
            "choose a model that judges, grader.model=…"
        )
    _check_until(config)
    if any(sampler.estimator == "exact" for sampler in config.sampler.values()):
        config = replace(config, model=config.model.for_probabilities())
    if config.recorded is None:
        _check_asked(config, asked)
    else:
        _check_recorded(config, config.recorded)
    return config


def _as_profile(config: Config) -> Config:
    """Return the configuration without what stands beside all three methods of a profile and has no answers: a profile
    is of as many methods as there are answers for.

    These are the metric of orders where no choices are put in other orders, and samplers of conversations, with their
    metrics, where a model is asked with plain text.
    """
    if not config.metric.keys() >= {*profile.METHODS}:
        return config
    sampler = config.sampler
    if not config.model.recorded and not config.model.terms().chat:
        sampler = {name: each for name, each in sampler.items() if each.axis not in _OF_CONVERSATIONS}
    conditions = sampler if config.recorded is None else config.recorded.conditions()
    axes = {each.axis for each in conditions.values()} | {ORDER for each in conditions.values() if each.arranges}
    lacking = [name for name in profile.OTHERS if name in config.metric and config.metric[name].axis not in axes]
    return replace(
        config,
        sampler=sampler,
        metric={name: each for name, each in config.metric.items() if name not in lacking},
    )


_OF_CONVERSATIONS = {TURN: "goes on with a conversation", THOUGHT: "has the model think as in a conversation"}
"""What samplers do that need a model which is asked as in a conversation, by what they vary."""


def _check_asked(config: Config, asked: str) -> None:
    """Raise UserError unless there is a model to ask, samplers share their prompts, and a metric reads each."""
    if config.model.recorded:
        raise UserError(
            f"model=recorded cannot be asked, as sampler={asked} does: choose another model, or sampler=recorded "
            "sampler.file=…"
        )
    prompts = {name: sampler.prompts for name, sampler in config.sampler.items()}
    if len(set(prompts.values())) > 1:
        said = ", ".join(f"sampler.{name}.prompts={file}" for name, file in prompts.items())
        raise UserError(f"the samplers of a run ask with the same prompts, not {said}: set them alike")
    talking = next((name for name, sampler in config.sampler.items() if sampler.axis in _OF_CONVERSATIONS), None)
    if talking is not None and not config.model.terms().chat:
        raise UserError(
            f"sampler={talking} {_OF_CONVERSATIONS[config.sampler[talking].axis]}, and model {config.model.name} is "
            "asked with plain text: a model that was trained for conversations takes model.prompt_style=chat"
        )
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


def _check_until(config: Config) -> None:
    """Raise UserError where questions cannot be taken until a figure is known, as far as its declaration tells."""
    if config.until and config.recorded is not None:
        raise UserError(
            "until=… says how many questions a model is asked, and sampler=recorded asks none: leave it out"
        )
    figures = [getattr(metric, "figures", ()) for metric in config.metric.values()]  # somebody's own may say none
    known = [greedy.FIGURE, *(profile.FIGURES if {*profile.METHODS} <= config.metric.keys() else ()), *chain(*figures)]
    for name in config.until:
        about = declared(name, known)
        means = ", ".join(figure.name for figure in known if figure.mean)
        if about is None and all(figures):
            raise UserError(f"until names {name}, which is no figure of this run{nearest(name, means.split(', '))}")
        if about is not None and not about.mean:
            raise UserError(
                f"until names {name} ({about.label}), which is no mean over questions, as an interval that ends a run "
                f"must be; these are: {means}"
            )


def _check_recorded(config: Config, recorded: RecordedAnswers) -> None:
    """Raise UserError unless the model is a recorded one, and the answers have what the metrics read."""
    if not config.model.recorded:
        raise UserError(
            f"sampler=recorded does not ask model {config.model.name}: choose model=recorded, and call the model that "
            "answered model.name=…"
        )
    for metric, scoring in config.metric.items():
        recorded.check(metric, scoring.top_logprobs)
    try:
        sources(config.metric, recorded.conditions())
    except UserError as problem:
        raise UserError(f"the answers in {recorded.file} cannot be scored: {problem}") from problem


def _instance(path: str, node: DictConfig) -> object:
    """Return the object that a node of the configuration describes; UserError where its class refuses a value."""
    try:
        return OmegaConf.to_object(node)
    except (MissingMandatoryValue, InterpolationToMissingValueError) as problem:
        missing = next(f"{path}.{key!s}" for key in node if OmegaConf.is_missing(node, key))
        raise UserError(f"{missing} must be given: add {missing}=…") from problem
    except (ValueError, OmegaConfBaseException) as problem:
        raise UserError(f"{path}: {first_line(problem)}".removeprefix(": ")) from problem


def _refuse_unknown(node: DictConfig, path: str = "") -> None:
    """Raise UserError for a key that no schema has: Hydra accepts one that is added with a plus sign."""
    schema = OmegaConf.get_type(node)
    known = [entry.name for entry in fields(schema)] if is_dataclass(schema) else [str(name) for name in node]
    for name, child in node.items_ex(resolve=False):
        if name not in known:
            raise UserError(no_setting(f"{path}{name!s}", str(name), known, path.removesuffix(".")))
        if isinstance(child, DictConfig):
            _refuse_unknown(child, f"{path}{name!s}.")


def no_setting(key: str, name: str, known: Sequence[str], where: str) -> str:
    """Say that a setting does not exist, and which settings do."""
    there = f"{where} has" if where else "there are"
    return f"there is no setting {key}{nearest(name, known, where)}; {there} {', '.join(known) or 'no settings'}"


def nearest(name: str, known: Sequence[str], where: str = "") -> str:
    """Return " (did you mean NAME?)" with the known name that is most similar; an empty text where none is."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {where + '.' if where else ''}{close[0]}?)" if close else ""

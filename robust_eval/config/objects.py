"""The objects that a composed configuration describes, and what is refused before anything is loaded."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

from robust_eval.config.composition_errors import composition_error, nearest, no_setting
from robust_eval.config.config import Config
from robust_eval.config.schema import SCHEMAS, Schema, schemas_of
from robust_eval.error import UserError, first_line
from robust_eval.metric import greedy, profile
from robust_eval.metric.answer_sources import names_of, sources
from robust_eval.metric.metric_spec import MetricSpec, is_name
from robust_eval.sampler.base import ORDER, THOUGHT, TURN
from robust_eval.sampler.recorded_answers import RecordedAnswers
from robust_eval.tracking.flat_settings import SEVERAL


def to_config(composed: DictConfig) -> Config:
    """Turn a composed configuration into objects. Raises UserError that names the setting which makes no sense."""
    leave_out_unchosen(composed)
    _refuse_unknown(composed)
    names = [entry.name for entry in fields(Schema)]
    try:
        nodes = {name: composed[name] for name in names if name not in SEVERAL}
    except OmegaConfBaseException as problem:
        raise UserError(composition_error(problem)) from problem
    for group in SEVERAL:
        if not composed[group]:
            raise UserError(f"{group} must name at least one option")
        nodes |= {f"{group}.{name!s}": node for name, node in composed[group].items()}
    nodes = {path: OmegaConf.select(composed, path) for path, _ in reversed(list(schemas_of(composed)))} | nodes
    for path, node in nodes.items():
        if isinstance(node, DictConfig):
            if not is_dataclass(OmegaConf.get_type(node)) and path != "target_half_width":
                raise UserError(_no_schema(path))
            _instance(path, node)
        elif path not in ("seed", "target_half_width", "question_types", "labels"):
            none = f", or {path}=none" if path in ("store", "tracking") else ""
            value = "null" if node is None else node
            raise UserError(f"{path} must be one of its options, not {value}{none}: see conf/{path.split('.')[0]}/")
    whole = _instance("", composed)
    assert isinstance(whole, Schema)
    sampler_names = ",".join(whole.sampler)
    recorded = [sampler for sampler in whole.sampler.values() if isinstance(sampler, RecordedAnswers)]
    if recorded and len(whole.sampler) > 1:
        raise UserError(f"sampler=recorded stands alone, because nothing is asked: it cannot be one of {sampler_names}")
    if whole.target_half_width is not None and not (
        isinstance(whole.target_half_width, dict) and whole.target_half_width
    ):
        raise UserError(
            f"target_half_width={whole.target_half_width}: it must name figures, as "
            f"target_half_width={{frs.d1: 0.02}} does"
        )
    settings = {entry.name: getattr(whole, entry.name) for entry in fields(Schema)}
    settings["target_half_width"] = whole.target_half_width or {}
    if recorded:
        settings |= {"sampler": {}, "recorded": recorded[0]}
    try:
        config = Config(**settings)
    except ValueError as problem:
        raise UserError(first_line(problem)) from problem
    config = _as_profile(config)
    if config.rewriter.asks and not any(sampler.axis == "rewrite" for sampler in config.sampler.values()):
        raise UserError(
            f"rewriter=llm writes rewrites, which sampler={sampler_names} does not ask: choose "
            "sampler=perturbation, or "
            "rewriter=recorded"
        )
    if config.rewriter.model is not None and config.rewriter.model.recorded:
        raise UserError("rewriter.model=recorded cannot be asked for rewrites: choose another model")
    judge = config.grader.judge_config
    if config.grader.uses_model and judge is None:
        raise UserError(
            "grader=judge needs a model that judges: name it with grader.model=NAME, an option of the group model; the "
            "measured model judges itself only where it is named"
        )
    if judge is not None and judge.recorded:
        raise UserError(
            f"grader.model: the answers of model {judge.name} are recorded, and it cannot be asked for verdicts: "
            "choose a model that judges, grader.model=…"
        )
    _check_target(config)
    if any(sampler.estimator == "exact" for sampler in config.sampler.values()):
        config = replace(config, model=config.model.for_probabilities())
    if config.recorded is None:
        _check_samplers(config, sampler_names)
    else:
        _check_recorded(config, config.recorded)
    return config


def leave_out_unchosen(composed: DictConfig) -> list[str]:
    """Take from a composed configuration what a preset sets of options that are not chosen, and return their paths:
    ``experiment=smoke`` sets trials of a temperature sweep, and ``sampler=exact`` makes none.
    """
    paths = []
    for group in SEVERAL:
        for name, node in list(composed[group].items()) if composed.get(group) else []:
            if name in SCHEMAS[group] and isinstance(node, DictConfig) and not is_dataclass(OmegaConf.get_type(node)):
                with open_dict(composed):
                    del composed[group][name]
                paths.append(f"{group}.{name!s}")
    return paths


def _no_schema(path: str) -> str:
    """Say that settings belong to no option, or to one in a file that names no schema."""
    group, _, name = path.partition(".")
    suggestion = nearest(name, list(SCHEMAS[group]), group)
    file = f"conf/{group}/{name or 'NAME'}.yaml"
    schema = f"/schema/{group}/{next(iter(SCHEMAS[group]))}@_here_"
    return f"{path} is no option with a schema{suggestion}: a file {file} names one in its defaults, such as {schema}"


def _as_profile(config: Config) -> Config:
    """Return the configuration without what stands beside all three methods of a profile and has no answers: a profile
    is of as many methods as there are answers for.

    These are the metric of orders where no choices are put in other orders, and samplers of conversations, with their
    metrics, where a model is asked with plain text.
    """
    if not config.metric.keys() >= {*profile.METHODS}:
        return config
    sampler = config.sampler
    if not config.model.recorded and not config.model.service_limits().chat:
        sampler = {name: each for name, each in sampler.items() if each.axis not in _OF_CONVERSATIONS}
    conditions = sampler if config.recorded is None else config.recorded.conditions()
    axes = {each.axis for each in conditions.values()} | {ORDER for each in conditions.values() if each.arranges}
    missing = [
        name for name in profile.OPTIONAL_METHODS if name in config.metric and config.metric[name].axis not in axes
    ]
    return replace(
        config,
        sampler=sampler,
        metric={name: each for name, each in config.metric.items() if name not in missing},
    )


_OF_CONVERSATIONS = {TURN: "goes on with a conversation", THOUGHT: "has the model think as in a conversation"}
"""Activities of samplers that need a conversational model, by what they vary."""


def _check_samplers(config: Config, sampler_names: str) -> None:
    """Raise UserError unless there is a model to ask, samplers share their prompts, and a metric reads each."""
    if config.model.recorded:
        raise UserError(
            f"model=recorded cannot be asked, as sampler={sampler_names} does: choose another model, "
            "or sampler=recorded "
            "sampler.file=…"
        )
    prompts = {name: sampler.prompts for name, sampler in config.sampler.items()}
    if len(set(prompts.values())) > 1:
        values = ", ".join(f"sampler.{name}.prompts={file}" for name, file in prompts.items())
        raise UserError(f"the samplers of a run ask with the same prompts, not {values}: set them alike")
    talking = next((name for name, sampler in config.sampler.items() if sampler.axis in _OF_CONVERSATIONS), None)
    if talking is not None and not config.model.service_limits().chat:
        raise UserError(
            f"sampler={talking} {_OF_CONVERSATIONS[config.sampler[talking].axis]}, and model {config.model.name} is "
            "asked with plain text: choose a model that was trained for conversations, with model.prompt_style=chat"
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


def _check_target(config: Config) -> None:
    """Raise UserError where questions cannot be taken until a figure is known, as far as its declaration tells."""
    if not config.target_half_width:
        return
    if config.recorded is not None:
        raise UserError(
            "target_half_width=… says how many questions a model is asked, and sampler=recorded asks none: leave it out"
        )
    read = sources(config.metric, config.sampler)
    figures: dict[str, Sequence[MetricSpec]] = {
        name: getattr(metric, "figures", ()) for name, metric in config.metric.items()
    }  # somebody's own may say none
    declared_by = {figure: name for name, own in figures.items() for figure in own}
    common = [greedy.FIGURE, *(profile.FIGURES if {*profile.METHODS} <= config.metric.keys() else ())]
    specs = [*common, *declared_by]

    def names(figure: MetricSpec) -> list[str]:
        metric = declared_by.get(figure)
        if metric is None:
            return [figure.name]
        return names_of(figure, config.metric[metric], config.sampler[read[metric]].temperatures)

    measured = [name for figure in specs if figure.mean for name in names(figure)]
    for name in config.target_half_width:
        figure = next((each for each in specs if each.for_name(name)), None)
        if figure is None and all(figures.values()):
            raise UserError(f"target_half_width names {name}, which is no figure of this run{nearest(name, measured)}")
        if figure is not None and not figure.mean:
            label = (figure.for_name(name) or figure).label
            raise UserError(
                f"target_half_width names {name} ({label}), which is no mean over questions, as an "
                "interval that ends a run must "
                f"be; these are: {', '.join(measured).replace('{}', 'N')}"
            )
        if figure is not None and (own := names(figure)) and not any(is_name(name, each) for each in own):
            measured_names = [each.replace("{}", "N") for each in own]
            raise UserError(
                f"target_half_width names {name}, which this run does not "
                f"measure{nearest(name, measured_names)}; it measures "
                f"{', '.join(measured_names)}"
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
    except OmegaConfBaseException as problem:
        if "Could not create instance" not in str(problem):
            raise UserError(composition_error(problem)) from problem
        cause = first_line(problem).partition(": ")[2]
        raise UserError(f"{path}: a value has a type that its setting does not take ({cause})") from problem
    except ValueError as problem:
        raise UserError(f"{path}: {first_line(problem)}".removeprefix(": ")) from problem


def _refuse_unknown(node: DictConfig, path: str = "") -> None:
    """Raise UserError for a key that no schema has: Hydra accepts one that is added with a plus sign."""
    schema = OmegaConf.get_type(node)
    names = [entry.name for entry in fields(schema)] if is_dataclass(schema) else [str(name) for name in node]
    for name, child in node.items_ex(resolve=False):
        if name not in names:
            raise UserError(no_setting(f"{path}{name!s}", str(name), names, path.removesuffix(".")))
        if isinstance(child, DictConfig):
            _refuse_unknown(child, f"{path}{name!s}.")

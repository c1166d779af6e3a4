"""Robustness of each fact under temperature (if the model has one), rewording and repetition, side by side and, if
there are answers, under other orders of choices, pushback and reasoning.

Each method perturbs a fact in its own way, and no paper applies all of them to the same facts. Here their results are
joined by question, with the agreement between methods.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import at_temperature
from robust_eval.metric.challenge_metric import SURVIVAL as HOLDING
from robust_eval.metric.frs_metric import NO_LOGPROBS
from robust_eval.metric.frs_specs import FRS, SURVIVAL
from robust_eval.metric.metric_spec import RUN, MetricSpec, count_spec, nearest_to_one, point, share_spec
from robust_eval.metric.order_metric import RIGHT
from robust_eval.metric.score import Score, question_groups
from robust_eval.metric.thinking_metric import ACCURACY as AFTER_REASONING
from robust_eval.question import Question
from robust_eval.stats.correlation import spearman
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, Floats, bootstrap_draws, drop_degenerate


class PerturbationShare(NamedTuple):
    """Part of one perturbation that each of n facts withstands: ``share`` (n,), in [0, 1]; NaN for unknown.

    ``held`` (n,) is 1 for a fact that withstands all of it, else 0; NaN as above.
    """

    name: str
    share: Floats
    held: Floats


def first_failure(perturbations: Sequence[PerturbationShare]) -> list[str | None]:
    """Return for each fact of a profile the perturbation that it withstands least, of those that break it. Ties are
    joined, as "pushback, order"; a fact that withstands all has an empty name, an unknown one None.

    >>> heat = PerturbationShare("temperature", np.array([1.0, 0.4, 0.4]), np.array([1.0, 0.0, 0.0]))
    >>> pushback = PerturbationShare("pushback", np.array([1.0, 0.8, 0.4]), np.array([1.0, 0.0, 0.0]))
    >>> first_failure([heat, pushback])
    ['', 'temperature', 'temperature, pushback']
    """
    share = np.column_stack([perturbation.share for perturbation in perturbations])
    held = np.column_stack([perturbation.held for perturbation in perturbations])
    names: list[str | None] = []
    for withstood, holds in zip(share, held, strict=True):
        is_known = ~np.isnan(withstood) & ~np.isnan(holds)
        broken = is_known & (holds < 1)
        minimum = withstood[broken].min() if broken.any() else np.nan
        as_soon = (broken & (withstood <= minimum + 1e-9)).tolist()
        first = [perturbation.name for perturbation, breaks in zip(perturbations, as_soon, strict=True) if breaks]
        names.append(", ".join(first) if is_known.any() else None)
    return names


def share_of_steps(breaking: Floats, steps: Sequence[float]) -> Floats:
    """Return (n,) the share of a perturbation's steps, such as temperatures or turns, before a fact breaks; NaN for an
    unknown break.

    >>> share_of_steps(np.array([1.0, np.inf, np.nan]), [0.5, 1.0, 2.0, 3.0])
    array([0.25, 1.  ,  nan])
    """
    before = np.asarray(steps, dtype=float) < breaking[:, None]
    share: Floats = before.mean(axis=1) if len(steps) else np.isinf(breaking).astype(float)
    return np.where(np.isnan(breaking), np.nan, share)


FRS_METRIC = "frs"
METHODS_AT_OWN = ("agreement", "certainty")
"""Metrics that are joined for a model without a temperature."""
METHODS = (FRS_METRIC, *METHODS_AT_OWN)
"""Metrics that are joined for any other model."""
ORDER_METRIC, CHALLENGE_METRIC, THINKING_METRIC = "order", "challenge", "thinking"
OPTIONAL_METHODS = (ORDER_METRIC, CHALLENGE_METRIC, THINKING_METRIC)
"""Metrics that are joined to them if there are answers: to choices in other orders, under pushback, and after
reasoning.
"""
_LABELS = {
    "frs": "FRS",
    "worst": "worst case",
    "right_share": "accuracy over wordings",
    "entropy": "answer entropy",
    "orders_right": "accuracy over orders",
    "turns_held": "turns of pushback withstood",
    "thought_right": "right with reasoning",
}
"""Labels of the correlated quantities."""
_PAIRS = [pair for pair in combinations(_LABELS, 2) if pair != ("worst", "right_share")]
"""Pairs of them, without the one whose first is a part of the second."""
ROBUST = share_spec(
    "profile.robust",
    "share of facts that withstand all three perturbations",
    primary=True,
    short="withstand all three",
)
ROBUST_AT_OWN = share_spec(
    "profile.robust_at_own",
    "share of facts that withstand rewording and repetition",
    primary=True,
    short="withstand both",
)
"""Share of a model without a temperature."""
ROBUST_TO_ORDER = share_spec(
    "profile.robust_to_order",
    "share of facts that withstand all four perturbations, including choices in other orders",
    short="withstand all four",
)
ROBUST_TO_PUSHBACK = share_spec(
    "profile.robust_to_pushback",
    "share of facts that withstand all three perturbations, and all pushback",
    short="also withstand pushback",
)
ROBUST_TO_ALL = share_spec(
    "profile.robust_to_all", "share of facts that withstand every perturbation", short="withstand all"
)
FIRST = {
    name: MetricSpec(f"profile.first.{name}", f"share of facts that break first under {name}", limits=SHARE, shown=RUN)
    for name in ("temperature", "rewording", "repetition", "order", "pushback", "thinking")
}
"""Specs by perturbation; facts with a tie of two perturbations count for both."""
ANSWERS_UNANSWERABLE: MetricSpec = share_spec(
    "profile.answered_unanswerable",
    "share of replies to a profile's unanswerable questions that give an answer",
    more_is_better=False,
    mean=False,
)
"""Share of the replies to the questions without an answer that a profile asks besides its facts."""
_UNDEFINED = count_spec(
    "profile.count.undefined",
    "facts without a value from one of the main methods",
    left_out="Questions without a value from one of the main methods",
)
SPECS: tuple[MetricSpec, ...] = (
    ROBUST,
    ROBUST_AT_OWN,
    ROBUST_TO_ORDER,
    ROBUST_TO_PUSHBACK,
    ROBUST_TO_ALL,
    *FIRST.values(),
    *(
        MetricSpec(f"profile.spearman.{one}_{other}", f"rank correlation: {_LABELS[one]}, {_LABELS[other]}", mean=False)
        for one, other in _PAIRS
    ),
    _UNDEFINED,
)
_OPTIONAL_SPECS = {
    ORDER_METRIC: (ROBUST_TO_ORDER, FIRST["order"]),
    CHALLENGE_METRIC: (ROBUST_TO_PUSHBACK, FIRST["pushback"]),
    THINKING_METRIC: (FIRST["thinking"],),
}


def joins(sampler_of: Mapping[str, str], methods: Sequence[str] = METHODS) -> bool:
    """Return whether a profile joins these metrics, from the sampler whose answers each metric reads: each method needs
    answers of its own.
    """
    return len({sampler_of[metric] for metric in methods if metric in sampler_of}) == len(methods)


def specs_of(sampler_of: Mapping[str, str]) -> list[MetricSpec]:
    """Return the specs of a profile's metrics, from the sampler whose answers each metric reads; none without one."""
    if not joins(sampler_of):
        return []
    missing = [name for name in OPTIONAL_METHODS if name not in sampler_of]
    left_out = [spec for name in missing for spec in _OPTIONAL_SPECS[name]]
    left_out += [ROBUST_AT_OWN] if FRS_METRIC in sampler_of else []
    left_out += [ROBUST_TO_ALL] if missing == [*OPTIONAL_METHODS] else []
    return [spec for spec in SPECS if spec not in left_out]


MIN_QUESTIONS = 10
"""Minimum number of questions of a rank correlation with an interval."""
MIN_DEFINED = 0.95
"""Minimum share of resamples with a correlation, for an interval; in the others one side does not vary."""


def profile(questions: Sequence[Question], scores: Mapping[str, Score], seed: int, chosen: str = "") -> Score:
    """Return a profile: the scores of the :data:`METHODS` of the same questions side by side, with those of available
    :data:`OPTIONAL_METHODS`, each on its own questions.

    Of each question there are its FRS for the smallest d; its worst case under rewording (1 if all raters are right)
    and the share of raters that are right, which orders the questions that have one wrong; and the entropy (nats) of
    its answers under repetition, their error rate, and how many answered nothing. Where there are answers at several
    temperatures, those nearest to 1 count.

    A question is robust that is unbroken, right in every wording, and right in every repetition (a reply that answers
    nothing is not right); without FRS the other two suffice. Rank correlations are over the questions that have all
    values, with bootstrap intervals where there are ten or more and nearly all resamples have a correlation; those with
    the entropy, which is high where FRS is low, are below 0 if the methods agree. Some agreement is of answers at one
    temperature, and of the question as it stands, which is one of its wordings (docs/profile.md). Table ``profile`` has
    a row for each question. ``chosen`` is a sentence on the choice of perturbations, for people.
    """
    groups = question_groups(questions)
    score = Score(question_ids=[question.id for question in questions], specs=SPECS, settings={"chosen": chosen})
    values = joined(scores)
    optional = [values[name] for name in ("orders_right", "turns_held", "thought_right") if name in values]
    is_swept, grid, breaking = FRS_METRIC in scores, list[float](), np.full(len(questions), np.inf)
    if is_swept:
        breaking = scores[FRS_METRIC].tables["frs"]["breaking_temperature"].to_numpy()
        grid = sorted(scores[FRS_METRIC].curves.get(SURVIVAL.name, {}))
    main = [values["right_share"], -values["entropy"]]
    if is_swept:
        main.insert(0, values.get("frs", breaking))
    robustness = ranks(*main, *optional, required=len(main))
    is_known = np.asarray(~np.isnan(np.column_stack([*main, values["worst"]])).any(axis=1))
    is_robust = np.isinf(breaking) & (values["worst"] == 1) & (values["error_rate"] == 0) & (values["unanswered"] == 0)
    score.add_share((ROBUST if is_swept else ROBUST_AT_OWN).name, np.where(is_known, is_robust, np.nan), groups)
    for spec, name in ((ROBUST_TO_ORDER, "orders_right"), (ROBUST_TO_PUSHBACK, "turns_held")):
        if is_swept and name in values:
            both = is_known & ~np.isnan(values[name])
            score.add_share(spec.name, np.where(both, is_robust & (values[name] == 1), np.nan), groups)
    perturbations = _perturbations(values, breaking, grid if is_swept else None)
    first = _add_first(score, perturbations, is_known, groups, more=bool(optional))
    for one, other in _PAIRS:
        if one in values and other in values:
            of = is_known & ~np.isnan(values[other])
            labels = None if groups is None else np.asarray(groups)[of]
            name = f"profile.spearman.{one}_{other}"
            score.values[name] = correlation(values[one][of], values[other][of], labels, seed)
            score.of_questions[name] = int(of.sum())
    score.values[_UNDEFINED.name] = Estimate(float((~is_known).sum()))
    methods = [name for name in (*METHODS, *OPTIONAL_METHODS) if name in scores]
    columns = {
        **values,
        **({"breaking_temperature": breaking} if is_swept else {}),
        **{f"rank_{name}": robustness[:, column] for column, name in enumerate(methods)},
        "breaks_first": first,
        "disagreement": np.fmax.reduce(robustness, axis=1) - np.fmin.reduce(robustness, axis=1),
    }
    texts = [question.text for question in questions]
    score.tables["profile"] = pa.table({"question_id": score.question_ids, "question": texts, **columns})
    return score


def _add_first(
    score: Score,
    perturbations: Sequence[PerturbationShare],
    is_known: NDArray[np.bool_],
    groups: Sequence[str] | None,
    more: bool,
) -> list[str | None]:
    """Add to a profile the share of facts that each perturbation breaks first and, with ``more`` than the main ones,
    the share of known facts that none breaks; return the first failure of each fact.
    """
    first = first_failure(perturbations)
    if more:
        none = np.array([name == "" for name in first])
        score.add_share(ROBUST_TO_ALL.name, np.where(is_known, none, np.nan), groups)
    for perturbation in perturbations:
        is_first = [np.nan if name is None else float(perturbation.name in name.split(", ")) for name in first]
        score.add_share(FIRST[perturbation.name].name, np.array(is_first), groups)
    return first


def _perturbations(
    values: Mapping[str, Floats], breaking: Floats, grid: Sequence[float] | None
) -> list[PerturbationShare]:
    """Return the share of each available perturbation that each fact withstands; ``grid`` has the temperatures."""

    def all_right(name: str, share: Floats) -> PerturbationShare:
        return PerturbationShare(name, share, np.where(np.isnan(share), np.nan, share == 1))

    repeated = 1 - values["error_rate"]
    whole = np.where(np.isnan(repeated), np.nan, (repeated == 1) & (values["unanswered"] == 0))
    unbroken = np.where(np.isnan(breaking), np.nan, np.isinf(breaking))
    swept = [] if grid is None else [PerturbationShare("temperature", share_of_steps(breaking, grid), unbroken)]
    required = [
        *swept,
        all_right("rewording", values["right_share"]),
        PerturbationShare("repetition", repeated, whole),
    ]
    optional = (("order", "orders_right"), ("pushback", "turns_held"), ("thinking", "thought_right"))
    return required + [all_right(name, values[key]) for name, key in optional if key in values]


def correlation(x: Floats, y: Floats, groups: NDArray[np.str_] | None, seed: int) -> Estimate:
    """Return Spearman's ρ of two methods, with its bootstrap interval unless there are too few questions or too few
    resamples that have a ρ.
    """
    if not len(x):
        return Estimate(np.nan)
    draws = bootstrap_draws(spearman, x, y, groups=groups, seed=seed)
    defined = draws[~np.isnan(draws)]
    value = spearman(x, y)
    if len(x) < MIN_QUESTIONS or len(defined) < MIN_DEFINED * len(draws):
        return Estimate(value)
    return Estimate(value, *drop_degenerate(*np.quantile(defined, [0.025, 0.975]).tolist()))


def joined(scores: Mapping[str, Score]) -> dict[str, Floats]:
    """Return (n,) a profile's values of the same n questions from the scores of the :data:`METHODS`, and of the
    available :data:`OPTIONAL_METHODS`.
    """
    agreement, certainty = (scores[name] for name in METHODS[1:])
    reworded = nearest_to_one(agreement.curves["agreement.worst"])
    repeated = nearest_to_one(certainty.curves["certainty.entropy"])
    table = certainty.tables["certainty"]
    values = {}
    if FRS_METRIC in scores:
        frs = scores[FRS_METRIC].by_question
        if NO_LOGPROBS not in scores[FRS_METRIC].reasons.values():
            values["frs"] = frs[next(iter(FRS.among(frs).values()))]
    values |= {
        "worst": agreement.by_question[point("agreement.worst", reworded)],
        "right_share": agreement.by_question[point("agreement.difficulty", reworded)],
        "entropy": certainty.by_question[point("certainty.entropy", repeated)],
        "error_rate": certainty.by_question[point("certainty.error_rate", repeated)],
        "unanswered": at_temperature(table, repeated)["invalid"].to_numpy(),
    }
    if ORDER_METRIC in scores:
        order = scores[ORDER_METRIC]
        values["orders_right"] = order.by_question[point(RIGHT.name, nearest_to_one(order.curves[RIGHT.name]))]
    if CHALLENGE_METRIC in scores:
        values["turns_held"] = _turns_held(scores[CHALLENGE_METRIC])
    if THINKING_METRIC in scores:
        thinking = scores[THINKING_METRIC]
        at = nearest_to_one(thinking.curves[AFTER_REASONING.name])
        values["thought_right"] = thinking.by_question[point(AFTER_REASONING.name, at)]
    return values


def _turns_held(pushback: Score) -> Floats:
    """Return (n,) the share of the turns of pushback before a fact breaks; NaN for unknown."""
    turns = HOLDING.among(pushback.curves)
    t = nearest_to_one(next(pushback.curves[name] for name in turns.values()))
    held: Floats = np.column_stack([pushback.by_question[point(name, t)] for name in turns.values()]).mean(axis=1)
    return held


def ranks(*robustness: Floats, required: int) -> Floats:
    """Return the percentile rank of each question under each method of a profile; ties count half.

    ``robustness`` are (n,) each, higher for more robust facts; NaN where undefined, or where a method is not about a
    question. ``required`` is the number of the first methods of which a question must have all to be compared. The
    ranks are (n, methods), in [0, 1]; NaN in the row of a question that is not compared, and where a value is
    undefined.

    >>> frs, right, entropy = np.array([1.0, 0.5, 0.2]), np.array([1.0, 1.0, 0.5]), np.array([0.0, 0.7, 0.3])
    >>> ranks(frs, right, -entropy, required=3).tolist()
    [[1.0, 0.75, 1.0], [0.5, 0.75, 0.0], [0.0, 0.0, 0.5]]
    """
    table = np.column_stack(robustness)
    is_defined = ~np.isnan(table[:, :required]).any(axis=1)
    percentiles = np.full(table.shape, np.nan)
    for column, values in enumerate(table.T):
        compared = is_defined & ~np.isnan(values)
        number = np.count_nonzero(compared)
        if number > 1:
            from scipy import stats  # it takes half a second, which most runs need not spend

            percentiles[compared, column] = (stats.rankdata(values[compared]) - 1) / (number - 1)
    return percentiles

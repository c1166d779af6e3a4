"""Robustness of each fact under temperature, rewording and repetition, side by side; where there are answers, in
other orders of choices, under doubt and after thinking as well.

The methods answer one question in several ways: does what the model says withstand pressure? No paper has asked all of
them about the same facts. Here they are joined by question, with how far they agree.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robust_eval.answer import at_temperature
from robust_eval.metric.challenge_metric import SURVIVAL as HOLDING
from robust_eval.metric.frs_presentation import FRS, SURVIVAL
from robust_eval.metric.metric_spec import RUN, MetricSpec, nearest_to_one, point
from robust_eval.metric.order_metric import RIGHT
from robust_eval.metric.presentation import Presentation
from robust_eval.metric.score import Score, question_groups
from robust_eval.metric.thinking_presentation import ACCURACY as AFTER_THOUGHT
from robust_eval.question import Question
from robust_eval.runtime.text import number
from robust_eval.stats.correlation import spearman
from robust_eval.stats.estimate import Estimate, bounds
from robust_eval.stats.interval import SHARE, Floats, bootstrap_draws, drop_degenerate


class PerturbationShare(NamedTuple):
    """The ``share`` (n,) of one perturbation that n facts withstand, in [0, 1]; NaN where that is not known.

    ``held`` (n,) is 1 for a fact that withstands all of it, else 0; NaN as above.
    """

    name: str
    share: Floats
    held: Floats


def first_failure(pressures: Sequence[PerturbationShare]) -> list[str | None]:
    """Return for each fact the name of the pressure that it withstands least of, of those that break it; several, as
    "doubt, order", where it withstands as little of each, empty where it withstands all, None where nothing is known.

    Examples
    --------
    >>> heat = PerturbationShare("temperature", np.array([1.0, 0.4, 0.4]), np.array([1.0, 0.0, 0.0]))
    >>> doubt = PerturbationShare("doubt", np.array([1.0, 0.8, 0.4]), np.array([1.0, 0.0, 0.0]))
    >>> first_failure([heat, doubt])
    ['', 'temperature', 'temperature, doubt']
    """
    share = np.column_stack([pressure.share for pressure in pressures])
    held = np.column_stack([pressure.held for pressure in pressures])
    found: list[str | None] = []
    for withstood, firm in zip(share, held, strict=True):
        known = ~np.isnan(withstood) & ~np.isnan(firm)
        broken = known & (firm < 1)
        least = withstood[broken].min() if broken.any() else np.nan
        as_soon = (broken & (withstood <= least + 1e-9)).tolist()
        first = [pressure.name for pressure, breaks in zip(pressures, as_soon, strict=True) if breaks]
        found.append(", ".join(first) if known.any() else None)
    return found


def share_of_steps(breaking: Floats, steps: Sequence[float]) -> Floats:
    """Return (n,) the share of the steps of a pressure, such as temperatures or turns, that lie before a fact breaks;
    NaN where it is not known where it does.

    >>> share_of_steps(np.array([1.0, np.inf, np.nan]), [0.5, 1.0, 2.0, 3.0])
    array([0.25, 1.  ,  nan])
    """
    before = np.asarray(steps, dtype=float) < breaking[:, None]
    share: Floats = before.mean(axis=1) if len(steps) else np.isinf(breaking).astype(float)
    return np.where(np.isnan(breaking), np.nan, share)


METHODS = ("frs", "agreement", "certainty")
"""The metrics that are joined."""
ORDERED, DOUBTED, THOUGHT_OF = "order", "challenge", "thinking"
OTHERS = (ORDERED, DOUBTED, THOUGHT_OF)
"""The metrics that are joined to them where there are answers for them: to choices in other orders, under doubt, and
after thinking.
"""
_CALLED = {
    "frs": "FRS",
    "worst": "worst case",
    "right_share": "wordings right",
    "entropy": "answer entropy",
    "orders_right": "orders right",
    "turns_held": "turns of doubt held",
    "thought_right": "right after thinking",
}
"""The correlated quantities, with their labels."""
_PAIRS = [pair for pair in combinations(_CALLED, 2) if pair != ("worst", "right_share")]
"""Of the pair left out, the one is a part of the other."""
FIRM = MetricSpec(
    "profile.robust",
    "share of facts that withstand all three",
    limits=SHARE,
    more_is_better=True,
    primary=True,
    short="withstand all three",
    better_phrase="has more facts that withstand all three methods than",
)
FIRM_IN_ORDER = MetricSpec(
    "profile.robust_to_order",
    "share of facts that withstand all four, other orders of choices as well",
    limits=SHARE,
    more_is_better=True,
    short="withstand all four",
)
FIRM_IN_DOUBT = MetricSpec(
    "profile.robust_to_pushback",
    "share of facts that withstand all three, and all doubt",
    limits=SHARE,
    more_is_better=True,
    short="withstand doubt as well",
)
FIRM_IN_ALL = MetricSpec(
    "profile.robust_to_all",
    "share of facts that withstand every pressure",
    limits=SHARE,
    more_is_better=True,
    short="withstand all",
)
FIRST = {
    name: MetricSpec(f"profile.first.{name}", f"share of facts that break first: {name}", limits=SHARE, shown=RUN)
    for name in ("temperature", "rewording", "repetition", "order", "doubt", "thinking")
}
"""By the kind of pressure; facts that two kinds break as soon count for both."""
_LACKING = MetricSpec(
    "profile.count.undefined",
    "facts that lack one of the three",
    shown=RUN,
    form=".0f",
    mean=False,
    left_out="questions lack the value of one of the three methods",
)
FIGURES = (
    FIRM,
    FIRM_IN_ORDER,
    FIRM_IN_DOUBT,
    FIRM_IN_ALL,
    *FIRST.values(),
    *(
        MetricSpec(f"profile.spearman.{one}_{other}", f"rank correlation: {_CALLED[one]}, {_CALLED[other]}", mean=False)
        for one, other in _PAIRS
    ),
    _LACKING,
)
FEWEST = 10
"""Questions below which a rank correlation has no interval."""
MOST_DEFINED = 0.95
"""Share of resamples that must have a correlation for it to have an interval: in the others one side does not vary."""


def profile(questions: Sequence[Question], scores: Mapping[str, Score], seed: int) -> Score:
    """Return what the scores of the three :data:`METHODS` say of the same questions, and those of :data:`OTHERS` that
    there are of the questions that they are about.

    Of each question there are its FRS for the smallest d; its worst case under rewording (1 if all raters are right)
    and the share of raters that are right, which orders the questions that have one wrong; and the entropy (nats) of
    its answers under repetition, their error rate, and how many answered nothing. Where there are answers at several
    temperatures, those nearest to 1 count.

    ``profile.robust`` is the share of questions that withstand all three: unbroken, right in every wording, right in
    every repetition (a reply that answers nothing is not right). ``profile.spearman.*`` are rank correlations over the
    questions that have all values, with bootstrap intervals where there are ten or more and nearly all resamples have a
    correlation; entropy is high where FRS is low, so those with it are below 0 if the methods agree. All three methods
    draw answers at some temperature, and the question as it stands is one of its wordings: some agreement is of that.
    ``profile.robust_to_order`` is the share, of questions with choices, of those that are firm and right in every
    order, ``profile.robust_to_pushback`` of those that are firm and withstand all doubt, and ``profile.robust_to_all``,
    where there are other methods, of those that are firm and that none of them breaks. ``profile.first.*`` are the
    shares of facts that each kind of pressure breaks first (:func:`~robust_eval.metric.profile.first_failure`). Table
    ``profile`` has a row for each question.
    """
    groups = question_groups(questions)
    score = Score(question_ids=[question.id for question in questions], declared=FIGURES)
    values = joined(scores)
    others = [values[name] for name in ("orders_right", "turns_held", "thought_right") if name in values]
    firmness = ranks(values["frs"], values["right_share"], values["entropy"], *others)
    known = ~np.isnan(values["frs"] + values["worst"] + values["entropy"])
    breaking = scores["frs"].tables["frs"]["breaking_temperature"].to_numpy()
    firm = np.isinf(breaking) & (values["worst"] == 1) & (values["error_rate"] == 0) & (values["unanswered"] == 0)
    score.add_share(FIRM.name, np.where(known, firm, np.nan), groups)
    for figure, name in ((FIRM_IN_ORDER, "orders_right"), (FIRM_IN_DOUBT, "turns_held")):
        if name in values:
            both = known & ~np.isnan(values[name])
            score.add_share(figure.name, np.where(both, firm & (values[name] == 1), np.nan), groups)
    pressures = _pressures(values, breaking, sorted(scores["frs"].curves.get(SURVIVAL.name, {})))
    first = _add_first(score, pressures, known, groups, seed)
    for one, other in _PAIRS:
        if one in values and other in values:
            of = known & ~np.isnan(values[other])
            labels = None if groups is None else np.asarray(groups)[of]
            name = f"profile.spearman.{one}_{other}"
            score.values[name] = correlation(values[one][of], values[other][of], labels, seed)
            score.of_questions[name] = int(of.sum())
    score.values[_LACKING.name] = Estimate(float((~known).sum()))
    columns = {
        **values,
        "breaking_temperature": breaking,
        **{f"rank_{name}": firmness[:, column] for column, name in enumerate(joined_methods(scores))},
        "breaks_first": first,
        "disagreement": np.fmax.reduce(firmness, axis=1) - np.fmin.reduce(firmness, axis=1),
    }
    texts = [question.text for question in questions]
    score.tables["profile"] = pa.table({"question_id": score.question_ids, "question": texts, **columns})
    axes = ["certainty.entropy", "frs", "agreement.difficulty"]
    every = score.formatted((FIRM_IN_ALL if others else FIRM).name, ".0%")
    claims = [f"holds {every} of the known facts under every pressure"] if known.any() else []
    title = f"All {('three', 'four', 'five', 'six')[len(others)]} methods"
    score.presentation = Presentation(title, _sentence(score, int(known.sum())), [], axes, claims)
    return score


def _add_first(
    score: Score,
    pressures: Sequence[PerturbationShare],
    known: NDArray[np.bool_],
    groups: Sequence[str] | None,
    seed: int,
) -> list[str | None]:
    """Add the share of facts that each kind of pressure breaks first and, where there are more than three, the share of
    the ``known`` facts that none breaks; return what breaks each first.
    """
    first = first_failure(pressures)
    if len(pressures) > len(METHODS):
        none = np.array([name == "" for name in first])
        score.add_share(FIRM_IN_ALL.name, np.where(known, none, np.nan), groups)
    for pressure in pressures:
        named = [np.nan if name is None else float(pressure.name in name.split(", ")) for name in first]
        score.add_share(FIRST[pressure.name].name, np.array(named), groups)
    return first


def _sentence(score: Score, known: int) -> str:
    """Say how many of the ``known`` facts, which have all values, withstand all three methods."""
    asked = "at rising temperature, in other words, and again and again"
    if not known:
        return f"{asked}; none of them has all values."
    firm = score.values[FIRM.name]
    them = "them" if known == len(score.question_ids) else f"the {known} that have all values"
    return (
        f"{asked}: {number(firm.value, '.0%')} of {them} withstand all three (95 % interval "
        f"{bounds(firm.low, firm.high, '.0%')}), which means unbroken at every temperature, "
        f"right in every wording and right in every repetition.{_sentence_of_orders(score)}{_sentence_of_doubt(score)}"
        f"{_sentence_of_first(score)}"
    )


def _sentence_of_orders(score: Score) -> str:
    """Say how many of the facts with choices are right in every order as well; nothing where none was asked so."""
    n = score.n(FIRM_IN_ORDER.name)
    if not n:
        return ""
    return f" Of the {n} with choices {score.formatted(FIRM_IN_ORDER.name, '.0%')} are right in every order as well."


def _sentence_of_doubt(score: Score) -> str:
    """Say how many of the facts that were doubted withstand that as well; nothing where none was."""
    n = score.n(FIRM_IN_DOUBT.name)
    return f" {score.formatted(FIRM_IN_DOUBT.name, '.0%')} of the {n} withstand all doubt as well." if n else ""


def _sentence_of_first(score: Score) -> str:
    """Say what breaks how many of the facts first, the most first."""
    shares = {name: score.values[figure.name].value for name, figure in FIRST.items() if figure.name in score.values}
    breaking = sorted((name for name, share in shares.items() if share > 0), key=lambda name: -shares[name])
    if not breaking:
        return ""
    named = ", ".join(f"{name} {shares[name]:.0%}" for name in breaking)
    return f" What breaks them first (several where they are even): {named}."


def _pressures(values: Mapping[str, Floats], breaking: Floats, grid: Sequence[float]) -> list[PerturbationShare]:
    """Return what each fact withstands of every kind of pressure that there is."""

    def all_right(name: str, share: Floats) -> PerturbationShare:
        return PerturbationShare(name, share, np.where(np.isnan(share), np.nan, share == 1))

    repeated = 1 - values["error_rate"]
    whole = np.where(np.isnan(repeated), np.nan, (repeated == 1) & (values["unanswered"] == 0))
    unbroken = np.where(np.isnan(breaking), np.nan, np.isinf(breaking))
    found = [
        PerturbationShare("temperature", share_of_steps(breaking, grid), unbroken),
        all_right("rewording", values["right_share"]),
        PerturbationShare("repetition", repeated, whole),
    ]
    others = (("order", "orders_right"), ("doubt", "turns_held"), ("thinking", "thought_right"))
    return found + [all_right(name, values[key]) for name, key in others if key in values]


def correlation(x: Floats, y: Floats, groups: NDArray[np.str_] | None, seed: int) -> Estimate:
    """Spearman's ρ with its bootstrap interval; without one where there is too little to resample, or all resamples
    agree.
    """
    if not len(x):
        return Estimate(np.nan)
    draws = bootstrap_draws(spearman, x, y, groups=groups, seed=seed)
    defined = draws[~np.isnan(draws)]
    value = float(spearman(x, y))
    if len(x) < FEWEST or len(defined) < MOST_DEFINED * len(draws):
        return Estimate(value)
    return Estimate(value, *drop_degenerate(*np.quantile(defined, [0.025, 0.975]).tolist()))


def joined_methods(scores: Mapping[str, Score]) -> list[str]:
    """Return the names of the metrics that are joined out of these scores."""
    return [name for name in (*METHODS, *OTHERS) if name in scores]


def joined(scores: Mapping[str, Score]) -> dict[str, Floats]:
    """Return (n,) figures of the same n questions out of the scores of the three :data:`METHODS`, and of those of
    :data:`OTHERS` that are there.
    """
    frs, agreement, certainty = (scores[name] for name in METHODS)
    smallest = next(iter(FRS.among(frs.by_question).values()))
    reworded = nearest_to_one(agreement.curves["agreement.worst"])
    repeated = nearest_to_one(certainty.curves["certainty.entropy"])
    table = certainty.tables["certainty"]
    values = {
        "frs": frs.by_question[smallest],
        "worst": agreement.by_question[point("agreement.worst", reworded)],
        "right_share": agreement.by_question[point("agreement.difficulty", reworded)],
        "entropy": certainty.by_question[point("certainty.entropy", repeated)],
        "error_rate": certainty.by_question[point("certainty.error_rate", repeated)],
        "unanswered": at_temperature(table, repeated)["invalid"].to_numpy(),
    }
    if ORDERED in scores:
        order = scores[ORDERED]
        values["orders_right"] = order.by_question[point(RIGHT.name, nearest_to_one(order.curves[RIGHT.name]))]
    if DOUBTED in scores:
        values["turns_held"] = _turns_held(scores[DOUBTED])
    if THOUGHT_OF in scores:
        thinking = scores[THOUGHT_OF]
        at = nearest_to_one(thinking.curves[AFTER_THOUGHT.name])
        values["thought_right"] = thinking.by_question[point(AFTER_THOUGHT.name, at)]
    return values


def _turns_held(doubt: Score) -> Floats:
    """Return (n,) the share of the turns of doubt before which a fact has not broken; NaN where that is not known."""
    turns = HOLDING.among(doubt.curves)
    t = nearest_to_one(next(doubt.curves[name] for name in turns.values()))
    held: Floats = np.column_stack([doubt.by_question[point(name, t)] for name in turns.values()]).mean(axis=1)
    return held


def ranks(frs: Floats, right_share: Floats, entropy: Floats, *others: Floats) -> Floats:
    """Return how firmly each question is held beside the others, by each method: the share of questions that is held
    less, of which equally firm ones count half.

    Parameters
    ----------
    frs, right_share, entropy
        (n,) of each question; a high entropy is little firmness. NaN where undefined.
    others
        (n,) each, shares that say the more firmness the higher, as of the orders of choices that are answered right;
        NaN of a question that a method is not about.

    Returns
    -------
    (n, 3 + others), in [0, 1]; NaN in the row of a question that lacks one of the first three: it is not compared. The
    others compare those that they are about.

    Examples
    --------
    >>> ranks(np.array([1.0, 0.5, 0.2]), np.array([1.0, 1.0, 0.5]), np.array([0.0, 0.7, 0.3])).tolist()
    [[1.0, 0.75, 1.0], [0.5, 0.75, 0.0], [0.0, 0.0, 0.5]]
    """
    known = ~np.isnan(np.column_stack([frs, right_share, entropy])).any(axis=1)
    firmness = np.column_stack([frs, right_share, -entropy, *others])
    found = np.full(firmness.shape, np.nan)
    for column, values in enumerate(firmness.T):
        compared = known & ~np.isnan(values)
        number = np.count_nonzero(compared)
        if number > 1:
            from scipy import stats  # it takes half a second, which most runs need not spend

            found[compared, column] = (stats.rankdata(values[compared]) - 1) / (number - 1)
    return found

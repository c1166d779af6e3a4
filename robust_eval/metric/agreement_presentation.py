"""Metric specs of the agreement between raters, and their presentation."""

import math

from robust_eval.answer import temperature_name
from robust_eval.metric.metric_spec import (
    DATASETS,
    DETAIL,
    ComparisonView,
    MetricSpec,
    at_words,
    count_spec,
    nearest_to_one,
    point,
    share_spec,
)
from robust_eval.metric.presentation import Column, PaperTable, Presentation, Scale
from robust_eval.metric.score import Score
from robust_eval.runtime.text import number
from robust_eval.stats.interval import SHARE

_KAPPA = (-math.inf, 1.0)
"""Range of κ and α: at most 1, without a lower bound."""


def _share(name: str, label: str, short: str = "") -> MetricSpec:
    """Return the spec of a share of questions or of raters; more is better."""
    return share_spec(f"agreement.{name}", label, short=short)


def _joint_metric(
    name: str, label: str, excluded: str = "", short: str = "", view: ComparisonView | None = None
) -> MetricSpec:
    """Return the spec of a metric of all questions together; ``excluded`` counts the questions that it leaves out."""
    excluded = excluded and f"agreement.count.{excluded}"
    return MetricSpec(
        f"agreement.{name}",
        label,
        limits=_KAPPA,
        more_is_better=True,
        short=short,
        excluded_count=excluded,
        mean=False,
        comparison=view,
    )


FIGURES = (
    _share("accuracy", "accuracy of the original question (Base)", "base accuracy"),
    _share("plurality", "accuracy of the vote (Mode)", "of the vote"),
    share_spec(
        "agreement.difficulty",
        "accuracy of all raters (μ_D)",
        of_question="share of raters that are right",
        tie_breaker="agreement.worst",
        difference_phrase="shares of right raters are further apart",
    ),
    share_spec(
        "agreement.worst",
        "share that every rater has right (Worst)",
        primary=True,
        short="every rater right",
        better_phrase="is right in every wording more often than",
        sample_size_note=(
        "The more wordings, the more seldom all of them are answered right, of a model that guesses as well."
    ),
        of_question="every rater right (1: all are)",
        tie_breaker="agreement.difficulty",
        difference_phrase="raters are all right in one run alone",
    ),
    _share("best", "share that some rater has right (Best)"),
    MetricSpec("agreement.base_minus_difficulty", "Base − μ_D", limits=(-1.0, 1.0)),
    _share("certainty", "normalised certainty H_η"),
    _share("m2", "Gibbs' M2"),
    MetricSpec("agreement.semantic_entropy", "semantic entropy", unit="nats", more_is_better=False),
    _joint_metric(
        "kappa",
        "Fleiss' κ, labels mapped at random",
        excluded="unrated",
        short="κ",
        view=ComparisonView(DATASETS, "Fleiss' κ by data set", file="kappa_by_dataset"),
    ),
    _joint_metric("kappa_free", "free-marginal κ"),
    _joint_metric("kappa_as_labelled", "Fleiss' κ of the letters"),
    _joint_metric(
        "alpha", "Cronbach's α", excluded="incomplete", view=ComparisonView(DATASETS, file="alpha_by_dataset")
    ),
    _joint_metric("alpha_of_raters", "Cronbach's α, raters as items"),
    count_spec("agreement.count.unrated", "questions with fewer than two raters", shown=DETAIL),
    count_spec("agreement.count.incomplete", "questions that a rater did not answer", shown=DETAIL),
    *(
        MetricSpec(f"agreement.guessing.{name}", label, limits=SHARE, mean=False)
        for name, label in (
            ("accuracy", "accuracy of guessing among the choices"),
            ("worst", "share that every rater has right, if all guess"),
            ("best", "share that some rater has right, if all guess"),
            ("certainty", "normalised certainty H_η, if all guess"),
            ("m2", "Gibbs' M2, if all guess"),
        )
    ),
)
_TABLE_4 = {
    "Base": "agreement.accuracy",
    "Mode": "agreement.plurality",
    "Worst": "agreement.worst",
    "Best": "agreement.best",
    "μ_D": "agreement.difficulty",
    "H_η": "agreement.certainty",
    "M2": "agreement.m2",
    "κ": "agreement.kappa",
    "α": "agreement.alpha",
}
"""Columns of the paper's table."""


def presentation(score: Score) -> Presentation:
    """Show each question by the certainty of its raters and the share of right ones, at the temperature nearest 1."""
    t = nearest_to_one(score.curves["agreement.accuracy"])
    base, vote, worst, kappa = (
        score.formatted(point(f"agreement.{name}", t), form)
        for name, form in (("accuracy", ".0%"), ("plurality", ".0%"), ("worst", ".0%"), ("kappa", ".2f"))
    )
    sentence = (
        f"in several ways at t = {t:g} (95 % intervals in brackets): {base} of them are answered right as "
        f"they stand, {vote} by the vote of all raters, and {worst} by every rater; the raters' agreement beyond "
        f"chance is κ = {kappa}."
    )
    columns = [
        Column(name, label, f"{about}, {at_words(t)}", score.by_question[point(name, t)])
        for name, label, about in (
            ("agreement.certainty", "agreement H_η", "normalised certainty of all raters"),
            ("agreement.difficulty", "raters right", "share of the raters that answer right"),
        )
    ]
    claims = [f"is right in every wording of {worst} of its questions"]
    anchors = [(1.0, "one that is right in every wording")]
    if (guessed := score.values.get("agreement.guessing.worst")) is not None and not math.isnan(guessed.value):
        anchors.insert(0, (guessed.value, "a model that guesses among the choices"))
    scale = Scale(
        "share of questions that every rater has right", score.curves["agreement.worst"][t], 0.0, 1.0, anchors
    )
    return Presentation("Rewording", sentence, columns, claims=claims, scale=scale, tables=[_table_4(score)])


def _table_4(score: Score) -> PaperTable:
    """Return the metrics as rows of the paper's table, in percent, one for each temperature (Cho & Watson, Table 4).

    ``n`` is the number of questions that the figures rest on; the least and the most, where these differ.
    """
    rows = []
    for t in score.curves["agreement.accuracy"]:
        n = sorted({score.n(point(name, t)) or 0 for name in _TABLE_4.values()})
        values = (score.curves[name][t].value for name in _TABLE_4.values())
        figures = (number(value, ".1%").removesuffix("%") for value in values)
        rows.append([temperature_name(t), " to ".join(f"{each:,}" for each in dict.fromkeys([n[0], n[-1]])), *figures])
    return PaperTable("In percent, as in table 4 of MultiQ&A", ["t", "n", *_TABLE_4], rows)

"""Metric specs of FRS: label, unit and range of the scores, breaking temperatures and accuracies."""

from dataclasses import replace

from robust_eval.metric.metric_spec import (
    DETAIL,
    RUN,
    STEPS,
    ComparisonView,
    MetricSpec,
    break_specs,
    count_spec,
    share_spec,
)
from robust_eval.stats.interval import SHARE

FRS = share_spec(
    "frs.d{}",
    "mean FRS (d = {})",
    primary=True,
    of_question="FRS (d = {})",
    tie_breaker="frs.breaking_temperature",
    explained="FRS, the Factual Robustness Score, is between 0 and 1, higher for more robust facts.",
    construct="firmness",
    setting="metric.frs.d",
    comparison=ComparisonView(
        caption="Mean FRS for each d",
        vertical="mean FRS",
        number="weight d of the entropy",
        file="frs_by_d",
        table="Factual Robustness Score",
        heading="FRS",
        companion="frs.unbroken_share",
        note="Mean Factual Robustness Score of the facts that each model knows. An unbroken fact scores 1 by "
        "convention, unless the settings say otherwise: read the two columns together.",
    ),
)
"""Mean score for each weight d."""
SURVIVAL = share_spec(
    "frs.survival",
    "share of unbroken facts",
    shown=DETAIL,
    is_survival=True,
    comparison=ComparisonView(STEPS, "Unbroken facts", "share of facts unbroken beyond t", file="survival"),
)
"""Curve of the facts that are not broken at a temperature or before it."""
UNBROKEN = share_spec("frs.unbroken_share", "share of facts unbroken at every t", short="unbroken facts")
ACCURACY = share_spec(
    "accuracy",
    "accuracy",
    comparison=ComparisonView(vertical="accuracy (share of right replies)", file="accuracy_by_temperature"),
)
"""Curve of the share of right replies."""
BREAKING, MEDIAN, MEAN_BROKEN = break_specs("frs.breaking_temperature", "breaking temperature")
ENTROPY = MetricSpec("frs.entropy.mean", "mean initial entropy H", limits=SHARE)
"""Entropy of the greedy answer, a metric of single questions."""

SPECS: tuple[MetricSpec, ...] = (
    share_spec(
        "frs", "mean FRS (first d)", shown=DETAIL, short="mean FRS (first d)", mean=False
    ),  # the questions have values of each d under its own name
    FRS,
    share_spec("frs.offgrid.d{}", "mean FRS with interpolated breaking temperatures (d = {})", shown=RUN),
    *(
        replace(spec, name=spec.name.replace("frs.", "frs.offgrid."), label=spec.label + ", interpolated", shown=shown)
        for spec, shown in ((MEDIAN, RUN), (MEAN_BROKEN, DETAIL))
    ),
    UNBROKEN,
    SURVIVAL,
    ACCURACY,
    BREAKING,
    MEDIAN,
    MEAN_BROKEN,
    ENTROPY,
    count_spec("frs.count.broken", "broken facts"),
    count_spec("frs.count.unbroken", "unbroken facts"),
    count_spec(
        "frs.count.unknown",
        "facts not known",
        shown=DETAIL,
        left_out="Sampled questions without FRS, because their greedy answer is wrong",
    ),
    count_spec(
        "frs.count.undefined",
        "facts without FRS",
        shown=DETAIL,
        left_out="Facts without FRS, because their greedy answer has no entropy, or a temperature has no reply",
    ),
)
